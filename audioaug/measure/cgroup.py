"""Limits of control groups (version 1, 2, or both): CPU quota and memory.

A limit of any group between the process's own and the root applies, so all of their folders are read. Missing or empty
files are normal: inside a container the process's own path often exists only outside of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MemoryLimit:
    """The memory limit of this process's control groups, and the free bytes below it."""

    limit_bytes: int
    free_bytes: int


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota in cores, as a fraction; ``None`` without a limit."""
    return min(filter(None, map(_quota, _folders(root, "cpu"))), default=None)


def throttled_seconds(root: Path = Path("/")) -> float:
    """Return the seconds for which a CPU quota has throttled these control groups so far; 0 without a quota."""
    return max(map(_throttled, _folders(root, "cpu")), default=0.0)


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the tightest memory limit and the least free memory under any limit; ``None`` without a limit.

    Inactive file pages count as free: the kernel reclaims them first.
    """
    limits = [limit for folder in _folders(root, "memory") if (limit := _memory(folder)) is not None]
    if not limits:
        return None
    return MemoryLimit(min(limit.limit_bytes for limit in limits), min(limit.free_bytes for limit in limits))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, each followed by its parents."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if not controllers:  # version 2, alone or beside version 1
            tops = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            tops = [mount / controller, mount / controllers]
        else:
            continue
        for top in tops:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    words = words or [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
    if len(words) == 2 and all(word.isdecimal() for word in words):  # neither "max" nor "-1" nor nothing
        return int(words[0]) / max(1, int(words[1]))
    return None


def _throttled(folder: Path) -> float:
    statistics = dict(line.split(" ", 1) for line in _read(folder / "cpu.stat").splitlines() if " " in line)
    return int(statistics.get("throttled_usec", 0)) / 1e6 + int(statistics.get("throttled_time", 0)) / 1e9


def _memory(folder: Path) -> MemoryLimit | None:
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    if not limit.isdecimal():
        return None
    used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")
    statistics = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    droppable = statistics.get("total_inactive_file") or statistics.get("inactive_file") or "0"
    in_use = max(0, int(used or 0) - int(droppable))
    return MemoryLimit(int(limit), max(0, int(limit) - in_use))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
