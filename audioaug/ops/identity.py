"""Identity: nothing happens.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import torch

from audioaug.core import (
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Linear,
    Op,
    Params,
    TorchAudiomentationsOp,
    arguments,
)
from audioaug.ops._torch_reference import TorchReference


@dataclass(frozen=True, kw_only=True)
class Identity(Op):
    """Return an example as it is: an option of ``OneOf`` that changes nothing, or a place kept in a chain.

    Args:
        p: probability of applying it, 0 to 1; without effect.

    Reference: ``torch_audiomentations.Identity``.
    """

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(keeps_silence=True, linear=True, library="torch_audiomentations")

    def reference(self) -> Any:
        return TorchReference(self.name, arguments(self))

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        return Linear()

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return x_BCT

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp("Identity", lambda x_BCT, params, batch: {})
