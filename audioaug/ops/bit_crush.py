"""BitCrush: samples rounded to a random number of bits.

Shapes: B examples, C channels, T samples; R rows, a channel of an example each.
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
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, loop_as_written, run_rows


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
        return _rounded(x_BCT, params["steps"], batch.out(x_BCT))


@primitive
def _rounded(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Round each example to multiples of 1 / steps; ``out`` may be x itself."""
    # A true division, here and there: a sample that lies half-way must not be moved before it is rounded.
    steps_B11 = steps_B[:, None, None]
    return torch.mul(x_BCT, steps_B11, out=out).round_().div_(steps_B11)


@_rounded.loop()
def _round_by_loop(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    return run_rows(_round_rows, x_BCT, steps_B, out=out)


@loop_as_written
def _round_rows(x_RT: Floats, steps_B: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    in_place = x_RT.ctypes.data == y_RT.ctypes.data
    for row in range(first, last):
        x_T, y_T, steps = x_RT[row], y_RT[row], steps_B[row // channels]
        if in_place:  # with two arrays that overlap, the loop would not be vectorized: 4x slower
            for t in range(len(y_T)):
                y_T[t] = np.rint(y_T[t] * steps) / steps
        else:
            for t in range(len(x_T)):
                y_T[t] = np.rint(x_T[t] * steps) / steps
