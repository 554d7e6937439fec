"""Arms: a cell of the report as a running Loader, and as the plan that users get."""

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from audioaug.advise.drawn import POOL, Restarting, drawn
from audioaug.advise.target import Target, in_one_line
from audioaug.core import Chain
from audioaug.decide.shortlist import placement_of
from audioaug.errors import AudioaugError, DataError
from audioaug.loader import Loader
from audioaug.records import KNOBS, Cell, CellStatus, Plan, plan_of

CACHED, FEW_CACHED = 8, 4
"""Batches kept on the device to measure the ceiling with; fewer under a small budget."""


class EndlessBatches:
    """Shuffled indices of a dataset in batches, pass after pass without end, so that no epoch's end is timed.

    Of a large dataset they are some that the seed draws: files that are read again and again are warm for all alike.
    """

    def __init__(self, size: int, batch_size: int, seed: int = 0) -> None:
        self.pool, self.batch_size, self.seed = drawn(size, POOL, seed), batch_size, seed

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Iterator[list[int]]:
        draw, stock = random.Random(self.seed), list[int]()
        while True:
            while len(stock) < self.batch_size:
                stock += draw.sample(self.pool, len(self.pool))
            batch, stock = stock[: self.batch_size], stock[self.batch_size :]
            yield batch


class RaceBatches(EndlessBatches):
    """The same, in the order in which an arm of a race takes them: a first one, then what lies ready and a block, again
    and again. The blocks of a round are the same batches for every arm, those of a shorter one the first of a longer's.
    With ``cached`` they are so many in every round: those that the ceiling has on the device. ``met``: first ones.
    """

    def __init__(
        self, size: int, batch_size: int, discard: int, block: int, seed: int = 0, cached: int = 0, met: int = 1
    ) -> None:
        super().__init__(size, batch_size, seed)
        self.discard, self.block, self.cached, self.met = discard, block, cached, met

    def __iter__(self) -> Iterator[list[int]]:
        others = super().__iter__()
        yield from itertools.islice(others, self.met)
        for number in itertools.count():
            yield from itertools.islice(others, self.discard)
            yield from itertools.islice(self._of_round(number), self.block)

    def _of_round(self, number: int) -> Iterator[list[int]]:
        if self.cached:
            return itertools.cycle(itertools.islice(super().__iter__(), self.cached))
        draw = random.Random(f"{self.seed} {number}")
        return (draw.choices(self.pool, k=self.batch_size) for _ in itertools.count())


def cell_of(plan: Plan, chain: Chain) -> Cell:
    """Return the cell that a plan for this chain runs."""
    knobs = {name: getattr(plan, name) for name in KNOBS}
    return Cell(placement_of(plan.cut, len(chain)), **knobs)


def cell_at(chain: Chain, cut: int, workers: int, status: CellStatus = "predicted", reason: str = "") -> Cell:
    """Return the cell with the chain cut there and so many workers, all else as it is without a plan."""
    return Cell(placement_of(cut, len(chain)), cut, num_workers=workers, status=status, reason=reason)


def open_loader(target: Target, cell: Cell, batches: Iterable[list[int]] | None = None) -> Loader:
    """Return the Loader that users would train with under this cell's plan, on endless batches or on these.

    A stream has an order of its own: it starts over whenever it ends.
    """
    if target.is_stream:
        return _loader(target, cell, Restarting(target.dataset), batch_size=target.batch_size)
    batches = EndlessBatches(len(target.dataset), target.batch_size) if batches is None else batches
    return _loader(target, cell, target.dataset, batch_sampler=batches)


def open_brief_loader(target: Target, cell: Cell) -> Loader:
    """Return such a Loader with epochs of one batch for each worker."""
    if target.is_stream:
        return _loader(target, cell, Restarting(target.dataset, target.batch_size), batch_size=target.batch_size)
    indices = drawn(len(target.dataset), target.batch_size)
    return _loader(target, cell, target.dataset, batch_sampler=[indices for _ in range(cell.num_workers)])


def _loader(target: Target, cell: Cell, dataset: Any, **order: Any) -> Loader:
    return Loader(
        dataset,
        target.chain,
        plan_of(cell, target.chain.hash, target.precision),
        device=target.device,
        collate_fn=target.collate_fn,
        pad=target.pad,
        on_error="skip",
        lengths=target.lengths,
        targets=target.targets,
        audio_key=target.audio_key,
        **order,
    )


def stock_of(cell: Cell) -> int:
    """Return how many steps of a cell must not be timed: the batches that workers may hold ready, or a first one."""
    return cell.queue + 2 if cell.num_workers else 1


def cached_batches(target: Target, cell: Cell, count: int = CACHED) -> list[Any]:
    """Return so many batches that lie on the device; raise ``DataError`` if they cannot be loaded."""
    try:
        feeder = iter(open_loader(target, replace(cell, num_workers=0)))
        return [next(feeder) for _ in range(count)]
    except AudioaugError:
        raise
    except StopIteration:
        raise DataError(f"{target.name}: the dataset is empty.", "It must have at least one example.") from None
    except Exception as error:
        reason = in_one_line(error, target.path)
        raise DataError(
            f"{target.name}: a batch cannot be loaded: {reason}", "See `dataset` and `collate_fn`."
        ) from None
