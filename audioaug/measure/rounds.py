"""When to measure once more and when to stop: the one rule that all measurements in this room follow."""

from collections.abc import Iterator

from audioaug.measure.clock import Clock
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
