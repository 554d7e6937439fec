"""AddGaussianNoise: white noise of a random absolute amplitude.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import NOISE_KEY, Contract, DeviceBatchInfo, Distribution, Op, Params, Uniform
from audioaug.dsp.noise import with_gaussian


@dataclass(frozen=True, kw_only=True)
class AddGaussianNoise(Op):
    """Add normally distributed noise whose standard deviation is drawn, whatever the level of the example.

    Args:
        min_amplitude: smallest standard deviation, above 0.
        max_amplitude: largest standard deviation.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AddGaussianNoise``.
    """

    min_amplitude: float = 0.001
    max_amplitude: float = 0.015

    contract = Contract.statistical(level_db=0.3)
    limits = {"min_amplitude": (1e-12, float("inf"))}

    def distributions(self) -> dict[str, Distribution]:
        return {"amplitude": Uniform(self.min_amplitude, self.max_amplitude), "noise_key": NOISE_KEY}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"amplitude": params["amplitude"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return with_gaussian(x_BCT, params["noise_key"], params["amplitude"], clips.out(x_BCT))
