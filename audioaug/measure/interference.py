"""What takes time from a measurement: other programs, the hypervisor, a quota, swapping, page faults, garbage collection."""

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from audioaug.measure.cgroup import throttled_seconds
from audioaug.measure.clock import Clock
from audioaug.measure.host import allowed_cores
from audioaug.measure.repeat import rounds
from audioaug.measure.usage import cpu_seconds
from audioaug.units import Seconds


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


try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class PageFaults:
    """Fresh pages that a call asks for, and the share of this process's CPU time that the kernel takes meanwhile."""

    per_call: float
    kernel_share: float


def page_faults(work: Callable[[], object], clock: Clock, seconds: Seconds) -> PageFaults | None:
    """Call ``work``, which is warm, for so many seconds, once at least; ``None`` where the system does not count.

    All threads of this process are counted, as are those of others that run in it meanwhile.
    """
    if resource is None:
        return None
    before, calls = resource.getrusage(resource.RUSAGE_SELF), 0
    for _ in rounds(clock, clock.now() + seconds):
        work()
        calls += 1
    after = resource.getrusage(resource.RUSAGE_SELF)
    kernel, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    return PageFaults((after.ru_minflt - before.ru_minflt) / calls, kernel / max(1e-9, kernel + user))


class GcPauses:
    """While it is entered, ``seconds`` adds up what garbage collections of this process take."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: Seconds = 0.0
        self.seconds: Seconds = 0.0

    def __enter__(self) -> "GcPauses":
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        now = self._clock.now()
        if phase == "start":
            self._since = now
        else:
            self.seconds += now - self._since
