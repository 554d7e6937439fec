"""How much training and a loader slow each other down: steps on ready batches, while the loader's own are dropped."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from audioaug.measure.clock import Clock
from audioaug.measure.repeat import seconds_per_call
from audioaug.measure.rounds import rounds
from audioaug.records import Timing
from audioaug.units import Seconds


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
