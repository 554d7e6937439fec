"""Buffers: shared memory in which a worker sends batches, used again once the training process has dropped a batch.

torch allocates shared memory for every tensor that is sent. The kernel clears and maps it page by page, which takes 25
times as long as copying the samples: most of the time of a worker whose ops are fast. So each worker keeps a few
buffers. The last byte of a buffer says whether it is in use: the worker sets it when it sends the buffer, and the
training process clears it when the last tensor that refers to the buffer is gone.

Reference: ``torch.multiprocessing.reductions``, which sends the buffer itself.
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
"""Buffers that a worker keeps at most. While all are in use, torch sends tensors its own way."""
SPARE = 0.5
"""Share of all shared memory that must be free after a new buffer: other programs cannot use what is kept."""

FREE, IN_USE = 0, 1


class Buffers:
    """The buffers of this process, each a tensor of bytes."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []

    def take(self, size: int) -> torch.Tensor | None:
        """Return a buffer for ``size`` bytes, marked as in use; ``None`` if none is free and no other may be kept."""
        fitting = [each for each in self._kept if _is_free(each) and size < len(each) <= 2 * size]
        taken = min(fitting, key=len) if fitting else self._new(size)
        if taken is not None:
            taken.numpy()[-1] = IN_USE
        return taken

    def _new(self, size: int) -> torch.Tensor | None:
        """Allocate a buffer, in the place of those that are free and too small."""
        self._kept = [each for each in self._kept if len(each) > size or not _is_free(each)]
        if len(self._kept) >= MOST or not _has_room(size):
            return None
        self._kept.append(torch.zeros(size + 1, dtype=torch.uint8).share_memory_())
        return self._kept[-1]


def _is_free(buffer: torch.Tensor) -> bool:
    return bool(buffer.numpy()[-1] == FREE)


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
