"""Reverse: the example backwards in time.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import Contract, DeviceBatchInfo, Op, Params, Timeline, TorchAudiomentationsOp
from audioaug.dsp.windows import moved

PADDING = "a padded clip is turned around with its padding, which comes first then"


@dataclass(frozen=True, kw_only=True)
class Reverse(Op):
    """Play an example backwards. In a padded batch each clip is turned around within its own length.

    Args:
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Reverse``.
    """

    contract = Contract.exact(rtol=0.0)

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        y_BCT = x_BCT.flip(-1)
        return y_BCT if clips.padded_to is None else moved(y_BCT, clips.lengths_B - clips.padded_to)

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline([(length, 0, 0, length)], length, length)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp("TimeInversion", lambda x_BCT, params, clips: {}, differs=PADDING)
