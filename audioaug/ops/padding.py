"""Padding: the start or the end of a clip replaced by silence, or by the rest of it again.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FRACTION,
    HOST_ONLY,
    INTS,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Timeline,
)
from audioaug.core.batch import inside
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.windows import PadMode, pad


@dataclass(frozen=True, kw_only=True)
class Padding(Op):
    """Replace a random share of a clip, at one end, by padding. The length stays.

    Args:
        mode: ``"silence"``, ``"wrap"`` (the rest again, from its other end) or ``"reflect"`` (mirrored).
        min_fraction: least share of the clip to replace, 0 to 1.
        max_fraction: largest share.
        pad_section: which end, ``"start"`` or ``"end"``.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Padding``, which fails or doubles the clip when it has nothing left to wrap or reflect:
    here one sample is always left in these two modes.
    """

    mode: PadMode = "silence"
    min_fraction: float = 0.01
    max_fraction: float = 0.7
    pad_section: Literal["start", "end"] = "end"

    contract = Contract.exact(rtol=0.0)
    limits = {"min_fraction": (0.0, 1.0), "max_fraction": (0.0, 1.0)}
    capabilities = Capabilities(needs_length=True, changes_timing=True)
    param_types = {"padding_length": HOST_ONLY, "start": INTS, "left": INTS}

    def distributions(self) -> dict[str, Distribution]:
        return {"share": FRACTION}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        low, high = (np.rint(share * batch.lengths) for share in (self.min_fraction, self.max_fraction))
        length = (low + np.floor(draw["share"] * (high - low + 1))).astype(np.int64)
        most: NDArray[np.int64] = batch.lengths if self.mode == "silence" else np.maximum(batch.lengths - 1, 0)
        length = np.minimum(length, most)
        start = length if self.pad_section == "start" else np.zeros_like(length)
        return {"padding_length": length, "start": start, "left": batch.lengths - length}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"padding_length": params["padding_length"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return _padded(x_BCT, self, params["start"], params["left"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        place = params["padding_length"] if self.pad_section == "start" else 0
        return Timeline.padded(length, length, place, length - params["padding_length"], place, self.mode)


@primitive
def _padded(x_BCT: torch.Tensor, op: Padding, start_B: torch.Tensor, left_B: torch.Tensor) -> torch.Tensor:
    """Keep ``left`` samples of each example, from ``start`` on; silence around them needs no copy of these."""
    if op.mode != "silence":
        return _pad_around(x_BCT, op, start_B, left_B)
    samples = x_BCT.shape[-1]
    kept_B1T = inside(left_B, samples) if op.pad_section == "end" else ~inside(start_B, samples)
    return torch.where(kept_B1T, x_BCT, 0.0)


@_padded.kernel()
@_padded.loop()
def _pad_around(x_BCT: torch.Tensor, op: Padding, start_B: torch.Tensor, left_B: torch.Tensor) -> torch.Tensor:
    return pad(x_BCT, start_B, left_B, start_B, x_BCT.shape[-1], op.mode)
