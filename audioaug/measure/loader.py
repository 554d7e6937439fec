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


@dataclass(frozen=True)
class Contention:
    """Seconds a step beside the loader, and seconds between two of its batches meanwhile."""

    step: Timing
    batch: Timing


class Drain:
    """Takes batches from a feeder in a thread of its own and drops them; ``arrivals`` are the times they came.

    What the feeder raises ends the thread, and is raised where the drain is left.
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
        """Whether nothing more will come."""
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
    """Train on ready batches while a loader works as fast as it can.

    Args:
        step: trains on a batch that is already there.
        feeder: a loader's batches, warm; it must not end before this does.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take.
        discard: batches that lie ready: until they are gone nothing is timed.
        block_steps: steps timed as one.
        block_batches: batches timed as one, since workers deliver in bursts: best a multiple of their number.
        at_least: blocks of both that are made however long they take.
    """
    deadline = clock.now() + seconds
    with Drain(feeder, clock) as drain:
        while len(drain.arrivals) < discard and not drain.ended:
            step()
        first, times = len(drain.arrivals), list[Seconds]()
        for _ in rounds(clock, deadline, at_least=at_least):
            times.append(seconds_per_call(step, clock, block_steps))
        while len(drain.arrivals) - first <= at_least * block_batches and not drain.ended:
            times.append(seconds_per_call(step, clock, block_steps))
        came = drain.arrivals[max(0, first - 1) :: block_batches]
    return Contention(Timing(tuple(times)), Timing(tuple((b - a) / block_batches for a, b in pairwise(came))))
