"""Gain: a level change of a random number of decibels.

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
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Linear,
    Op,
    Params,
    TorchAudiomentationsOp,
    Uniform,
)
from audioaug.dsp.levels import db_to_ratio


@dataclass(frozen=True, kw_only=True)
class Gain(Op):
    """Multiply every sample of an example by ``10 ** (gain_db / 20)``. Nothing is clipped.

    Args:
        min_gain_db: lowest gain, in dB.
        max_gain_db: highest gain, in dB.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Gain``.
    """

    min_gain_db: float = -12.0
    max_gain_db: float = 12.0

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(keeps_silence=True, linear=True)
    param_types = {"gain_db": HOST_ONLY, "factor": FLOATS}

    def distributions(self) -> dict[str, Distribution]:
        return {"gain_db": Uniform(self.min_gain_db, self.max_gain_db)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        return {**draw, "factor": db_to_ratio(draw["gain_db"])}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"amplitude_ratio": 10 ** (params["gain_db"] / 20)}

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        return Linear(factor=db_to_ratio(draw["gain_db"]))

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return torch.mul(x_BCT, params["factor"][:, None, None], out=batch.out(x_BCT))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "Gain", lambda x_BCT, params, batch: {"gain_factors": params["factor"][:, None, None]}
        )
