"""How fast each level of this machine's memory is: bytes a second that are read there."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from audioaug.advise.target import Target
from audioaug.loader.examples import get_wave
from audioaug.measure import clock_for, interleave, repeat
from experiments.knobs.records import Level

IN_CACHE, IN_RAM = 2**17, 2**28
"""Bytes: of two arrays that fit into a core's second-level cache, and of one that fits into no cache."""

BLOCK = 2**23
SECONDS = 0.5


def levels(device: torch.device, file_bytes: int) -> tuple[Level, ...]:
    """Measure every level that is there."""
    disk, cached = _file_speeds(file_bytes)
    return (
        Level("CPU cache", "1 TB/s", _cache_speed(), "a dot product of two arrays of 128 KiB, one core"),
        Level("VRAM", "1000 GB/s", _vram_speed(device), "a copy of 256 MiB, read and written"),
        Level("RAM", "50 GB/s", _ram_speed(), "a copy of 256 MiB, read and written, all cores"),
        Level("to the GPU", "", _copy_speed(device), "a copy of 256 MiB from page-locked memory"),
        Level("file in RAM", "", cached, "a file read for the second time (page cache)"),
        Level("disk", "3 GB/s (SSD)", disk, "the file after the page cache was told to drop it"),
        Level("HDD", "100 MB/s", None, "not looked for: what the temporary folder lies on is the disk above"),
    )


def reads(target: Target, batch_on_device: Any, seconds: float) -> dict[str, float]:
    """Return the milliseconds that it takes to have a batch of audio, by where it is kept."""
    indices = range(target.batch_size)
    in_ram = get_wave(batch_on_device).cpu()
    works: dict[str, Callable[[], object]] = {
        "decoded from files": lambda: torch.stack([torch.as_tensor(target.dataset[index][0]) for index in indices]),
        "in RAM": lambda: torch.stack([in_ram[index] for index in indices]).to(target.device),
    }
    if target.device.type != "cpu":
        on_device = get_wave(batch_on_device)
        order = torch.arange(target.batch_size, device=target.device)
        works["on the device"] = lambda: on_device[order]
    times = interleave(works, clock_for(target.device), seconds=seconds)
    return {name: timing.ms for name, timing in times.items()}


def _speed(moved: int, work: Callable[[], object], device: torch.device) -> float:
    return moved / repeat(work, clock_for(device), seconds=SECONDS, at_most=50).median


def _cache_speed() -> float:
    one, other = np.ones(IN_CACHE // 4, np.float32), np.ones(IN_CACHE // 4, np.float32)
    with threadpool_limits(1):
        return _speed(2 * IN_CACHE, lambda: np.dot(one, other), torch.device("cpu"))


def _ram_speed() -> float:
    return _copy_within(torch.device("cpu"))


def _vram_speed(device: torch.device) -> float | None:
    return None if device.type == "cpu" else _copy_within(device)


def _copy_within(device: torch.device) -> float:
    source = torch.ones(IN_RAM // 4, device=device)
    target = torch.empty_like(source)
    return _speed(2 * IN_RAM, lambda: target.copy_(source), device)


def _copy_speed(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    pinned = torch.ones(IN_RAM // 4).pin_memory()
    return _speed(IN_RAM, lambda: pinned.to(device, non_blocking=True), device)


def _file_speeds(size: int) -> tuple[float | None, float]:
    """Return how fast a file is read from its disk (``None`` where the page cache cannot be avoided), and again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "block")
        with path.open("wb") as file:
            for _ in range(size // BLOCK):
                file.write(os.urandom(BLOCK))
            file.flush()
            os.fsync(file.fileno())
        if not hasattr(os, "posix_fadvise"):
            return None, _read(path)
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        first = _read(path)
        again = _read(path)
        return (first if first < 0.7 * again else None), again


def _read(path: Path) -> float:
    buffer = bytearray(BLOCK)
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return path.stat().st_size / (time.perf_counter() - begin)
