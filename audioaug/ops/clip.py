"""Clip: samples held within two fixed values.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import Contract, DeviceBatchInfo, Op, Params
from audioaug.errors import ChainError


@dataclass(frozen=True, kw_only=True)
class Clip(Op):
    """Set samples below ``a_min`` to it, and samples above ``a_max`` to it.

    Args:
        a_min: lowest value that stays.
        a_max: highest value that stays, above ``a_min``.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Clip``.
    """

    a_min: float = -1.0
    a_max: float = 1.0

    contract = Contract.exact(rtol=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.a_min >= self.a_max:
            raise ChainError(f"Clip: a_min is {self.a_min}, but it must be below a_max ({self.a_max}).")

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return torch.clamp(x_BCT, self.a_min, self.a_max, out=batch.out(x_BCT))
