"""Time one thing many times, or several in turn: any callable, training steps, copies to the device."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TypeVar

import torch

from audioaug.errors import MeasurementError
from audioaug.measure.clock import Clock
from audioaug.records import Timing
from audioaug.units import Seconds

ENOUGH = 1000  # a median of so many is as good as the machine is steady


def rounds(clock: Clock, deadline: Seconds, *, at_least: int = 1, at_most: int = ENOUGH) -> Iterator[int]:
    """Yield 0, 1, 2, ... while there is time for one more round like the last.

    Args:
        clock: the clock that ``deadline`` was read from.
        deadline: the time, on that clock, by which the last round should have ended, in seconds.
        at_least: rounds that are made even when the deadline passes.
        at_most: rounds after which to stop even when there is time.
    """
    last: Seconds = 0.0
    for index in range(at_most):
        if index >= at_least and clock.now() + last > deadline:
            return
        start = clock.now()
        yield index
        last = clock.now() - start


Work = Callable[[], object]

# Reading the clock and waiting for a device cost up to some 10 us, so a repetition lasts at least 1 ms.
SHORTEST_REPETITION: Seconds = 1e-3
MOST_CALLS = 1024


def repeat(
    work: Work, clock: Clock, *, seconds: Seconds, at_least: int = 5, at_most: int = 200, warm_up: int = 2
) -> Timing:
    """Time one call of ``work``, warm, over and over; the clock is synchronised around each repetition.

    A call that takes less than a millisecond is repeated within each repetition and its time divided, so what a
    device needs to *finish* such calls is measured, not what one of them takes to come back.

    Args:
        work: what to time; what it returns is thrown away.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the warm-up included.
        at_least: repetitions that are made however long they take.
        at_most: repetitions that are enough.
        warm_up: calls before anything is timed.
    """
    deadline = clock.now() + seconds
    calls, first = _warm(work, clock, warm_up)
    more = rounds(clock, deadline, at_least=at_least - 1, at_most=at_most - 1)
    return Timing((first, *(seconds_per_call(work, clock, calls) for _ in more)))


def interleave(
    works: Mapping[str, Work],
    clock: Clock,
    *,
    seconds: Seconds,
    at_least: int = 5,
    warm_up: int = 1,
    seed: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Time several works under the same conditions: all of them once a round, in random order but in the first.

    Whatever drifts (clock rates, temperature, the neighbours) then falls on all alike. Entry i of every timing is from
    round i, so they can be compared in pairs.

    Args:
        works: what to time, by name. Each is warmed before the first round.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the warm-up included.
        at_least: rounds that are made however long they take.
        warm_up: calls of each work before anything is timed.
        seed: of the order within each round.
        on_round: called after each round but the first with the number of rounds so far.
    """
    deadline = clock.now() + seconds
    warm = {name: _warm(work, clock, warm_up) for name, work in works.items()}
    times = {name: [first] for name, (_, first) in warm.items()}
    order, shuffle = list(works), random.Random(seed).shuffle
    for index in rounds(clock, deadline, at_least=at_least - 1) if works else ():
        shuffle(order)
        for name in order:
            times[name].append(seconds_per_call(works[name], clock, warm[name][0]))
        if on_round is not None:
            on_round(index + 2)
    return {name: Timing(tuple(entries)) for name, entries in times.items()}


def seconds_per_call(work: Work, clock: Clock, calls: int) -> Seconds:
    """Time ``calls`` calls between two synchronisations and return the seconds that one of them took."""
    clock.synchronize()
    start = clock.now()
    for _ in range(calls):
        work()
    clock.synchronize()
    return (clock.now() - start) / calls


def _warm(work: Work, clock: Clock, warm_up: int) -> tuple[int, Seconds]:
    """Call ``work`` until it is warm; then find how many calls make a repetition long enough, and time a first one."""
    for _ in range(warm_up):
        work()
    calls = 1
    while (seconds := seconds_per_call(work, clock, calls)) * calls < SHORTEST_REPETITION and calls < MOST_CALLS:
        calls *= 2
    return calls, seconds


Batch = TypeVar("Batch")


def measure_steps(
    step: Callable[[Batch], object],
    batches: Sequence[Batch],
    clock: Clock,
    *,
    seconds: Seconds,
    block_steps: int = 10,
    warm_up: int = 3,
    at_least: int = 3,
) -> Timing:
    """Time training steps in blocks, synchronised only at the ends of a block, as a training loop would run them.

    Args:
        step: trains on one batch.
        batches: distinct batches on the device, used in turn for as long as it takes.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the warm-up included.
        block_steps: steps in a block; the timing has one entry a block, in seconds a step.
        warm_up: steps before anything is timed. Where the batches differ in shape, warm up with all of them.
        at_least: blocks that are made however long they take.

    Raises:
        MeasurementError: there is no batch.
    """
    if not batches:
        raise MeasurementError("The training step cannot be timed without a batch.", "Give it at least one.")
    deadline = clock.now() + seconds
    endless = cycle(batches)

    def next_step() -> None:
        step(next(endless))

    for _ in range(warm_up):
        next_step()
    return Timing(
        tuple(seconds_per_call(next_step, clock, block_steps) for _ in rounds(clock, deadline, at_least=at_least))
    )


def measure_transfer(
    example: torch.Tensor, device: torch.device, clock: Clock, *, seconds: Seconds
) -> dict[str, Timing]:
    """Time the copy of one batch to the device, start to end (nothing overlaps it).

    Args:
        example: a batch in ordinary CPU memory.
        device: where it goes.
        clock: the clock of that device.
        seconds: how long all this may take.

    Returns:
        Seconds a copy for ``"pageable"`` and, on CUDA, ``"pinned"`` memory (locked beforehand: what locking costs is
        not in it). Nothing for the CPU, where there is no copy.
    """
    if device.type == "cpu":
        return {}
    works: dict[str, Work] = {"pageable": lambda: example.to(device)}
    if device.type == "cuda":
        pinned = example.pin_memory()
        works["pinned"] = lambda: pinned.to(device, non_blocking=True)
    return interleave(works, clock, seconds=seconds)
