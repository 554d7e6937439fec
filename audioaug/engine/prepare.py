"""Preparing a batch, on the host: everything random or shape-dependent is decided here, before the device is asked.

``Preparer`` turns draws into steps (an op, the rows it touches, its parameters for these rows) and collects all their
numbers. It can be pickled, so that DataLoader workers do this beside their other work.

Shapes: B examples, R rows that an op gets, C channels, T samples.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import LENGTHS, BatchInfo, Chain, Draws, Feature, Node, Params
from audioaug.core.params import Span
from audioaug.engine.checks import check_channels, lengths_of, rate_of
from audioaug.engine.fuse import grouped
from audioaug.engine.numbers import Numbers
from audioaug.errors import DataError

COUNTED_EXAMPLES = 4096
"""Examples that are drawn to find out how often an op is applied."""

HOST = torch.device("cpu")

MOST = 2**63 - 1
"""More samples than any clip has: the shortest of no clips."""

DEVIATIONS = 2.0
"""By how many standard deviations a step has more rows than on average: enough for 98 of 100 batches."""


@dataclass(frozen=True)
class Step:
    """An op on some rows. ``rows`` says where their numbers lie in the ints buffer; ``None`` is all rows.

    ``lengths``: where those of their clips lie, if it is not all rows and no op has measured lengths on the device.
    ``examples``: how many of the rows are distinct examples; further ones repeat the last of them. ``params``: the
    packed parameters, in the order of their names. ``padded``: some of these clips do not fill the batch. ``width``:
    how many samples the batch has afterwards, if the op changes lengths; else ``None``.
    """

    op: int
    rows: Span | None
    lengths: Span | None
    examples: int
    params: tuple[tuple[str, Any], ...]
    padded: bool
    width: int | None


@dataclass(frozen=True)
class Prepared:
    """What the device needs to know of one batch: steps, and all their numbers.

    ``lengths`` is where the clips' lengths lie. ``padded``: some clip does not fill the batch. ``ragged``: clips may
    differ in length afterwards.
    """

    steps: tuple[Step, ...]
    numbers: Numbers
    sample_rate: int
    lengths: Span
    padded: bool
    ragged: bool

    @property
    def changes_length(self) -> bool:
        """Whether a step changes the clips' lengths."""
        return any(step.width is not None for step in self.steps)

    def length_of(self, row: int) -> int:
        """Return how many samples a clip has before the first step."""
        return int(self.numbers.on(HOST)(self.lengths)[row])

    @property
    def layout(self) -> tuple[Any, ...]:
        """All but the numbers themselves: batches of one shape with the same layout need the same kernels."""
        steps = tuple((step.op, step.rows, step.lengths, step.params, step.padded, step.width) for step in self.steps)
        return self.sample_rate, self.padded, steps

    def pin_memory(self) -> "Prepared":
        """Return a copy in page-locked memory (called by torch's DataLoader)."""
        return replace(self, numbers=self.numbers.pinned())


class _Work:
    """What becomes known while a batch is prepared: its steps, their numbers, and how long the clips are by then.

    ``lengths`` are upper bounds once ``measured`` is true (an op has found the lengths on the device). ``is_full``:
    every clip fills the batch.
    """

    def __init__(self, sample_rate: int, channels: int, lengths: NDArray[np.int64], width: int, is_full: bool) -> None:
        self.sample_rate, self.channels = sample_rate, channels
        self.lengths, self.width, self.measured = lengths, width, False
        self.shortest, self.longest = (width, width) if is_full else _extremes(lengths)
        self.steps: list[Step] = []
        self.numbers = Numbers()

    def padded(self, rows: NDArray[np.int64]) -> bool:
        """Return whether any of these clips does not, or may not, fill the batch."""
        return self.measured or (self.shortest < self.width and bool((self.lengths[rows] < self.width).any()))

    def not_empty(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of the rows that have samples, as far as is known here."""
        return rows[self.lengths[rows] > 0]

    def resize(self, node: Node, rows: NDArray[np.int64], params: Params) -> int | None:
        """Note what an op makes of the lengths; return the width of the batch afterwards if it may change any."""
        if not node.capabilities.changes_length:
            return None
        if node.capabilities.length_depends_on_audio:
            self.measured = True
            return self.width
        self.lengths = self.lengths.copy()
        self.lengths[rows] = next(params[name] for name, kind in node.param_types.items() if kind == LENGTHS)
        self.shortest, self.longest = _extremes(self.lengths)
        self.width = max(1, self.longest)
        return self.width

    def step(self, place: int, node: Node, rows: NDArray[np.int64], examples: int, params: Params) -> Step:
        """Pack what an op needs to know for these rows, and note what it makes of their lengths."""
        padded, is_all = self.padded(rows), examples == len(self.lengths)
        return Step(
            op=place,
            rows=None if is_all else self.numbers.add(rows, "ints"),
            lengths=None if is_all or self.measured else self.numbers.add(self.lengths[rows], "ints"),
            examples=examples,
            params=tuple(
                [
                    (name, kind.pack(params[name], self.numbers.add))
                    for name, kind in node.param_types.items()
                    if kind.on_device and name in params
                ]
            ),
            padded=padded,
            width=self.resize(node, rows, params),
        )


def _extremes(lengths: NDArray[np.int64]) -> tuple[int, int]:
    return int(lengths.min(initial=MOST)), int(lengths.max(initial=0))


@functools.lru_cache(maxsize=64)
def _rows_and_lengths(batch: int, samples: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all rows of a batch of full clips, and their lengths: read-only.

    Making them anew would take 40 us, since after a batch of audio nothing else is left in a CPU's cache.
    """
    arrays = np.arange(batch), np.full(batch, samples)
    for array in arrays:
        array.flags.writeable = False
    return arrays


class Preparer:
    """Decides on the host what the ops of a chain from ``start`` on, up to ``stop``, do to a batch.

    ``parts`` are its nodes in order, with neighbours that are ``fused`` as one. ``leaves`` are those that change audio
    (containers excluded), in the order that ``Step.op`` counts. ``running`` are the nodes that run, or ran last: those
    that raised an exception. ``constant_rows``: steps get the same number of rows in most batches.
    """

    def __init__(
        self, chain: Chain, start: int, stop: int | None = None, fused: bool = True, constant_rows: bool = False
    ) -> None:
        self.chain, self.start, self.stop, self.fused = chain, start, stop, fused
        self.nodes = chain.nodes[start:stop]
        self.parts: list[Node] = grouped(self.nodes) if fused else [*self.nodes]
        self._row_counts = RowCounts(chain, self.parts) if constant_rows else None
        self.leaves = [node for part in self.parts for node in part.walk() if not node.children]
        self.running: tuple[Node, ...] = ()
        self._place = {node.path: place for place, node in enumerate(self.leaves)}

    def __call__(
        self,
        draws: Draws,
        shape: tuple[int, ...],
        sample_rate: int | None = None,
        lengths: torch.Tensor | Sequence[int] | None = None,
        pack: bool = True,
    ) -> Prepared:
        """Decide what to do with a batch of that shape (B, C, T). See ``DeviceChain.forward`` for the arguments.

        ``pack``: put the numbers into one tensor, which is not needed where this process runs the steps on a CPU.
        """
        self.mark_running(())
        batch, channels, samples = shape
        if len(draws) != batch:
            raise DataError(f"There are draws for {len(draws)} examples, but the batch has {batch}.")
        rows, full_lengths = _rows_and_lengths(batch, samples)
        host_lengths = full_lengths if lengths is None else lengths_of(lengths, batch, samples)
        work = _Work(rate_of(self.chain, sample_rate), channels, host_lengths, samples, is_full=lengths is None)
        where, padded = work.numbers.add(host_lengths, "ints"), work.shortest < samples
        for part in self.parts:
            for each, touched in part.steps(draws, rows):
                if not work.shortest and not isinstance(each.op, Feature):  # no other op changes an empty clip
                    touched = work.not_empty(touched)
                if len(touched):
                    work.steps.append(self._step(each, touched, draws, work))
        if pack:
            work.numbers.pack()
        return Prepared(
            tuple(work.steps),
            work.numbers,
            work.sample_rate,
            where,
            padded,
            work.measured or work.shortest < work.longest,
        )

    def mark_running(self, nodes: tuple[Node, ...]) -> None:
        """Record the nodes that run from now on, here or on the device, for the error if one of them raises."""
        self.running = nodes

    def _step(self, node: Node, touched: NDArray[np.int64], draws: Draws, work: _Work) -> Step:
        self.mark_running(node.members)
        check_channels(node, work.channels)
        rows = self._rows(node, touched, len(work.lengths))
        params = node.resolve(draws, rows, BatchInfo(work.sample_rate, work.lengths[rows], work.channels))
        return work.step(self._place[node.path], node, rows, len(touched), params)

    def _rows(self, node: Node, touched: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
        """Return the rows that a step gets; those it touches, unless their number is to be constant."""
        if self._row_counts is None or node.capabilities.mixes_examples:  # which mixes those that it touches
            return touched
        return self._row_counts.filled(node.path, touched, batch)


class RowCounts:
    """How many rows each part of a chain gets in every batch, so that the same kernels fit many batches.

    How many examples an op touches differs from batch to batch. It gets as many rows as that is in most batches; those
    that are not needed repeat the last one, and so does their result.
    """

    def __init__(self, chain: Chain, parts: Sequence[Node]) -> None:
        draws, rows = chain.draw(np.arange(COUNTED_EXAMPLES)), np.arange(COUNTED_EXAMPLES)
        self._share: dict[str, float] = {}
        for part in parts:
            for node, touched in part.steps(draws, rows):
                self._share[node.path] = max(self._share.get(node.path, 0.0), len(touched) / COUNTED_EXAMPLES)

    def filled(self, path: str, rows_R: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
        """Return the rows, the last one repeated to the usual count; with more rows than that, to the whole batch."""
        share = self._share.get(path, 1.0)
        usual = math.ceil(batch * share + DEVIATIONS * math.sqrt(batch * share * (1 - share)))
        count = usual if len(rows_R) <= usual < batch else batch
        return np.concatenate([rows_R, np.full(count - len(rows_R), rows_R[-1])])
