"""The machine, what this process may use of it (often far less than ``os.cpu_count()``), and its effective cores."""

import hashlib
import multiprocessing
import os
import platform
import shutil
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil
import torch

from audioaug.measure.cgroup import cpu_quota, memory_limit
from audioaug.measure.clock import Clock
from audioaug.records import HostFacts
from audioaug.units import Seconds

DISTRIBUTIONS = (
    "audioaug",
    "torch",
    "torchaudio",
    "audiomentations",
    "torch-audiomentations",
    "numpy",
    "scipy",
    "soundfile",
)


def host_facts(device: torch.device, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> HostFacts:
    """Collect facts of the machine, without measuring.

    Args:
        device: the training device. A CUDA device is initialized in this process.
        root: parent of ``/proc``, ``/sys`` and ``/dev/shm``.
        environ: environment variables.
    """
    memory, limit = psutil.virtual_memory(), memory_limit(root)
    return HostFacts(
        platform=platform.platform(),
        cpu=_cpu_name(root),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(root, environ),
        ram_bytes=min(memory.total, limit.limit_bytes) if limit else memory.total,
        ram_available_bytes=min(memory.available, limit.free_bytes) if limit else memory.available,
        shm_bytes=_shm_bytes(root),
        open_files=most_open_files(),
        device=str(device),
        device_name=_device_name(device, root),
        vram_bytes=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None,
        start_method=multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
        torch_threads=torch.get_num_threads(),
        local_ranks=local_ranks(environ),
        versions=_versions(device),
    )


def usable_cores(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> float:
    """Return the number of cores that this process may use, as a fraction.

    It is the minimum of CPU affinity, control group quota and SLURM's allocation, divided by the number of training
    processes on this machine (``LOCAL_WORLD_SIZE``).
    """
    limits = [len(allowed_cores()), cpu_quota(root), _positive(environ.get("SLURM_CPUS_PER_TASK"))]
    return min(float(limit) for limit in limits if limit is not None) / local_ranks(environ)


def allowed_cores() -> list[int]:
    """Return the indices of the cores in this process's affinity."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def free_shared_memory(root: Path = Path("/")) -> int | None:
    """Return the free bytes of ``/dev/shm``, through which workers send batches; ``None`` if there is none."""
    try:
        return shutil.disk_usage(root / "dev/shm").free
    except OSError:
        return None


def files_open(root: Path = Path("/")) -> int | None:
    """Return the number of open files of this process; ``None`` if unknown."""
    try:
        return len(os.listdir(root / "proc/self/fd"))
    except OSError:
        return None


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of training processes on this machine (``LOCAL_WORLD_SIZE``); 1 if it is not set."""
    return _positive(environ.get("LOCAL_WORLD_SIZE")) or 1


def _positive(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None


def _cpu_name(root: Path) -> str:
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _shm_bytes(root: Path) -> int | None:
    try:
        return shutil.disk_usage(root / "dev/shm").total
    except OSError:
        return None


def most_open_files() -> int | None:
    """Return how many files this process may have open; ``None`` if unknown or unlimited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _device_name(device: torch.device, root: Path) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "Apple GPU" if device.type == "mps" else _cpu_name(root)


def _versions(device: torch.device) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if device.type == "cuda":
        versions |= {"cuda": str(torch.version.cuda), "nvidia driver": _driver_version()}
    return versions


def _driver_version() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # not installed, no library, no permission: only the version is missing
        return "unknown"


BLOCK = bytes(2**20)
"""Hashing this takes less than a millisecond and releases the GIL."""


def effective_cores(cores: int, clock: Clock, *, seconds: Seconds = 0.6) -> float:
    """Return the throughput of ``cores`` threads relative to one thread; at least 1.

    Args:
        cores: number of usable cores.
        clock: the clock.
        seconds: duration in all; one thread and all threads are timed in turn, three times.
    """
    if cores < 2:
        return 1.0
    turns = [(_rate(1, clock, seconds / 6), _rate(cores, clock, seconds / 6)) for _ in range(3)]
    return max(1.0, sum(together for _, together in turns) / sum(alone for alone, _ in turns))


def _rate(threads: int, clock: Clock, seconds: Seconds) -> float:
    """Return the blocks hashed per second by this many threads."""
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
