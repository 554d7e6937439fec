"""BitCrush: samples rounded to a random number of bits.

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
    Op,
    Params,
    UniformInt,
)
from audioaug.dsp.quantization import quantized


@dataclass(frozen=True, kw_only=True)
class BitCrush(Op):
    """Round every sample to the nearest multiple of ``1 / (2 ** (bit_depth - 1) + 1)``; halves go to the even one.

    Args:
        min_bit_depth: fewest bits, 1 to 32.
        max_bit_depth: most bits, 1 to 32.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.BitCrush``.
    """

    min_bit_depth: int = 5
    max_bit_depth: int = 10

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(keeps_silence=True)
    param_types = {"bit_depth": HOST_ONLY, "steps": FLOATS}
    limits = {"min_bit_depth": (1, 32), "max_bit_depth": (1, 32)}

    def distributions(self) -> dict[str, Distribution]:
        return {"bit_depth": UniformInt(self.min_bit_depth, self.max_bit_depth)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        return {**draw, "steps": 2.0 ** (draw["bit_depth"] - 1) + 1}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"bit_depth": int(params["bit_depth"])}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return quantized(x_BCT, params["steps"], batch.out(x_BCT))
