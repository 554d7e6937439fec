"""PolarityInversion: the waveform upside down.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import BatchInfo, Capabilities, Contract, DeviceBatchInfo, Linear, Op, Params, TorchAudiomentationsOp


@dataclass(frozen=True, kw_only=True)
class PolarityInversion(Op):
    """Multiply every sample of an example by -1.

    Args:
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.PolarityInversion``.
    """

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(keeps_silence=True, linear=True)

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        return Linear(factor=-1.0)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return torch.neg(x_BCT, out=batch.out(x_BCT))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp("PolarityInversion", lambda x_BCT, params, batch: {})
