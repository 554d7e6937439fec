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

ENOUGH = 1000  # more repetitions do not improve a median


def rounds(
    clock: Clock, deadline: Seconds, *, first: int = 0, at_least: int = 1, at_most: int = ENOUGH
) -> Iterator[int]:
    """Yield ``first``, ``first + 1``, ... while there is time for one more round as long as the last.

    Args:
        clock: the clock of ``deadline``.
        deadline: time on that clock by which the last round should end, in seconds.
        first: rounds that were made before, which count.
        at_least: fewest rounds, regardless of the deadline; one, once the clock's limit is over.
        at_most: most rounds.
    """
    last: Seconds = 0.0
    for index in range(first, at_most):
        now = clock.now()
        if index >= (at_least if now < clock.limit else min(1, at_least)) and now + last > deadline:
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
    """Time one warm call of ``work`` repeatedly; the clock is synchronized around each repetition.

    A call of less than a millisecond is repeated within each repetition, so the time that a device needs to *finish*
    such calls is measured, not their launch.

    Args:
        work: callable to time; its result is ignored.
        clock: the clock of the device.
        seconds: time budget in seconds, warm-up included.
        at_least: fewest repetitions, regardless of time.
        at_most: most repetitions.
        warm_up: untimed calls at the start.
    """
    deadline = clock.now() + seconds
    calls, first = _warm(work, clock, warm_up)
    more = rounds(clock, deadline, first=1, at_least=at_least, at_most=at_most)
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
    prepare: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Time several works under the same conditions: each once a round, in random order except in the first.

    Drift (clock rates, temperature, other programs) then affects all of them equally. Entry i of every timing is from
    round i, so works can be compared in pairs.

    Args:
        works: callables by name. Each is warmed up before the first round.
        clock: the clock of the device.
        seconds: time budget in seconds, warm-up included.
        at_least: fewest rounds, regardless of time.
        warm_up: untimed calls of each work at the start.
        seed: seed of the order within each round.
        on_round: called after each round except the first, with the number of rounds so far.
        prepare: called with the name of a work before each of its repetitions, untimed.
    """
    deadline = clock.now() + seconds
    warm: dict[str, tuple[int, Seconds]] = {}
    for name, work in works.items():
        prepare(name)
        warm[name] = _warm(work, clock, warm_up)
    times = {name: [first] for name, (_, first) in warm.items()}
    order, shuffle = list(works), random.Random(seed).shuffle
    for index in rounds(clock, deadline, first=1, at_least=at_least) if works else ():
        shuffle(order)
        for name in order:
            prepare(name)
            times[name].append(seconds_per_call(works[name], clock, warm[name][0]))
        if on_round is not None:
            on_round(index + 1)
    return {name: Timing(tuple(entries)) for name, entries in times.items()}


def seconds_per_call(work: Work, clock: Clock, calls: int) -> Seconds:
    """Time ``calls`` calls between two synchronizations and return the seconds per call."""
    clock.synchronize()
    start = clock.now()
    for _ in range(calls):
        work()
    clock.synchronize()
    return (clock.now() - start) / calls


def _warm(work: Work, clock: Clock, warm_up: int) -> tuple[int, Seconds]:
    """Warm up ``work``, find how many calls make a repetition long enough, and time the first repetition."""
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
    """Time training steps in blocks, synchronized only at the ends of a block, as in a training loop.

    Args:
        step: a training step on one batch.
        batches: distinct batches on the device, used in turn.
        clock: the clock of the device.
        seconds: time budget in seconds, warm-up included.
        block_steps: steps of a block; the timing has one entry a block, in seconds a step.
        warm_up: untimed steps at the start; if the batches differ in shape, at least one for each.
        at_least: fewest blocks, regardless of time.

    Raises:
        MeasurementError: there are no batches.
    """
    if not batches:
        raise MeasurementError("Expected at least one batch to time the training step, got none.", "Pass at least one.")
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
    """Time the copy of one batch to the device, without overlap.

    Args:
        example: a batch in pageable CPU memory.
        device: the target of the copy.
        clock: the clock of the device.
        seconds: time budget in seconds.

    Returns: Seconds a copy for ``"pageable"`` and, on CUDA, ``"pinned"`` memory (the cost of pinning is not included).
        Empty for the CPU.
    """
    if device.type == "cpu":
        return {}
    works: dict[str, Work] = {"pageable": lambda: example.to(device)}
    if device.type == "cuda":
        pinned = example.pin_memory()
        works["pinned"] = lambda: pinned.to(device, non_blocking=True)
    return interleave(works, clock, seconds=seconds)
