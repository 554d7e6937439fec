"""How much the usable cores do together: hyper-threads, stolen time and neighbours make it less than it seems."""

import hashlib
import threading

from audioaug.measure.clock import Clock
from audioaug.units import Seconds

BLOCK = bytes(2**20)
"""Hashing this takes under a millisecond, during which Python lets other threads run."""


def effective_cores(cores: int, clock: Clock, *, seconds: Seconds = 0.6) -> float:
    """Return how many times as much work so many threads do as one, for a moment; at least 1.

    Args:
        cores: threads to try, as many as there are usable cores.
        clock: says what time it is.
        seconds: how long all this may take. One thread and all of them take turns, three times.
    """
    if cores < 2:
        return 1.0
    turns = [(_rate(1, clock, seconds / 6), _rate(cores, clock, seconds / 6)) for _ in range(3)]
    return max(1.0, sum(together for _, together in turns) / sum(alone for alone, _ in turns))


def _rate(threads: int, clock: Clock, seconds: Seconds) -> float:
    """Return how many blocks a second so many threads hash together."""
    start = clock.now()
    done = [0] * threads

    def work(place: int) -> None:
        while clock.now() - start < seconds:
            hashlib.sha256(BLOCK).digest()
            done[place] += 1

    running = [threading.Thread(target=work, args=(place,)) for place in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(done) / (clock.now() - start)
