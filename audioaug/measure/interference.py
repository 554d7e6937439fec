"""Interference with measurements: other programs, hypervisor, quota, swapping, page faults, garbage collection."""

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
from audioaug.measure.usage import all_cpu_seconds, own_processes
from audioaug.units import Seconds


@dataclass(frozen=True)
class Interference:
    """Cores, on average, that other programs used, that the hypervisor took (steal), and that we were waiting for.

    ``cores``: number of watched cores; ``throttled``: share of time throttled by a quota; ``swapped_in``: bytes per
    second read back from swap (Linux; 0 elsewhere).
    """

    cores: int
    foreign_cores: float
    stolen_cores: float
    wanted_cores: float
    throttled: float
    swapped_in: float

    @property
    def foreign_share(self) -> float:
        """The share of the watched cores that other programs used and the hypervisor took."""
        return min(1.0, (self.foreign_cores + self.stolen_cores) / max(1, self.cores))


class Watch:
    """Compare system counters between construction and ``interference``, without a thread.

    Covers the cores in this process's affinity. The CPU time of its own processes and of the other ranks, ended ones
    included, is subtracted.
    The kernel counts in hundredths of a second, so use it for a second or more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._look()

    def interference(self) -> Interference:
        """Return the interference since the start."""
        return self._since_began(self._look())

    def lap(self) -> Interference:
        """Return the interference since the start, and restart."""
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
        return (
            self._clock.now(),
            busy,
            stolen,
            all_cpu_seconds(),
            _all_delayed_seconds(),
            throttled_seconds(),
            _swapped_in(),
        )


def delayed_seconds(root: Path = Path("/")) -> float:
    """Return how long this thread was runnable without a core, in seconds; 0 if unknown (not Linux).

    Subtracted from a measured time, it gives the time with free cores.
    """
    with suppress(OSError, ValueError, IndexError):
        return int((root / "proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _all_delayed_seconds() -> float:
    """Return how long the threads of this process and its children were runnable without a core (Linux)."""
    total = 0.0
    for process in own_processes():
        for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError, IndexError):  # the process has ended
                total += int(file.read_text().split()[1]) / 1e9
    return total


def _swapped_in(root: Path = Path("/")) -> float:
    """Return the bytes read back from swap so far (Linux)."""
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
    """Minor page faults per call, and the kernel's share of this process's CPU time during the calls."""

    per_call: float
    kernel_share: float


def page_faults(work: Callable[[], object], clock: Clock, seconds: Seconds) -> PageFaults | None:
    """Call ``work`` (already warm) for ``seconds``, at least once; return ``None`` where page faults are not counted.

    All threads of this process are counted.
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
    """Accumulate the seconds of Python's garbage collections while the context is active."""

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
