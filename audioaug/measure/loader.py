"""How fast a loader is alone, and how much it and training slow each other down."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from time import thread_time

from audioaug.errors import MeasurementError
from audioaug.measure.clock import Clock
from audioaug.measure.repeat import rounds, seconds_per_call
from audioaug.records import Timing
from audioaug.units import Seconds


@dataclass(frozen=True)
class LoaderRate:
    """Seconds to the first batch (once an epoch, or once a run), and seconds a batch in the steady state.

    ``cpu_seconds``: CPU time a batch of the receiving thread, without waiting.
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
    """Time a loader whose batches are taken as fast as it delivers them.

    Args:
        batches: the loader. Pass the loader itself, not ``iter(loader)``, to include the start of its workers in the
            time to the first batch.
        clock: the clock of the device.
        seconds: time budget in seconds, start included.
        discard: untimed batches at the start, the first included: as many as can be prefetched.
        block_batches: batches timed together, since workers deliver in bursts; preferably a multiple of their number.
            The timing has one entry a block, in seconds a batch.
        at_least: fewest timed batches (whole blocks), regardless of time.

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
        while taken < discard and clock.now() < clock.limit:
            take()
        begin = thread_time()
        for _ in rounds(clock, deadline, at_least=-(-at_least // block_batches)):
            times.append(seconds_per_call(take, clock, block_batches))
    except StopIteration:  # the epoch ended: keep the blocks so far
        if not times:
            raise _too_short(taken, discard, block_batches) from None
    return LoaderRate(first, Timing(tuple(times)), (thread_time() - begin) / (len(times) * block_batches))


def _too_short(taken: int, discard: int, block_batches: int) -> MeasurementError:
    needed = max(1, discard) + block_batches
    return MeasurementError(
        f"The loader ended after {taken} batches, but {needed} are needed to time it.",
        "Use more examples, or a loader that restarts.",
    )


@dataclass(frozen=True)
class Contention:
    """Seconds a step beside the loader, and seconds between two of its batches at the same time."""

    step: Timing
    batch: Timing


class Drain:
    """Take batches from a feeder in a thread and drop them; ``arrivals`` are their times.

    An exception of the feeder ends the thread and is raised at the end of the context.
    """

    def __init__(self, feeder: Iterator[object], clock: Clock) -> None:
        self.arrivals: list[Seconds] = []
        self._feeder, self._clock = feeder, clock
        self._stop, self._error = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Drain":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error:
            raise self._error[0]

    @property
    def ended(self) -> bool:
        """Whether the feeder has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for _ in self._feeder:
                self.arrivals.append(self._clock.now())
                if self._stop.is_set():
                    return
        except Exception as error:
            self._error.append(error)


def measure_contention(
    step: Callable[[], object],
    feeder: Iterator[object],
    clock: Clock,
    *,
    seconds: Seconds,
    discard: int,
    block_steps: int = 1,
    block_batches: int = 1,
    at_least: int = 3,
) -> Contention:
    """Time training steps on cached batches while a loader runs at full speed.

    Args:
        step: a training step on a cached batch.
        feeder: a loader's batches, warm and endless.
        clock: the clock of the device.
        seconds: time budget in seconds.
        discard: queued batches, which are taken before anything is timed.
        block_steps: steps timed together.
        block_batches: batches timed together, since workers deliver in bursts; preferably a multiple of their number.
        at_least: fewest blocks of both, regardless of time.
    """
    deadline = clock.now() + seconds
    with Drain(feeder, clock) as drain:
        while len(drain.arrivals) < discard and not drain.ended and clock.now() < clock.limit:
            step()
        first, times = len(drain.arrivals), list[Seconds]()
        for _ in rounds(clock, deadline, at_least=at_least):
            times.append(seconds_per_call(step, clock, block_steps))
        while len(drain.arrivals) - first <= at_least * block_batches and not drain.ended and clock.now() < clock.limit:
            times.append(seconds_per_call(step, clock, block_steps))
        came = drain.arrivals[max(0, first - 1) :: block_batches]
    return Contention(Timing(tuple(times)), Timing(tuple((b - a) / block_batches for a, b in pairwise(came))))
