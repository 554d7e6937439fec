"""TanhDistortion: soft clipping of a random amount.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Uniform,
)
from audioaug.dsp.distortion import distorted
from audioaug.dsp.levels.percentile import RANKED, at_rank, ranked


@dataclass(frozen=True, kw_only=True)
class TanhDistortion(Op):
    """Amplify an example so that a drawn share of its samples is bent by tanh, then restore its level.

    The gain brings the ``100 - 99 * amount`` th percentile of the absolute samples (of all channels) to 0.5.

    Args:
        min_distortion: least amount, 0 to 1.
        max_distortion: greatest amount, 0 to 1.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.TanhDistortion``.
    """

    min_distortion: float = 0.01
    max_distortion: float = 0.7

    # The reference adds up squares in float32: the level of one second of a constant is off by 2e-5 there, not here.
    contract = Contract.exact(rtol=1e-4)
    capabilities = Capabilities(needs_length=True)
    param_types = {"distortion_amount": HOST_ONLY, **dict(zip(RANKED, (INTS, FLOATS, STATIC, STATIC)))}
    limits = {"min_distortion": (0.0, 1.0), "max_distortion": (0.0, 1.0)}

    def distributions(self) -> dict[str, Distribution]:
        return {"distortion_amount": Uniform(self.min_distortion, self.max_distortion)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        share = 1 - 0.99 * draw["distortion_amount"]
        return {**draw, **ranked(share, batch.lengths * batch.channels)}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"distortion_amount": params["distortion_amount"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        x_BN = batch.masked(x_BCT, value=torch.inf).flatten(1)
        rank_B, fraction_B, lowest, highest = (params[key] for key in RANKED)
        threshold_B = at_rank(x_BN, rank_B, fraction_B, lowest, highest, absolute=True)
        return distorted(x_BCT, threshold_B, batch.lengths_B, batch.out(x_BCT))
