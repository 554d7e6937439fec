"""Processes: ranks of distributed training, their share of a machine's workers, and the number of torch threads."""

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed

from audioaug.errors import AudioaugWarning

Batch = TypeVar("Batch")


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes that train together: (0, 1) for one alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def share_of(workers: int) -> int:
    """Return how many of a machine's workers each of its training processes gets: at least one, if there are any."""
    return max(1, workers // local_size()) if workers else 0


def local_size() -> int:
    """Return the number of training processes on this machine.

    torchrun sets it in ``LOCAL_WORLD_SIZE``. Other launchers, such as Lightning's own, do not; but if the processes
    meet at a loopback address, all of them run here.
    """
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    if size.isdecimal() and int(size):
        return int(size)
    return rank_and_size()[1] if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost") else 1


def warn_of_identical_shares(stacklevel: int) -> None:
    """Warn that every process would read all examples, if several train together."""
    processes = rank_and_size()[1]
    if processes > 1:
        warnings.warn(
            f"{processes} processes train together, and without a sampler each of them reads every example, augmented "
            "in the same way. Give Loader sampler=DistributedSampler(dataset).",
            AudioaugWarning,
            stacklevel=stacklevel + 1,
        )


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads in this process; restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_threads(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield the batches with ``count`` torch threads, from the first until the iterator ends or is dropped."""
    with torch_threads(count):
        yield from batches
