"""Keys: what a sampler gives, with the epoch: workers that live through many epochs always know which it is."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

Key: TypeAlias = tuple[int, int]
"""(epoch, index)."""


class Keys:
    """Turns a batch sampler's lists of indices into lists of keys.

    The sampler is iterated over once an epoch, also where several iterations share it, each with ``most`` batches.
    """

    def __init__(self, batches: Iterable[Sequence[int]]) -> None:
        self.batches, self.epoch = batches, 0
        self.most: int | None = None
        self._order: Iterator[Sequence[int]] = iter(())

    def start(self, epoch: int, behind: int) -> int:
        """Say which epoch the next iteration is, and how many of its batches are behind us.

        Return how many batches will come in spite of that: none.
        """
        self.epoch, self.most = epoch, None
        parts: list[Any] = [self.batches, getattr(self.batches, "sampler", None)]
        for part in parts:
            if hasattr(part, "set_epoch"):  # DistributedSampler and the like
                part.set_epoch(epoch)
        self._order = islice(self.batches, behind, None)
        return 0

    def __iter__(self) -> Iterator[list[Key]]:
        epoch = self.epoch
        return ([(epoch, int(index)) for index in indices] for indices in islice(self._order, self.most))

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]
