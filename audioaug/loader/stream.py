"""Streams: iterable datasets, which tell their examples one after the other and cannot be asked for one by number."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from audioaug.errors import AudioaugError, DataError, first_line
from audioaug.loader.examples import without_torchcodec
from audioaug.loader.fetch import Fetched, Fetcher
from audioaug.loader.processes import rank_and_size
from audioaug.loader.skipped import is_unreadable


def is_stream(dataset: Any) -> bool:
    """Return whether a dataset can only be iterated over."""
    iterable = isinstance(dataset, IterableDataset)  # torch's has a __getitem__, which only raises
    return iterable or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__"))


class Stream(IterableDataset["Fetched | AudioaugError"]):
    """An iterable dataset as the DataLoader sees it: each worker reads, augments and batches its own part of it.

    As always with torch, it is the dataset that sees to it that every worker (``get_worker_info``) and every process of
    distributed training reads another part. An example's number, which its draws follow, is

        ``shard + shards * n``

    for the n-th example, from 0, that a worker reads; of R processes with W workers each (at least one), worker w of
    process r is shard r * W + w of R * W. If the dataset deals examples out in turn, as in ``islice(examples, shard,
    None, shards)``, this is the example's position in the whole stream, and its audio does not depend on the number
    of workers or processes. If it deals out whole files, the numbers still are unique in an epoch, but which example
    has which depends on the number of workers and processes, as the parts do.

    Args:
        fetcher: of the dataset, which may have ``set_epoch``: it is called in each worker.
        batch_size: of each worker's own batches.
        drop_last: of each worker's own batches.
        lives_on: whether the workers live through several epochs, so that they must be told.
    """

    def __init__(self, fetcher: Fetcher, batch_size: int, drop_last: bool, lives_on: bool) -> None:
        self.dataset, self.fetcher = fetcher.dataset, fetcher
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.processes = 0, 1
        self.most: int | None = None  # as ``Keys`` has it; here it is always all
        self._epoch: Any = torch.zeros(1, dtype=torch.int64).share_memory_() if lives_on else [0]

    def start(self, epoch: int, behind: int) -> int:
        """Say which epoch the next iteration is, and how many of its batches are behind us.

        Return how many batches will come in spite of that: a stream must be read again to get there, so all of them.
        """
        self._epoch[0] = epoch
        self.rank, self.processes = rank_and_size()
        return behind

    def __iter__(self) -> Iterator["Fetched | AudioaugError"]:
        epoch = int(self._epoch[0])
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        numbers, examples = self._numbers(), iter(self.dataset)
        while True:
            try:
                batch = dict(zip(islice(numbers, self.batch_size), examples))  # ``numbers`` first: it has no end
            except Exception as error:
                error = without_torchcodec(error) or error
                if self.fetcher.on_error != "raise" and is_unreadable(error):
                    yield _broken(error)
                elif isinstance(error, AudioaugError):
                    yield error
                else:
                    raise
                return
            if len(batch) < (self.batch_size if self.drop_last else 1):
                return
            self.fetcher.dataset = batch
            yield self.fetcher.__getitems__([(epoch, number) for number in batch])

    def _numbers(self) -> Iterator[int]:
        worker = get_worker_info()
        place, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return count(self.rank * workers + place, self.processes * workers)

    def __len__(self) -> int:
        examples = len(self.dataset)
        return examples // self.batch_size if self.drop_last else -(-examples // self.batch_size)


def _broken(error: Exception) -> DataError:
    raised = f"{type(error).__name__}: {first_line(error)}"
    return DataError(
        f"The dataset is a stream, which cannot be read on after an error ({raised}).",
        "Leave broken examples out in the dataset, or give on_error='raise' to see where it comes from.",
    )
