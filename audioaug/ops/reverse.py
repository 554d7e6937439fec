"""Reverse: the example backwards in time.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import Capabilities, Contract, DeviceBatchInfo, Op, Params, Timeline, TorchAudiomentationsOp
from audioaug.dsp.windows import moved

PADDING = "a padded clip is reversed with its padding, which then comes first"


@dataclass(frozen=True, kw_only=True)
class Reverse(Op):
    """Play an example backwards. In a padded batch each clip is reversed within its own length.

    Args:
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Reverse``.
    """

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(changes_timing=True)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        y_BCT = x_BCT.flip(-1)
        return y_BCT if batch.padded_to is None else moved(y_BCT, batch.lengths_B - batch.padded_to)

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline([(length, 0, 0, length)], length, length)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp("TimeInversion", lambda x_BCT, params, batch: {}, differs=PADDING)
