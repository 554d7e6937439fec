"""Buffers: shared memory in which a worker sends batch after batch, each once the one before has been dropped.

torch allocates shared memory for every tensor that is sent. The kernel clears it and maps it page by page, which takes
25 times as long as to copy the samples, and most of the time of a worker whose ops are fast. So a worker keeps a few
buffers. Whether one is in use is noted in the buffer itself: by the worker when it sends it, and by the training
process when the last tensor that refers to it is gone.

Reference: the other way is that of ``torch.multiprocessing.reductions``, on which the first way is built.
"""

import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing import get_sharing_strategy
from torch.utils.data import get_worker_info

SHARED_MEMORY = Path("/dev/shm")
"""Where torch's workers allocate batches, on Linux, as ``torch_PID_...``."""

SMALLEST = 2**20
"""Bytes from which a tensor is sent in a buffer."""
MOST = 8
"""Buffers of a worker. torch itself sends what finds none that is free."""
SPARE = 0.5
"""Share of the whole shared memory that a new buffer leaves free: what is kept may be missing elsewhere."""

FREE, IN_USE = 0, 1


class Buffers:
    """The buffers of this process: bytes, the last of which says whether the others are in use."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []

    def take(self, size: int) -> torch.Tensor | None:
        """Return a buffer for so many bytes, which is in use now; ``None`` if there is none, nor room for one."""
        free = sorted((each for each in self._kept if each.numpy()[-1] == FREE), key=len)
        fitting = [each for each in free if size < len(each) <= 2 * size]
        taken = fitting[0] if fitting else self._new(size, [each for each in free if len(each) <= size])
        if taken is not None:
            taken.numpy()[-1] = IN_USE
        return taken

    def _new(self, size: int, too_small: list[torch.Tensor]) -> torch.Tensor | None:
        """Allocate a buffer, in the place of those that are free and too small."""
        self._kept = [each for each in self._kept if not any(each is small for small in too_small)]
        too_small.clear()
        if len(self._kept) >= MOST or not _has_room(size):
            return None
        self._kept.append(torch.zeros(size + 1, dtype=torch.uint8).share_memory_())
        return self._kept[-1]


def _has_room(size: int) -> bool:
    usage = shutil.disk_usage(SHARED_MEMORY)
    return usage.free - size >= SPARE * usage.total


_buffers = Buffers()


def sent(value: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]] | None:
    """Copy a tensor to a buffer. Return how it is unpickled; ``None`` if torch itself is to send it.

    Only workers of a DataLoader have buffers. They send contiguous tensors in them, of at least ``SMALLEST`` bytes,
    that are not in shared memory already.
    """
    if value.device.type != "cpu" or value.nbytes < SMALLEST or value.is_shared() or not value.is_contiguous():
        return None
    if get_worker_info() is None or get_sharing_strategy() != "file_descriptor" or not SHARED_MEMORY.exists():
        return None
    samples = value.numpy()
    buffer = _buffers.take(value.nbytes)
    if buffer is None:
        return None
    _inside(buffer.numpy(), samples.dtype, samples.shape)[...] = samples
    return received, (buffer, samples.dtype, samples.shape)


def received(buffer: torch.Tensor, dtype: np.dtype[Any], shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor in a buffer, which is free again when no tensor refers to it any more."""
    memory = buffer.numpy()
    samples = _inside(memory, dtype, shape)
    weakref.finalize(samples, _give_back, memory, os.getpid()).atexit = False
    return torch.from_numpy(samples)


def _inside(memory: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.ndarray(shape, dtype, memory)


def _give_back(memory: NDArray[np.uint8], process: int) -> None:
    if os.getpid() == process:  # not a fork of it, which has copies of all tensors
        memory[-1] = FREE
