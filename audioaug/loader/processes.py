"""Processes: ranks of distributed training, what they share, and the number of torch threads."""

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
import torch.distributed

from audioaug.errors import AudioaugWarning
from audioaug.internals import process_group_store

Batch = TypeVar("Batch")


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes that train together: (0, 1) for one alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def is_first_rank() -> bool:
    """Return whether this process is the first of those that train together, the one that prints."""
    return rank_and_size()[0] == 0


def leave_for_ranks(name: str, value: bytes) -> None:
    """Leave a value for the other processes that train together, in the store of their process group.

    Nothing waits for another process, and if the store cannot be reached, nothing happens.
    """
    store = process_group_store()
    if store is not None:
        with suppress(RuntimeError):
            store.set(_key(name, rank_and_size()[0]), value.decode())


def values_of_ranks(name: str) -> dict[int, bytes]:
    """Return the values that processes have left so far, by rank; those that have left none are not waited for."""
    store, found = process_group_store(), dict[int, bytes]()
    if store is not None:
        with suppress(RuntimeError):
            for rank in range(rank_and_size()[1]):
                # Unlike get, this does not wait for a missing key: it sets it to an empty value.
                if value := store.compare_set(_key(name, rank), "", ""):
                    found[rank] = value
    return found


def _key(name: str, rank: int) -> str:
    return f"audioaug/{name}/{rank}"


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
