"""Fused: neighbouring linear ops as one cascade of filters, times one factor.

Where one of them does not apply to an example, its filter does nothing and its factor is 1.

Shapes: R rows that any of the ops touches, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from audioaug.core import (
    FLOATS,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    ListType,
    Op,
    OptionalType,
    Params,
)
from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import run as run_cascades

CASCADES = ListType(
    biquads.Cascade,
    (("rows", INTS), ("numbers", FLOATS), ("missing_R", FLOATS), ("cuts", STATIC), ("tail", STATIC)),
)
"""What ``biquads.plan`` returns, and ``biquads.cascade.run`` takes on the device."""


@dataclass(frozen=True, kw_only=True)
class Fused(Op, registry=None):
    """Apply linear ops as one. Made by the device build; no chain holds it.

    Args:
        ops: two or more linear ops, in order.
    """

    ops: tuple[Op, ...]

    contract = Contract.exact(rtol=1e-5)
    param_types = {"factor": OptionalType(FLOATS), "cascades": OptionalType(CASCADES)}

    @property
    def name(self) -> str:
        """The names of the ops."""
        return " + ".join(op.name for op in self.ops)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the ops together."""
        return Capabilities.of_all(op.capabilities for op in self.ops)

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        """Return the factor or the cascades; ``draw`` has, for each of the ops, its draws and its coin tosses."""
        count = len(batch.lengths)
        factor_R, sections = np.ones(count), list[biquads.Sections]()
        for op, own in zip(self.ops, draw.values(), strict=True):
            rows = np.flatnonzero(own["apply"] > 0)
            if len(rows):
                every = len(rows) == count
                mine = own if every else {name: values[rows] for name, values in own.items()}
                factor, filters = op.linear(mine, batch)
                factor_R[rows] *= factor
                sections += filters if every else [each.spread(rows, count) for each in filters]
        if not sections:
            return {"factor": factor_R}
        sections[0] = sections[0].amplified(factor_R)
        return {"cascades": biquads.plan(sections, int(batch.lengths.max()))}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Return the effect of all of them."""
        out: Any = batch.out(x_BCT)
        if "factor" in params:
            return torch.mul(x_BCT, params["factor"][:, None, None], out=out)
        return run_cascades(x_BCT, params["cascades"], out)
