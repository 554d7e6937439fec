"""Threads: how many torch has in this process, for a while."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Give torch so many threads in this process, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_threads(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield the batches; from the first until the iterator ends or is dropped, torch has so many threads."""
    with torch_threads(count):
        yield from batches
