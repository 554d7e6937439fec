"""Races between feeders of planted cost: the right order and numbers, also with failures and disturbances."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from audioaug.measure import FakeClock, RaceResult, race
from audioaug.records import Measurement, Timing

STEP = 0.25


def times(seconds: float) -> Timing:
    return Timing((seconds,) * 5)


def feeder(clock: FakeClock, cost: float) -> Iterator[str]:
    while True:
        clock.advance(cost)
        yield "batch"


def failing(clock: FakeClock, after: int, error: Exception) -> Iterator[str]:
    for _ in range(after):
        clock.advance(0.5)
        yield "batch"
    raise error


WHERE = f"(line {failing.__code__.co_firstlineno + 4} of test_feeders.py)."


def run(clock: FakeClock, candidates: Mapping[str, Iterator[Any]], **changes: Any) -> RaceResult:
    settings = {
        "block_steps": 4,
        "discard": dict.fromkeys(candidates, 0),
        "rounds": 5,
        "seconds": 1e6,
        "step": lambda batch: clock.advance(STEP),
    }
    return race(candidates, clock=clock, **(settings | changes))


def test_values_and_ranking_come_out_exactly(clock: FakeClock) -> None:
    candidates = {"slow": feeder(clock, 1.0), "fast": feeder(clock, 0.25), "middle": feeder(clock, 0.5)}
    result = run(clock, candidates, block_steps={"slow": 2, "fast": 8, "middle": 4})
    assert result.measurements["slow"] == Measurement("slow", times(1.25), times(1.0), 2)
    assert result.measurements["fast"] == Measurement("fast", times(0.5), times(0.25), 8)
    assert result.measurements["middle"] == Measurement("middle", times(0.75), times(0.5), 4)
    assert result.failures == {}


def test_every_candidate_once_a_round_in_changing_order(clock: FakeClock) -> None:
    order: list[str] = []
    candidates = {name: feeder(clock, 0.5) for name in "abc"}
    run(clock, candidates, rounds=12, on_block=lambda measurement: order.append(measurement.candidate))
    by_round = [tuple(order[start : start + 3]) for start in range(0, 36, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in by_round)
    assert len(set(by_round)) > 2


def test_drift_affects_all_equally(clock: FakeClock) -> None:
    def step(batch: str) -> None:
        clock.advance(0.25 * (1 + clock.now() / 64))  # the machine gets hot

    candidates = {"a": feeder(clock, 0.0), "b": feeder(clock, 0.0)}
    result = run(clock, candidates, step=step, rounds=40)
    a, b = (result.measurements[name].step for name in "ab")
    assert max(a.seconds) > 3 * min(a.seconds)
    assert a.median == pytest.approx(b.median, rel=0.05)


def test_queued_batches_are_trained_on_but_not_timed(clock: FakeClock) -> None:
    trained: list[str] = []

    def stocked() -> Iterator[str]:
        while True:  # whenever it is returned to, three batches lie ready
            yield from ["free"] * 3
            for _ in range(4):
                clock.advance(1.0)
                yield "made"

    def step(batch: str) -> None:
        trained.append(batch)
        clock.advance(STEP)

    candidates = {"stocked": stocked(), "other": feeder(clock, 0.5)}
    result = run(clock, candidates, step=step, discard={"stocked": 3, "other": 0})
    assert result.measurements["stocked"].wait == times(1.0)
    assert trained.count("free") == 3 * 5


def test_device_work_is_waited_for_at_both_ends(clock: FakeClock) -> None:
    steps = {"light": 0.25, "heavy": 2.0}
    candidates = {name: iter(lambda cost=cost: cost, None) for name, cost in steps.items()}
    result = run(
        clock, candidates, step=clock.launch, discard=dict.fromkeys(candidates, 3)
    )  # reported, and done only later
    assert {name: result.measurements[name].step for name in steps} == {"light": times(0.25), "heavy": times(2.0)}
    assert result.measurements["heavy"].wait == times(0.0)


@pytest.mark.parametrize(("disturbed", "kept"), [({1, 2}, set()), ({0, 1, 2, 3}, {2, 3})])
def test_a_disturbed_round_is_repeated_but_not_for_ever(clock: FakeClock, disturbed: set[int], kept: set[int]) -> None:
    """At least four rounds, so two may be repeated; round 4 is the first one after them."""
    made: list[str] = []
    now = iter(range(100))

    def step(batch: str) -> None:
        clock.advance(STEP * (10 if len(made) // 2 in disturbed else 1))

    result = run(
        clock,
        {name: feeder(clock, 0.5) for name in "ab"},
        step=step,
        rounds=6,
        at_least_rounds=4,
        on_block=lambda measurement: made.append(measurement.candidate),
        is_disturbed=lambda: next(now) in disturbed,
    )
    slow, fast = 0.5 + 10 * STEP, 0.5 + STEP
    for name in "ab":
        found = result.measurements[name].step.seconds
        assert len(found) == 6 and found.count(slow) == len(kept) and found.count(fast) == 6 - len(kept)
    assert len(made) == 2 * (6 + 2)


@pytest.mark.parametrize(("seconds", "made"), [(26.0, 4), (29.9, 4), (30.0, 5), (36.0, 6)])
def test_a_disturbed_round_is_repeated_if_the_remaining_rounds_have_time(
    clock: FakeClock, seconds: float, made: int
) -> None:
    """A round of two candidates takes 6 s, four are due, and the first two are disturbed."""
    disturbed, reported = iter([True, True, *[False] * 9]), []
    candidates = {name: feeder(clock, 0.5) for name in "ab"}
    settings = {"rounds": 4, "at_least_rounds": 4, "seconds": seconds, "is_disturbed": lambda: next(disturbed)}
    run(clock, candidates, on_block=reported.append, **settings)
    assert len(reported) == 2 * made


@pytest.mark.parametrize(("after", "made"), [(9, 4), (8, 4), (7, 4), (6, 3), (5, 2)])
def test_batches_taken_from_the_queue_do_not_count_as_steps(clock: FakeClock, after: int, made: int) -> None:
    """8 queued batches; one in progress does not count. Four steps of 0.25 s each are trained."""
    stock = iter([8, after] * 5)
    found = run(clock, {"only": feeder(clock, 0.5)}, ready=lambda name: next(stock)).measurements["only"]
    assert found.step == times(3.0 / made) and found.wait == times(3.0 / made - 0.25)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad clip\nat line 3"), "ValueError: bad clip"),
        (RuntimeError(), "RuntimeError"),
        (
            ValueError("Caught ValueError in worker 0.\nOriginal Traceback:\n  File ...\nValueError: bad clip"),
            "ValueError: bad clip",
        ),
    ],
)
def test_a_failing_feeder_leaves_the_race(clock: FakeClock, error: Exception, reason: str) -> None:
    candidates = {"bad": failing(clock, 10, error), "good": feeder(clock, 0.5), "fine": feeder(clock, 0.25)}
    result = run(clock, candidates)
    assert result.failures == {"bad": f"{reason} {WHERE}"}
    assert len(result.measurements["bad"].step.seconds) == 2  # whole blocks only
    assert len(result.measurements["good"].step.seconds) == len(result.measurements["fine"].step.seconds) == 5


def test_a_feeder_that_ends_leaves_the_race(clock: FakeClock) -> None:
    result = run(clock, {"short": iter(["batch"] * 3), "good": feeder(clock, 0.5)})
    assert result.failures == {"short": "Its data ended."}
    assert set(result.measurements) == {"good"}


def test_a_step_that_fails_belongs_to_its_feeder(clock: FakeClock) -> None:
    def step(batch: str) -> None:
        if batch == "huge":
            raise MemoryError("out of memory")

    result = run(clock, {"huge": iter(lambda: "huge", None), "good": feeder(clock, 0.5)}, step=step)
    line = step.__code__.co_firstlineno + 2
    assert result.failures == {"huge": f"MemoryError: out of memory (line {line} of test_feeders.py)."}


def test_all_fail(clock: FakeClock) -> None:
    candidates = {name: failing(clock, 0, ValueError(name)) for name in "ab"}
    assert run(clock, candidates, drop=lambda results: {min(results)}) == RaceResult(
        {}, {name: f"ValueError: {name} {WHERE}" for name in "ab"}
    )


def test_dropped_candidates_stop_and_keep_their_blocks(clock: FakeClock) -> None:
    asked: list[set[str]] = []

    def drop(results: Mapping[str, Measurement]) -> set[str]:
        asked.append(set(results))
        return {"slow"} if len(results["fast"].step.seconds) == 2 else set()

    candidates = {"slow": feeder(clock, 1.0), "fast": feeder(clock, 0.25), "middle": feeder(clock, 0.5)}
    result = run(clock, candidates, drop=drop)
    blocks = {name: len(measurement.step.seconds) for name, measurement in result.measurements.items()}
    assert blocks == {"slow": 2, "fast": 5, "middle": 5}
    assert asked == [{"slow", "fast", "middle"}] * 2 + [{"fast", "middle"}] * 3


@pytest.mark.parametrize(("at_least_rounds", "blocks"), [(1, 1), (3, 3)])
def test_ends_with_one_candidate_left(clock: FakeClock, at_least_rounds: int, blocks: int) -> None:
    candidates = {"slow": feeder(clock, 1.0), "fast": feeder(clock, 0.25)}
    result = run(clock, candidates, drop=lambda results: {"slow"}, at_least_rounds=at_least_rounds)
    assert len(result.measurements["fast"].step.seconds) == blocks


def test_one_candidate_alone_runs_all_rounds(clock: FakeClock) -> None:
    assert len(run(clock, {"only": feeder(clock, 0.5)}).measurements["only"].step.seconds) == 5


@pytest.mark.parametrize(
    ("seconds", "rounds_made"),
    [(0.0, 3), (35.0, 5), (36.0, 6), (41.9, 6), (42.0, 7)],  # a round takes 6 s: none is begun that will not fit
)
def test_deadline(clock: FakeClock, seconds: float, rounds_made: int) -> None:
    candidates = {"a": feeder(clock, 0.5), "b": feeder(clock, 0.5)}
    result = run(clock, candidates, seconds=seconds, rounds=99)
    assert [len(result.measurements[name].step.seconds) for name in "ab"] == [rounds_made] * 2


def test_an_interrupted_race_has_reported_its_blocks(clock: FakeClock) -> None:
    reported: dict[str, Measurement] = {}

    def interrupted(batches: int) -> Iterator[str]:
        yield from ["batch"] * batches
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        candidates = {"a": feeder(clock, 0.5), "b": interrupted(9)}
        run(clock, candidates, on_block=lambda measurement: reported.update({measurement.candidate: measurement}))
    assert len(reported["b"].step.seconds) == 2
    assert len(reported["a"].step.seconds) >= 2


def test_a_feeder_against_itself_is_a_tie(clock: FakeClock) -> None:
    one = feeder(clock, 0.5)
    result = run(clock, {"one": one, "again": one})
    assert result.measurements["one"].step == result.measurements["again"].step
