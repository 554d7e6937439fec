"""Trim: the silence before and after a sound cut off.

Shapes: B examples, C channels, T samples, F frames.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from audioaug.core import MEASURED, MEASURED_LENGTHS, Capabilities, Contract, DeviceBatchInfo, Op, Params, Timeline
from audioaug.dsp.windows import moved

HOP = 512
FRAME_HOPS = 4
"""librosa's frames: 2048 samples, a new one every 512."""

SMALLEST_POWER = 1e-10
"""librosa's: frames of less count as this loud."""


@dataclass(frozen=True, kw_only=True)
class Trim(Op):
    """Cut off what is quieter than the loudest frame by ``top_db`` or more, at both ends. The length changes.

    On the device the new lengths are found there: an op after it that needs lengths on the host has to be cut off.

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
        sounding_BF = self._sounding(x_BCT, batch.lengths_B)
        frame_F = torch.arange(sounding_BF.shape[1], device=x_BCT.device)
        last_B = torch.where(sounding_BF, frame_F, -1).amax(dim=1)
        first_B = torch.where(sounding_BF, frame_F, last_B[:, None]).amin(dim=1)
        end_B = torch.minimum((last_B + 1) * HOP, batch.lengths_B)
        start_B = first_B.clamp(min=0) * HOP
        return {**params, "start": start_B, "length_out": end_B - torch.minimum(start_B, end_B)}

    def _sounding(self, x_BCT: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
        """Return (B, F): whether any channel of a frame, which is centred on its place, is loud enough."""
        hops = x_BCT.shape[-1] // HOP + 1  # as many frames as hops, the unfinished one included
        missing = hops * HOP - x_BCT.shape[-1]
        energy_BCF = F.pad(x_BCT, (0, missing)).square().unflatten(-1, (hops, HOP)).sum(dim=-1)
        around_BCF = F.pad(energy_BCF, (FRAME_HOPS // 2, FRAME_HOPS // 2 - 1)).unfold(-1, FRAME_HOPS, 1)
        power_BCF = around_BCF.sum(dim=-1) / (FRAME_HOPS * HOP)
        real_BF = torch.arange(hops, device=x_BCT.device) <= length_B[:, None] // HOP
        power_BF = torch.where(real_BF, power_BCF.amax(dim=1), -1.0)
        loudest_B1 = power_BF.amax(dim=1, keepdim=True).clamp(min=SMALLEST_POWER)
        return real_BF & (10 * (power_BF.clamp(min=SMALLEST_POWER) / loudest_B1).log10() > -self.top_db)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return moved(x_BCT, -params["start"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        start, kept = params["start"], params["length_out"]
        return Timeline([(start, start + kept, 0, kept)], length, kept)
