"""PolarityInversion: the waveform upside down.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import Contract, DeviceBatchInfo, Op, Params, TorchAudiomentationsOp


@dataclass(frozen=True, kw_only=True)
class PolarityInversion(Op):
    """Multiply every sample of an example by -1.

    Args:
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.PolarityInversion``.
    """

    contract = Contract.exact(rtol=0.0)
    keeps_silence = True

    def factor(self, draw: Params) -> float:
        return -1.0

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return torch.neg(x_BCT, out=clips.out(x_BCT))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp("PolarityInversion", lambda x_BCT, params, clips: {})
