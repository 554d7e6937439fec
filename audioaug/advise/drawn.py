"""Which examples stand for all of a dataset, however large it is, and how to read them: map-style or from a stream."""

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

from torch.utils.data import IterableDataset

from audioaug.loader.sampling import is_stream

POOL = 4096
"""Examples that loaders are measured with: all of a smaller dataset."""


def drawn(size: int, count: int, seed: int = 0) -> list[int]:
    """Return so many of the indices below ``size``, all if there are fewer, in an order that the seed draws.

    Fewer are the first of more, at most ``POOL``. Nothing is as long as the dataset: of ten million examples it takes
    no longer than of ten thousand.
    """
    return random.Random(seed).sample(range(size), min(size, POOL))[:count]


class Restarting(IterableDataset[Any]):
    """A stream that starts over when it ends, so that measuring sees no end of an epoch.

    Args:
        dataset: the user's stream. If it has ``set_epoch``, that is called with each pass.
        most: examples that one iteration, in each worker, yields; without end by default.
    """

    def __init__(self, dataset: Any, most: int | None = None) -> None:
        self.dataset, self.most = dataset, most

    def __iter__(self) -> Iterator[Any]:
        return islice(self._passes(), self.most)

    def _passes(self) -> Iterator[Any]:
        for epoch in count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)
            is_empty = True
            for example in self.dataset:
                is_empty = False
                yield example
            if is_empty:
                return


class Reader:
    """Reads examples of a dataset by number. A stream gives its next example, whatever the number."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._stream = iter(Restarting(dataset)) if is_stream(dataset) else None

    def numbers(self, count: int) -> Sequence[int]:
        """Return the numbers of up to this many examples that stand for all."""
        return range(count) if self._stream is not None else drawn(len(self._dataset), count)

    def __call__(self, number: int) -> Any:
        """Return an example; raise what reading it raises, and ``StopIteration`` for an empty stream."""
        return self._dataset[number] if self._stream is None else next(self._stream)
