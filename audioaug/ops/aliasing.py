"""Aliasing: fewer samples without a filter, and back.

Shapes: B examples, C channels, T samples, N samples read.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    MelUniform,
    Op,
    Params,
)
from audioaug.dsp import compiled


@dataclass(frozen=True, kw_only=True)
class Aliasing(Op):
    """Read an example at evenly spaced places, as many as it would have at a drawn sample rate, and back again.

    Both ways the samples are joined by straight lines; what lies above half the drawn rate is folded down.

    Args:
        min_sample_rate: lowest rate, in Hz, at least 2.
        max_sample_rate: highest rate, in Hz, at least 2; one above the clip's dulls its treble only.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Aliasing``. Deviation: it raises where a clip is so short that not one sample is left;
    here one is.
    """

    min_sample_rate: int = 8000
    max_sample_rate: int = 30000

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(needs_length=True)
    param_types = {"new_sample_rate": HOST_ONLY, "left": INTS, "most_left": STATIC}
    limits = {"min_sample_rate": (2, float("inf")), "max_sample_rate": (2, float("inf"))}

    def distributions(self) -> dict[str, Distribution]:
        return {"new_sample_rate": MelUniform(self.min_sample_rate, self.max_sample_rate)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        left = np.rint(batch.lengths * draw["new_sample_rate"] / batch.sample_rate).astype(np.int64)
        return {**draw, "left": np.maximum(left, 1), "most_left": int(left.max(initial=1))}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        # A rate that leaves one sample leaves one also where it is raised to this.
        return {"new_sample_rate": max(params["new_sample_rate"], sample_rate / max(1, samples.shape[-1]))}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        left_B, most = params["left"], params["most_left"]
        if compiled.fits(x_BCT):
            from audioaug.dsp.loops.aliasing import alias

            return compiled.of_rows(alias, x_BCT, batch.lengths_B, left_B, out=batch.out(x_BCT))
        return _read(_read(x_BCT, batch.lengths_B, left_B, most), left_B, batch.lengths_B, x_BCT.shape[-1])


def _read(x_BCT: torch.Tensor, have_B: torch.Tensor, want_B: torch.Tensor, size: int) -> torch.Tensor:
    """Read ``want`` places, evenly spaced from each row's first sample to its last; returns (B, C, size)."""
    # Place i lies at sample i * (have - 1) / (want - 1). In whole numbers: float32 is too coarse in a long clip.
    last_B1, steps_B1 = (have_B - 1).clamp(min=0)[:, None], (want_B - 1).clamp(min=1)[:, None]
    place_BN = torch.arange(size, device=x_BCT.device) * last_B1
    before_BN = place_BN // steps_B1
    fraction_BN = (place_BN - before_BN * steps_B1) / steps_B1
    low = _take(x_BCT, before_BN)
    return torch.lerp(low, _take(x_BCT, before_BN.add_(1)), fraction_BN[:, None])


def _take(x_BCT: torch.Tensor, index_BN: torch.Tensor) -> torch.Tensor:
    """Return the samples at these places; past the end of the row, where they have no weight, its last one."""
    index_BN = index_BN.clamp(max=x_BCT.shape[-1] - 1)
    return x_BCT.gather(-1, index_BN[:, None].expand(-1, x_BCT.shape[1], -1))
