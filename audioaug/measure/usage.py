"""Resource usage: CPU time, memory, shared memory, and the GPU; sampled on request, without a thread."""

import itertools
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
import torch

from audioaug.measure.cgroup import memory_limit
from audioaug.units import Seconds

other_ranks: set[int] = set()
"""Process ids of the other ranks while rank 0 leads them: their usage counts neither as ours nor as foreign."""


@dataclass(frozen=True)
class UsageSample:
    """One sample of the machine's usage. ``None``: not available.

    ``cpu_seconds``: CPU time so far by process id, this process first, then its children. ``ram_bytes``: resident
    memory of all of them (shared memory counts for each). ``ram_percent``: used part of the machine's memory, or of the
    control group's limit. ``shm_bytes`` and ``vram_bytes``: used by all processes of the machine.
    """

    cpu_seconds: dict[int, Seconds]
    ram_bytes: int
    ram_percent: float
    shm_bytes: int | None
    gpu_percent: float | None
    vram_bytes: int | None


def cpu_seconds(children: bool = True) -> Seconds:
    """Return the CPU seconds (user and system) of this process and its live children so far."""
    return sum(_cpu_seconds(own_processes() if children else [psutil.Process()]).values())


class VramPeak:
    """The most memory of a CUDA device that was in use at the same time, in bytes, between two looks.

    That is what torch allocates, and what libraries outside of it (plans of FFTs, kernels) have added since the start.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._outside = self._outside_torch()
        torch.cuda.reset_peak_memory_stats(device)

    def look(self) -> int:
        """Return the peak since the last look, or the start."""
        found = torch.cuda.max_memory_allocated(self._device) + max(0, self._outside_torch() - self._outside)
        torch.cuda.reset_peak_memory_stats(self._device)
        return found

    def _outside_torch(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)


def peak_extra_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Run ``work`` once and return the peak of its own allocations in bytes, result included.

    On the CPU torch's profiler records allocations; those of libraries outside of torch (FFT workspaces) do not count.
    On CUDA see ``VramPeak``.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before, peak = torch.cuda.memory_allocated(device), VramPeak(device)
        work()
        torch.cuda.synchronize(device)
        return peak.look() - before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler warns that its events are cleared
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            result = work()
    del result
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes), default=0)


def sample(device: torch.device) -> UsageSample:
    """Sample the machine's usage once."""
    family, ram = own_processes(), 0
    for process in family:
        with suppress(psutil.Error):
            ram += process.memory_info().rss
    return UsageSample(
        cpu_seconds=_cpu_seconds(family),
        ram_bytes=ram,
        ram_percent=_ram_percent(),
        shm_bytes=_shm_used(),
        gpu_percent=_gpu_percent(device),
        vram_bytes=_vram_used(device),
    )


def _cpu_seconds(processes: list[psutil.Process]) -> dict[int, Seconds]:
    used = {}
    for process in processes:
        with suppress(psutil.Error):  # the process has ended
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
    return used


def _ram_percent() -> float:
    memory, limit = psutil.virtual_memory(), memory_limit()
    total = min(memory.total, limit.limit_bytes) if limit else memory.total
    free = min(memory.available, limit.free_bytes) if limit else memory.available
    return 100.0 * (1.0 - free / total)


def all_cpu_seconds() -> Seconds:
    """Return the CPU seconds so far of this process, the other ranks, and all their children, ended ones included.

    A child's ended children count, too: workers that a fork server has started.
    """
    ended = os.times()
    total = ended.user + ended.system + ended.children_user + ended.children_system
    for process in [*own_processes()[1:], *(each for rank in other_ranks for each in _of_rank(rank))]:
        with suppress(psutil.Error):  # the process has ended
            its = process.cpu_times()
            total += its.user + its.system + getattr(its, "children_user", 0.0) + getattr(its, "children_system", 0.0)
    return total


def _of_rank(rank: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return _with_children(psutil.Process(rank))
    return []


def own_processes() -> list[psutil.Process]:
    """Return this process and its children, without other ranks that it has started."""
    this = psutil.Process()
    if not other_ranks:
        return _with_children(this)
    own = [child for child in this.children() if child.pid not in other_ranks]
    return [this, *(each for child in own for each in _with_children(child))]


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def _shm_used() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").used
    except OSError:
        return None


def _gpu_percent(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    try:
        return float(torch.cuda.utilization(device))
    except Exception:  # needs nvidia-ml-py and driver support
        return None


def _vram_used(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total - free
