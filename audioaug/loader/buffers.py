"""Buffers: shared memory in which a worker sends batches, used again once the training process has dropped a batch.

torch allocates shared memory for every tensor that is sent. The kernel clears and maps it page by page, which is 25x
slower than copying the samples, and most of the time of a worker whose ops are fast. So each worker keeps a few
buffers. The last byte of a buffer is its state. The worker sets it to ``IN_USE`` when it sends the buffer, and the
training process to ``FREE`` when the last tensor that refers to the buffer is gone; or to ``LOST`` if it was forked
meanwhile, since its child may still read the buffer.

Reference: ``torch.multiprocessing.reductions``, which sends the buffer itself.
"""

import os
import shutil
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing import get_sharing_strategy
from torch.utils.data import get_worker_info

from audioaug.loader.failures_of_resources import SHARED_MEMORY, shared_memory_error

MIN_BYTES = 2**18
"""Smallest tensor that is sent in a buffer."""
MAX_BUFFERS = 16
"""Of a worker. While all are in use, torch sends tensors its own way."""
MAX_EXCESS = 4
"""Largest ratio of a buffer's size to that of a tensor that it is used for."""
MIN_FREE_SHARE = 0.5
"""Share of all shared memory that must be free after a new buffer: other programs cannot use what is kept."""

FREE, IN_USE, LOST = 0, 1, 2


class Buffers:
    """The buffers of this process, each a tensor of bytes."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, size: int) -> torch.Tensor | None:
        """Return a buffer for ``size`` bytes, in use from now on; ``None`` if none is free and no other may be kept."""
        fitting = [each for each in self._with_state(FREE) if size < len(each) <= MAX_EXCESS * size]
        taken = min(fitting, key=len) if fitting else self._new(size)
        if taken is not None:
            set_state(taken, IN_USE)
        return taken

    def _new(self, size: int) -> torch.Tensor | None:
        """Allocate a buffer, if there is room for it, in the place of all that are free or lost."""
        self._kept = self._with_state(IN_USE)
        if len(self) >= MAX_BUFFERS or not _has_room(size):
            return None
        try:
            buffer = torch.zeros(size + 1, dtype=torch.uint8).share_memory_()
        except (OSError, RuntimeError) as error:
            shared_memory_error(error)  # removes the file that torch has left
            return None
        self._kept.append(buffer)
        return buffer

    def _with_state(self, state: int) -> list[torch.Tensor]:
        return [each for each in self._kept if each.numpy()[-1] == state]


def _has_room(size: int) -> bool:
    usage = shutil.disk_usage(SHARED_MEMORY)
    return usage.free - size >= MIN_FREE_SHARE * usage.total


def set_state(buffer: torch.Tensor, state: int) -> None:
    """Write the state of a buffer."""
    buffer.numpy()[-1] = state


_buffers = Buffers()


def reduce_to_buffer(value: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]] | None:
    """Copy a tensor to a buffer. Return how it is pickled, the buffer first; ``None`` if torch itself is to send it.

    Only workers of a DataLoader have buffers. They send contiguous tensors in them, of at least ``MIN_BYTES``, that are
    not in shared memory already. Two tensors that share memory no longer do so afterwards.
    """
    if value.device.type != "cpu" or value.nbytes < MIN_BYTES or value.is_shared() or not value.is_contiguous():
        return None
    if get_worker_info() is None or get_sharing_strategy() != "file_descriptor" or not SHARED_MEMORY.exists():
        return None
    samples = value.numpy()
    buffer = _buffers.take(value.nbytes)
    if buffer is None:
        return None
    _view(buffer.numpy(), samples.dtype, samples.shape)[...] = samples
    return rebuild_from_buffer, (buffer, samples.dtype, samples.shape)


def rebuild_from_buffer(buffer: torch.Tensor, dtype: np.dtype[Any], shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor in a buffer, which is used again when no tensor or array refers to it any more.

    numpy arrays of it are not valid any more after ``share_memory_()``, or after it was sent to another process: torch
    moves it then, as any tensor that is not in shared memory of torch's own.
    """
    forks, memory = _forks, buffer.numpy()
    samples = _view(memory, dtype, shape)
    weakref.finalize(samples, _give_back, memory, os.getpid(), forks).atexit = False
    return torch.from_numpy(samples)


def _view(memory: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.ndarray(shape, dtype, memory)


def _give_back(memory: NDArray[np.uint8], process: int, forks: int) -> None:
    if os.getpid() == process:  # in a fork of it, the buffer is not ours to give back
        memory[-1] = FREE if forks == _forks else LOST


_forks = 0
"""Changes before and after each fork of this process."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)
