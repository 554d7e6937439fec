"""Which neighbours are fused: gains and filters in a row are one cascade of sections, times one factor.

Not fused: AirAbsorption, whose reference masks a short-time spectrum (one response instead is off by 3e-4 of the peak,
at most by 2e-3, where 1e-5 is promised); ApplyImpulseResponse, which scales by the peak of all that rings after a clip
has ended, where a fused filter would ring on; other pointwise neighbours (Clip, BitCrush, GainTransition, masks), which
take 1.1 to 3 times as long on a CPU if a few rows pass all of them together, and which ``torch.compile`` makes
one kernel (the ``torch_compile`` engine).

Shapes: R rows that any of the ops touches.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Draws, Node
from audioaug.ops.fused import Fused


@dataclass(frozen=True)
class FusedNode(Node):
    """Neighbouring linear ops as one node, whose path is that of the first."""

    fused: tuple[Node, ...]

    @property
    def members(self) -> tuple[Node, ...]:
        """The nodes of the ops."""
        return self.fused

    def drawn(self, draws: Draws, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the draws and coin tosses of each of the ops."""
        return {
            node.path: {"apply": draws[f"{node.path}:apply"][rows], **node.drawn(draws, rows)} for node in self.fused
        }

    def steps(self, draws: Draws, rows: NDArray[np.int64]) -> "Iterator[tuple[Node, NDArray[np.int64]]]":
        """Yield itself and the rows that any of the ops touches: one at least."""
        applied_NR = np.stack([draws[f"{node.path}:apply"][rows] > 0 for node in self.fused])
        rows = rows[applied_NR.any(axis=0)]
        if len(rows):
            yield self, rows


def grouped(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes, with every two or more linear neighbours replaced by one that is both."""
    parts = list[Node]()
    for linear, group in itertools.groupby(nodes, lambda node: not node.children and node.capabilities.linear):
        neighbours = tuple(group)
        fuse = linear and len(neighbours) > 1
        parts += [_fused(neighbours)] if fuse else neighbours
    return parts


def _fused(nodes: tuple[Node, ...]) -> Node:
    return FusedNode(nodes[0].path, nodes[0].position, Fused(ops=tuple(node.op for node in nodes)), (), {}, nodes)
