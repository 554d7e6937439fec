"""Which of several ranks is the slowest: the one that waits longest for data, since all have the same step time."""

from audioaug.decide.slowest_rank import Waits, rank_numbers, rank_words, slowest_rank
from audioaug.records import Window


def waits(*windows: tuple[float, str]) -> Waits:
    """Return the sums of windows of ten steps of 100 ms each, by waiting time and bottleneck."""
    found = Waits()
    for wait_ms, bottleneck in windows:
        found.add(Window(seconds=1.0, step=1, steps=10, step_ms=100.0, wait_ms=wait_ms, bottleneck=bottleneck))
    return found


QUICK, SLOW = waits((2.0, "model_bound")), waits((30.0, ""), (60.0, "fetch_bound"), (60.0, "fetch_bound"))


def test_rank_that_waits_longest_is_the_slowest():
    ranks = {0: QUICK, 3: waits((40.0, "too_few_workers")), 5: SLOW}
    assert slowest_rank(ranks) == 5
    assert rank_numbers(ranks) == {
        "ranks": 3,
        "slowest_rank": 5,
        "slowest_rank/wait_share": 0.5,
        "slowest_rank/bottleneck/fetch_bound": 2 / 3,
    }
    words = (
        "The slowest of 3 ranks is rank 5, which waits for data 50 % of its time; its main bottleneck was reading the "
    )
    assert rank_words(ranks) == words + "data."


def test_without_notable_waiting_no_rank_is_named():
    ranks = {0: QUICK, 1: waits((5.0, "model_bound"))}
    assert slowest_rank(ranks) is None
    assert rank_numbers(ranks) == {"ranks": 2} and rank_words(ranks) == ""


def test_a_single_rank_is_not_compared():
    assert rank_numbers({0: SLOW}) == {} == rank_numbers({}) and rank_words({0: SLOW}) == ""


def test_bottleneck_may_be_unknown():
    assert rank_words({0: QUICK, 1: waits((30.0, ""))}) == (
        "The slowest of 2 ranks is rank 1, which waits for data 30 % of its time."
    )
