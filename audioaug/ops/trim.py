"""Trim: the silence before and after a sound cut off.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass

import torch

from audioaug.core import MEASURED, MEASURED_LENGTHS, Capabilities, Contract, DeviceBatchInfo, Op, Params, Timeline
from audioaug.dsp.trimming import loud_span
from audioaug.dsp.windows import moved


@dataclass(frozen=True, kw_only=True)
class Trim(Op):
    """Cut off what is quieter than the loudest frame by ``top_db`` or more, at both ends. The length changes.

    On the device the new lengths are computed there, so a later op that needs lengths on the host cannot run after it:
    the chain has to be cut after ``Trim``.

    Args:
        top_db: how far below the loudest frame silence begins, in dB.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Trim``, that is ``librosa.effects.trim``.
    """

    top_db: float = 30.0

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(changes_length=True, length_depends_on_audio=True, changes_timing=True)
    param_types = {"start": MEASURED, "length_out": MEASURED_LENGTHS}

    def measure(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> Params:
        start_B, kept_B = loud_span(x_BCT, batch.lengths_B, self.top_db)
        return {**params, "start": start_B, "length_out": kept_B}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return moved(x_BCT, -params["start"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        start, kept = params["start"], params["length_out"]
        return Timeline([(start, start + kept, 0, kept)], length, kept)
