"""Which neighbours become one pass: gains and filters in a row are one cascade of sections, times one factor.

What one of them does to an example, the others need not: where its coin fell the other way, its section does nothing
and its factor is 1.

Left alone: AirAbsorption, whose reference masks a short-time spectrum (one response instead is off by 3e-4 of the peak,
at most by 2e-3, where 1e-5 is promised); ApplyImpulseResponse, which scales by the peak of all that rings after a clip
has ended, where a filter in the same pass would ring on; other pointwise neighbours (Clip, BitCrush, GainTransition,
masks), which take 1.1 to 3 times as long on a CPU if a few rows go through all of them at once, and which
``torch.compile`` makes one kernel (the ``torch_compile`` engine).

Shapes: B examples, R rows that any of the ops touches, C channels, T samples.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import BatchInfo, DeviceBatchInfo, Draws, Node, Params
from audioaug.dsp.biquads import Section
from audioaug.ops import _biquads


@dataclass(frozen=True)
class Fused:
    """Neighbouring linear ops as one. It answers what the device build asks of an op."""

    nodes: tuple[Node, ...]

    length_depends_on_audio = False

    @property
    def path(self) -> str:
        """Where they lie in the chain."""
        return self.nodes[0].path

    @property
    def name(self) -> str:
        """The names of the ops."""
        return " + ".join(node.op.name for node in self.nodes)

    @property
    def keeps_silence(self) -> bool:
        """Whether what is 0 stays 0."""
        return all(node.op.keeps_silence for node in self.nodes)

    def steps(self, draws: Draws, rows: NDArray[np.int64]) -> "Iterator[tuple[Fused, NDArray[np.int64]]]":
        """Yield itself and which of these rows any of the ops touches: one at least."""
        chosen_NR = np.stack([draws[f"{node.path}:apply"][rows] > 0 for node in self.nodes])
        rows = rows[chosen_NR.any(axis=0)]
        if len(rows):
            yield self, rows

    def resolve(self, draws: Draws, rows: NDArray[np.int64], clips: BatchInfo) -> Params:
        """Return what ``batched`` needs to know of these rows, of which ``clips`` tells."""
        factor_R, sections = np.ones(len(rows)), list[Section]()
        for node in self.nodes:
            within = np.flatnonzero(draws[f"{node.path}:apply"][rows] > 0)
            if len(within):
                draw = node.drawn(draws, rows[within])
                factor_R[within] *= node.op.factor(draw)
                own = node.op.sections(draw, clips)
                sections += own if len(within) == len(rows) else [each.spread(within, len(rows)) for each in own]
        if not sections:
            return {"factor": factor_R}
        sections[0] = sections[0].amplified(factor_R)
        return _biquads.planned(sections, int(clips.lengths.max()))

    def measure(self, x_RCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> Params:
        """Return the parameters as they are: no length changes."""
        return params

    def batched(self, x_RCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        """Return the effect of all of them."""
        if "factor" in params:
            return torch.mul(x_RCT, params["factor"][:, None, None], out=clips.out(x_RCT))
        return _biquads.run(x_RCT, params, clips)


def grouped(nodes: Sequence[Node]) -> list[Any]:
    """Return the nodes, with every two or more linear neighbours replaced by a ``Fused``."""
    found = list[Any]()
    for linear, group in itertools.groupby(nodes, lambda node: not node.children and node.op.linear):
        neighbours = tuple(group)
        found += [Fused(neighbours)] if linear and len(neighbours) > 1 else neighbours
    return found
