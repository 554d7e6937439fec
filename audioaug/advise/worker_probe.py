"""What workers cost beside their work: starting, the first batch of an epoch, sending, and memory that grows."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import psutil
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from audioaug.advise.arms import open_loader, stock_of
from audioaug.advise.drawn import drawn
from audioaug.advise.target import Target
from audioaug.measure import Clock, measure_loader
from audioaug.records import Cell

LOOKS = (0.75, 1, 1.25, 1.5, 1.75, 2, 3, 4, 6, 8, 12, 16)
"""Memory is looked at after so many times the batches that a loader holds ready."""

STEADY = 2.0
"""Growths in the first half and the second that differ by no more than this are growth; warming up slows down."""


class Ready:
    """A dataset of one finished message, to be sent again and again."""

    def __init__(self, message: Any) -> None:
        self.message = message

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> Any:
        return tree_map(lambda leaf: leaf.clone() if hasattr(leaf, "clone") else leaf, self.message)


def receive_ms(batch: Any, workers: int, clock: Clock, seconds: float) -> float:
    """Return how long a batch takes from so many workers to this process when there is nothing else to do."""
    loader: DataLoader[Any] = DataLoader(
        Ready(batch),  # type: ignore[arg-type]
        batch_size=None,
        shuffle=False,
        num_workers=workers,
    )
    found = measure_loader(loader, clock, seconds=seconds, discard=2 * workers + 2, block_batches=max(2, workers))
    return found.per_batch.ms


def start_and_gap(target: Target, cell: Cell, clock: Clock) -> tuple[float, float]:
    """Return the seconds to the first batch of a run, and to the first of another epoch with the same workers."""
    indices = drawn(len(target.dataset), target.batch_size)
    loader = open_loader(target, cell, [indices for _ in range(cell.num_workers)])
    first = []
    for number in range(2):
        begin = clock.now()
        messages = loader.messages(number)
        next(messages)
        first.append(clock.now() - begin)
        for _ in messages:
            pass
    return first[0], first[1]


class Memory:
    """Looks at what workers keep in memory for themselves while batches of a loader pass by.

    ``worker_bytes`` is the most that one of them had, ``growth_bytes`` what all of them grow by with a batch, 0 unless
    that is steady; ``None`` before it is known.
    """

    def __init__(self, cell: Cell) -> None:
        self._looks = {round(stock_of(cell) * times) for times in LOOKS}
        self._seen: list[tuple[int, int]] = []
        self.worker_bytes: int | None = None

    def over(self, messages: Iterator[Any]) -> Iterator[Any]:
        """Pass messages on and look now and then."""
        for number, message in enumerate(messages):
            if number in self._looks:
                self._look(number)
            yield message

    @property
    def growth_bytes(self) -> float | None:
        """Bytes a batch, over all workers."""
        if len(self._seen) < 3:
            return None
        (n0, b0), (n1, b1), (n2, b2) = self._seen[0], self._seen[len(self._seen) // 2], self._seen[-1]
        before, now = (b1 - b0) / (n1 - n0), (b2 - b1) / (n2 - n1)
        return now if now > 0 and before > 0 and 1 / STEADY <= now / before <= STEADY else 0.0

    def _look(self, number: int) -> None:
        own = []
        for worker in multiprocessing.active_children():
            try:
                own.append(psutil.Process(worker.pid).memory_full_info().uss)
            except (psutil.Error, OSError):
                continue
        if own:
            self._seen.append((number, sum(own)))
            self.worker_bytes = max(self.worker_bytes or 0, *own)
