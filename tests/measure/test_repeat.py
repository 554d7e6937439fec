"""Repeating and interleaving planted works of known cost."""

import pytest

from audioaug.measure import FakeClock, interleave, repeat
from audioaug.measure.repeat import MOST_CALLS


def test_cost_comes_out_exactly_and_within_the_budget(clock: FakeClock) -> None:
    timing = repeat(lambda: clock.advance(0.5), clock, seconds=10)
    assert set(timing.seconds) == {0.5}
    assert clock.now() == 10  # the warm-up is part of it


def test_device_work_is_waited_for(clock: FakeClock) -> None:
    def work() -> None:
        clock.advance(0.125)  # telling the device
        clock.launch(0.5)  # what the device does

    assert set(repeat(work, clock, seconds=10).seconds) == {0.625}


def test_what_was_left_on_the_device_is_not_charged(clock: FakeClock) -> None:
    clock.launch(100)
    assert max(repeat(lambda: clock.advance(0.5), clock, seconds=0, warm_up=0).seconds) == 0.5


def test_warm_up_is_not_timed(clock: FakeClock) -> None:
    costs = iter([9.0, 7.0])  # cold, lukewarm
    timing = repeat(lambda: clock.advance(next(costs, 0.5)), clock, seconds=0, warm_up=2)
    assert timing.seconds == (0.5,) * 5


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 5), (1000.0, 200)])
def test_least_and_most_repetitions(clock: FakeClock, seconds: float, expected: int) -> None:
    assert len(repeat(lambda: clock.advance(1.0), clock, seconds=seconds).seconds) == expected


def test_fast_calls_share_a_repetition(clock: FakeClock) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.advance(2.0**-14)  # 61 us: 17 of them, so 32, last a millisecond

    timing = repeat(work, clock, seconds=0, at_least=5, warm_up=0)
    assert timing.seconds == (2.0**-14,) * 5
    assert calls == (1 + 2 + 4 + 8 + 16) + 5 * 32


def test_work_that_costs_nothing_ends(clock: FakeClock) -> None:
    calls = []
    assert repeat(lambda: calls.append(1), clock, seconds=1, at_most=5).median == 0
    assert len(calls) < 8 * MOST_CALLS


def test_errors_of_the_work_pass_through(clock: FakeClock) -> None:
    with pytest.raises(ZeroDivisionError):
        repeat(lambda: 1 / 0, clock, seconds=1)


def test_each_work_once_a_round_in_changing_order(clock: FakeClock) -> None:
    seen: list[str] = []
    rounds: list[int] = []

    def work(name: str, cost: float) -> None:
        seen.append(name)
        clock.advance(cost)

    works = {"a": lambda: work("a", 1.0), "b": lambda: work("b", 2.0), "c": lambda: work("c", 4.0)}
    timings = interleave(works, clock, seconds=100, on_round=rounds.append)
    assert {name: set(timing.seconds) for name, timing in timings.items()} == {"a": {1.0}, "b": {2.0}, "c": {4.0}}
    assert rounds == list(range(2, 14))  # 14 s of warm-up and a first round, then 12 of 7 s
    orders = [tuple(seen[start : start + 3]) for start in range(6, len(seen), 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 2


def test_order_is_a_function_of_the_seed() -> None:
    def order(seed: int) -> str:
        clock, seen = FakeClock(), []
        works = {name: lambda name=name: (seen.append(name), clock.advance(1.0)) for name in "abcd"}
        interleave(works, clock, seconds=60, seed=seed)
        return "".join(seen)

    assert order(1) == order(1) != order(2)


def slowing(clock: FakeClock) -> None:
    """Cost more the later it is: a machine that gets hot, doubling its times in 64 s."""
    clock.advance(0.5 * (1 + clock.now() / 64))


def test_drift_falls_on_all_alike(clock: FakeClock) -> None:
    timings = interleave({"a": lambda: slowing(clock), "b": lambda: slowing(clock)}, clock, seconds=64)
    assert timings["a"].median == pytest.approx(timings["b"].median, rel=0.02)


def test_drift_would_be_charged_to_the_second_without_interleaving(clock: FakeClock) -> None:
    first = repeat(lambda: slowing(clock), clock, seconds=32)
    second = repeat(lambda: slowing(clock), clock, seconds=32)
    assert second.median > 1.3 * first.median


def test_nothing_to_interleave(clock: FakeClock) -> None:
    assert interleave({}, clock, seconds=1) == {}
