"""How fast a loader is alone, with nobody training: the time to its first batch, and its pace from then on."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import thread_time

from audioaug.errors import MeasurementError
from audioaug.measure.clock import Clock
from audioaug.measure.repeat import seconds_per_call
from audioaug.measure.rounds import rounds
from audioaug.records import Timing
from audioaug.units import Seconds


@dataclass(frozen=True)
class LoaderRate:
    """Seconds until the first batch (once an epoch, or once a run), and seconds a batch in the steady state.

    ``cpu_seconds``: a batch, of the thread that takes them: all that is done there, without what is waited for.
    """

    first_batch_seconds: Seconds
    per_batch: Timing
    cpu_seconds: Seconds


def measure_loader(
    batches: Iterable[object],
    clock: Clock,
    *,
    seconds: Seconds,
    discard: int,
    block_batches: int = 4,
    at_least: int = 8,
) -> LoaderRate:
    """Take batches from a loader as fast as it gives them.

    Args:
        batches: the loader. Its workers start when its iterator is made: give the loader itself, not
            ``iter(loader)``, and their start counts towards the first batch.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the start included.
        discard: batches, the first included, that are taken before anything is timed: as many as can be prefetched.
        block_batches: batches timed as one, since workers deliver in bursts: best a multiple of their number. The
            timing has one entry a block, in seconds a batch.
        at_least: batches that are timed however long they take (whole blocks).

    Raises:
        MeasurementError: the loader ended before one block was timed.
    """
    deadline = clock.now() + seconds
    start = clock.now()
    feeder = iter(batches)
    times: list[Seconds] = []
    taken = 0

    def take() -> None:
        nonlocal taken
        next(feeder)
        taken += 1

    try:
        take()
        clock.synchronize()
        first = clock.now() - start
        for _ in range(discard - 1):
            take()
        begin = thread_time()
        for _ in rounds(clock, deadline, at_least=-(-at_least // block_batches)):
            times.append(seconds_per_call(take, clock, block_batches))
    except StopIteration:  # an epoch is over: the blocks so far are good
        if not times:
            raise _too_short(taken, discard, block_batches) from None
    return LoaderRate(first, Timing(tuple(times)), (thread_time() - begin) / (len(times) * block_batches))


def _too_short(taken: int, discard: int, block_batches: int) -> MeasurementError:
    needed = max(1, discard) + block_batches
    return MeasurementError(
        f"The loader ended after {taken} batches, but {needed} are needed to time it.",
        "Give it more examples, or let it start over without end.",
    )
