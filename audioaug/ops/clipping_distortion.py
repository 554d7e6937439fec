"""ClippingDistortion: hard clipping of a random share of the samples.

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
    UniformInt,
)
from audioaug.dsp.levels.percentile import RANKED, at_rank, ranked

RANK_TYPES = dict(zip(RANKED, (INTS, FLOATS, STATIC, STATIC)))


@dataclass(frozen=True, kw_only=True)
class ClippingDistortion(Op):
    """Clip an example at two percentiles of its samples (of all channels together).

    Half the drawn share, rounded down to a whole percentage, is clipped on each side: of 30 %, the samples below the
    15th and above the 85th percentile; shares of 0 and 1 % change nothing.

    Args:
        min_percentile_threshold: least share that is clipped, in percent, 0 to 100.
        max_percentile_threshold: greatest share that is clipped, in percent, 0 to 100.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.ClippingDistortion``.
    """

    min_percentile_threshold: int = 0
    max_percentile_threshold: int = 40

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(needs_length=True)
    param_types = {
        "percentile_threshold": HOST_ONLY,
        **{f"{side}_{name}": kind for side in ("low", "high") for name, kind in RANK_TYPES.items()},
    }
    limits = {"min_percentile_threshold": (0, 100), "max_percentile_threshold": (0, 100)}

    def distributions(self) -> dict[str, Distribution]:
        return {"percentile_threshold": UniformInt(self.min_percentile_threshold, self.max_percentile_threshold)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        count, side = batch.lengths * batch.channels, draw["percentile_threshold"] // 2
        params = dict(draw)
        for name, percentage in (("low", side), ("high", 100 - side)):
            params |= {f"{name}_{key}": value for key, value in ranked(percentage / 100, count).items()}
        return params

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"percentile_threshold": int(params["percentile_threshold"])}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        x_BN = batch.masked(x_BCT, value=torch.inf).flatten(1)
        low_B, high_B = (at_rank(x_BN, *(params[f"{name}_{key}"] for key in RANKED)) for name in ("low", "high"))
        return x_BCT.clamp(low_B[:, None, None], high_B[:, None, None])
