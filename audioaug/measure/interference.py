"""What others took meanwhile: of our cores other programs, the machine below this one, a quota; memory, swapping."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from audioaug.measure.cgroup import throttled_seconds
from audioaug.measure.clock import Clock
from audioaug.measure.host import allowed_cores
from audioaug.measure.usage import cpu_seconds


@dataclass(frozen=True)
class Interference:
    """What was used and wanted, in cores on average: by other programs, by the hypervisor, by us without getting it.

    ``cores`` is how many were watched, ``throttled`` the share of the time in which a quota stopped us, ``swapped_in``
    the bytes a second that the machine read back from its swap space (Linux; 0 elsewhere).
    """

    cores: int
    foreign_cores: float
    stolen_cores: float
    wanted_cores: float
    throttled: float
    swapped_in: float


class Watch:
    """Begins to watch when it is made; ``interference`` says what happened since. Looks only then, by no thread of its own.

    It sees the cores that this process may run on. What its own processes used, also those that have ended, is taken
    off; what the kernel counts in hundredths of a second is good for a second and more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._look()

    def interference(self) -> Interference:
        """Return what others took since the watch began."""
        return self._since_began(self._look())

    def lap(self) -> Interference:
        """Return the same, and begin anew."""
        seen = self._look()
        found, self._began = self._since_began(seen), seen
        return found

    def _since_began(self, seen: tuple[float, ...]) -> Interference:
        changes = (after - before for before, after in zip(self._began, seen, strict=True))
        now, busy, stolen, ours, delay, throttled, swapped = changes
        seconds = max(now, 1e-9)
        return Interference(
            len(allowed_cores()),
            max(0.0, busy - ours) / seconds,
            stolen / seconds,
            max(0.0, delay) / seconds,
            min(1.0, throttled / seconds),
            swapped / seconds,
        )

    def _look(self) -> tuple[float, ...]:
        cores = psutil.cpu_times(percpu=True)
        ours = [cores[number] for number in allowed_cores() if number < len(cores)]
        busy = sum(it.user + it.system + getattr(it, "nice", 0.0) + getattr(it, "softirq", 0.0) for it in ours)
        stolen = sum(getattr(it, "steal", 0.0) for it in ours)
        ended = os.times()
        used = cpu_seconds() + ended.children_user + ended.children_system
        return self._clock.now(), busy, stolen, used, _all_delayed_seconds(), throttled_seconds(), _swapped_in()


def delayed_seconds(root: Path = Path("/")) -> float:
    """Return how long this thread has been ready to run and had no core; 0 where the kernel does not tell (not Linux).

    What remains of a time without it is what the same work takes where cores are free.
    """
    with suppress(OSError, ValueError, IndexError):
        return int((root / "proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _all_delayed_seconds() -> float:
    """Return how long the threads of this process and of its children were ready to run and had no core (Linux)."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError, IndexError):  # it ended just now
                total += int(file.read_text().split()[1]) / 1e9
    return total


def _swapped_in(root: Path = Path("/")) -> float:
    """Return how many bytes the machine has read back from its swap space so far (Linux)."""
    with suppress(OSError, ValueError, KeyError):
        counts = dict(line.split() for line in (root / "proc/vmstat").read_text().splitlines())
        return int(counts["pswpin"]) * os.sysconf("SC_PAGE_SIZE")
    return 0.0
