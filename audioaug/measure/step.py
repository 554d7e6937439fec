"""The ceiling: training steps on batches that are already where the model is, so nothing has to be fed."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

from audioaug.errors import MeasurementError
from audioaug.measure.clock import Clock
from audioaug.measure.repeat import seconds_per_call
from audioaug.measure.rounds import rounds
from audioaug.records import Timing
from audioaug.units import Seconds

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
