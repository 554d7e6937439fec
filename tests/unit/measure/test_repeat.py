"""Repeating: rounds, one work, several in turn, training steps, copies."""

import pytest
import torch

from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock, WallClock, clock_for, interleave, measure_steps, measure_transfer, repeat
from audioaug.measure.repeat import ENOUGH, MOST_CALLS, rounds


def made(clock: FakeClock, cost: float, **limits: float) -> list[int]:
    indices = []
    for index in rounds(clock, **limits):
        indices.append(index)
        clock.advance(cost)
    return indices


@pytest.mark.parametrize(
    ("cost", "limits", "expected"),
    [
        (1.0, {"deadline": 4.0}, 4),
        (1.0, {"deadline": 4.5}, 4),  # half a round is not started
        (1.0, {"deadline": 4.0, "at_most": 2}, 2),
        (1.0, {"deadline": 0.0, "at_least": 3}, 3),  # the least is made however long it takes
        (1.0, {"deadline": 0.0, "at_least": 3, "at_most": 2}, 2),
        (0.0, {"deadline": 4.0}, ENOUGH),  # what costs nothing ends too
        (1.0, {"deadline": -1.0, "at_least": 0}, 0),
    ],
)
def test_number_of_rounds(clock: FakeClock, cost: float, limits: dict[str, float], expected: int) -> None:
    assert made(clock, cost, **limits) == list(range(expected))


def test_after_the_limit_one_round_is_enough(clock: FakeClock) -> None:
    clock.limit = 2.0
    assert made(clock, 1.0, deadline=0.0, at_least=5) == [0, 1]  # the limit is over when the third would begin
    assert made(clock, 1.0, deadline=0.0, at_least=5) == [0]
    assert made(clock, 1.0, deadline=0.0, at_least=5, first=1) == []
    assert len(repeat(lambda: clock.advance(1.0), clock, seconds=0.0, at_least=5).seconds) == 1


def test_rounds_made_before_count(clock: FakeClock) -> None:
    assert made(clock, 1.0, deadline=0.0, first=1, at_least=3) == [1, 2]


def test_cost_comes_out_exactly_and_within_the_budget(clock: FakeClock) -> None:
    timing = repeat(lambda: clock.advance(0.5), clock, seconds=10)
    assert set(timing.seconds) == {0.5}
    assert clock.now() == 10  # the warm-up is part of it


def test_device_work_is_waited_for(clock: FakeClock) -> None:
    def work() -> None:
        clock.advance(0.125)  # telling the device
        clock.launch(0.5)  # what the device does

    assert set(repeat(work, clock, seconds=10).seconds) == {0.625}


def test_earlier_device_work_is_not_timed(clock: FakeClock) -> None:
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
    """Cost more over time: a machine that gets hot and doubles its times in 64 s."""
    clock.advance(0.5 * (1 + clock.now() / 64))


def test_drift_affects_all_equally(clock: FakeClock) -> None:
    timings = interleave({"a": lambda: slowing(clock), "b": lambda: slowing(clock)}, clock, seconds=64)
    assert timings["a"].median == pytest.approx(timings["b"].median, rel=0.02)


def test_drift_would_be_charged_to_the_second_without_interleaving(clock: FakeClock) -> None:
    first = repeat(lambda: slowing(clock), clock, seconds=32)
    second = repeat(lambda: slowing(clock), clock, seconds=32)
    assert second.median > 1.3 * first.median


def test_each_repetition_is_prepared_without_being_timed(clock: FakeClock) -> None:
    prepared = []

    def prepare(name: str) -> None:
        prepared.append(name)
        clock.advance(100.0)

    works = {"a": lambda: clock.advance(1.0), "b": lambda: clock.advance(2.0)}
    timings = interleave(works, clock, seconds=0, at_least=3, prepare=prepare)
    assert {name: timing.seconds for name, timing in timings.items()} == {"a": (1.0,) * 3, "b": (2.0,) * 3}
    assert prepared.count("a") == prepared.count("b") == 3


def test_nothing_to_interleave(clock: FakeClock) -> None:
    assert interleave({}, clock, seconds=1) == {}


def test_seconds_a_step_in_blocks(clock: FakeClock) -> None:
    timing = measure_steps(lambda batch: clock.advance(0.25), [0], clock, seconds=10.75, warm_up=3)
    assert timing.seconds == (0.25,) * 4  # 0.75 s of warm-up, 4 blocks of 2.5 s


def test_device_overlaps_within_a_block(clock: FakeClock) -> None:
    def step(batch: int) -> None:
        clock.advance(0.25)  # the host is ahead of the device ...
        clock.launch(0.5)

    timing = measure_steps(step, [0], clock, seconds=0, block_steps=8)
    assert set(timing.seconds) == {0.5 + 0.25 / 8}  # ... so it shows only once a block


def test_batches_are_used_in_turn(clock: FakeClock) -> None:
    seen: list[str] = []

    def step(batch: str) -> None:
        seen.append(batch)
        clock.advance(0.5)

    measure_steps(step, ["a", "b", "c"], clock, seconds=0, block_steps=4, warm_up=1, at_least=2)
    assert "".join(seen) == "abcabcabc"


def test_no_batch_is_an_error(clock: FakeClock) -> None:
    with pytest.raises(MeasurementError, match="at least one batch to time the training step"):
        measure_steps(lambda batch: None, [], clock, seconds=1)


class Example:
    """A stand-in for a tensor in pageable or pinned memory; copying the former takes longer."""

    def __init__(self, clock: FakeClock, cost: float) -> None:
        self.clock, self.cost = clock, cost

    def pin_memory(self) -> "Example":
        return Example(self.clock, self.cost / 4)

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        (self.clock.launch if non_blocking else self.clock.advance)(self.cost)


def test_nothing_is_copied_to_the_cpu() -> None:
    assert measure_transfer(torch.zeros(8), torch.device("cpu"), WallClock(), seconds=1) == {}


def test_both_kinds_of_memory_on_cuda(clock: FakeClock) -> None:
    times = measure_transfer(Example(clock, 1.0), torch.device("cuda"), clock, seconds=20)
    assert {name: timing.median for name, timing in times.items()} == {"pageable": 1.0, "pinned": 0.25}


def test_no_page_locked_memory_without_cuda(clock: FakeClock) -> None:
    assert set(measure_transfer(Example(clock, 1.0), torch.device("mps"), clock, seconds=5)) == {"pageable"}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_copy() -> None:
    device = torch.device("cuda")
    times = measure_transfer(torch.zeros(1 << 24), device, clock_for(device), seconds=1)
    assert min(times["pinned"].seconds) > 0 and min(times["pageable"].seconds) > 0
