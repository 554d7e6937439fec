"""What workers cost beside their work: starting, the first batch of an epoch, sending, and memory that grows."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader

from audioaug.advise.arms import open_brief_loader
from audioaug.advise.target import Target
from audioaug.loader.prefetch import map_tensors
from audioaug.measure import Clock, measure_loader
from audioaug.records import Cell
from audioaug.units import Seconds

LEAST_LOOKS = 5
"""Fewer tell nothing of growth: workers may be a batch further at one look than at the next."""

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
        return map_tensors(torch.Tensor.clone, self.message)


def _unchanged(message: Any) -> Any:
    return message


def receive_ms(message: Any, workers: int, clock: Clock, seconds: float) -> float:
    """Return how long a batch takes from so many workers to this process when there is nothing else to do."""
    loader: DataLoader[Any] = DataLoader(
        Ready(message),  # type: ignore[arg-type]
        batch_size=None,
        collate_fn=_unchanged,
        shuffle=False,
        num_workers=workers,
    )
    found = measure_loader(loader, clock, seconds=seconds, discard=2 * workers + 2, block_batches=max(2, workers))
    return found.per_batch.ms


def start_and_gap(target: Target, cell: Cell, clock: Clock) -> tuple[float, float]:
    """Return the seconds to the first batch of a run, and to the first of another epoch with the same workers."""
    loader = open_brief_loader(target, cell)
    first = []
    for number in range(2):
        begin = clock.now()
        messages = loader.worker_batches(number)
        next(messages)
        first.append(clock.now() - begin)
        for _ in messages:
            pass
    return first[0], first[1]


class Memory:
    """Looks at what workers keep in memory for themselves: never while they are timed, since a look takes milliseconds.

    ``worker_bytes`` is the most that one of them had, ``growth_bytes`` what all of them grow by with a batch, 0 unless
    that is steady; ``None`` before it is known.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []
        self.worker_bytes: int | None = None

    def watch(self, messages: Iterator[Any], stock: int, clock: Clock, seconds: Seconds) -> None:
        """Take batches of a loader that holds so many ready for so long, but until there is something to compare."""
        deadline, looks = clock.now() + seconds, sorted({round(stock * times) for times in LOOKS})
        for number, _ in enumerate(messages):
            if number in looks:
                self.look(number)
            if number >= looks[-1] or (clock.now() > deadline and number >= looks[LEAST_LOOKS - 1]):
                return

    def look(self, number: int = 0) -> None:
        """Look at the workers that run now, after so many batches."""
        own = []
        for worker in multiprocessing.active_children():
            try:
                own.append(psutil.Process(worker.pid).memory_full_info().uss)
            except (psutil.Error, OSError):
                continue
        if own:
            self._seen.append((number, sum(own)))
            self.worker_bytes = max(self.worker_bytes or 0, *own)

    @property
    def growth_bytes(self) -> float | None:
        """Bytes a batch, over all workers."""
        if len(self._seen) < LEAST_LOOKS:
            return None
        (n0, b0), (n1, b1), (n2, b2) = self._seen[0], self._seen[len(self._seen) // 2], self._seen[-1]
        before, now = (b1 - b0) / (n1 - n0), (b2 - b1) / (n2 - n1)
        return now if now > 0 and before > 0 and 1 / STEADY <= now / before <= STEADY else 0.0
