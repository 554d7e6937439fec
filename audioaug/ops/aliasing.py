"""Aliasing: fewer samples without a filter, and back.

Shapes: B examples, C channels, T samples.
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
from audioaug.dsp.aliasing import alias


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
        return alias(x_BCT, batch.lengths_B, params["left"], params["most_left"], batch.out(x_BCT))
