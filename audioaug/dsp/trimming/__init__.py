"""Trimming: where an example begins and ends to be loud, by the power of frames, as librosa measures it.

Shapes: B examples, C channels, T samples, F frames, one centred on each hop.
"""

import numpy as np
import torch
import torch.nn.functional as F

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, loop, loop_of_sums, run

HOP = 512
FRAME_HOPS = 4
"""librosa's frames: 2048 samples, a new one every 512."""

SMALLEST_POWER = 1e-10
"""librosa's: frames of less count as this loud."""


@primitive
def loud_span(x_BCT: torch.Tensor, length_B: torch.Tensor, top_db: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where each example begins to be loud and how long it is up to where it ends to be, in samples, (B,) each.

    Args:
        x_BCT: the examples, silent past their ends.
        length_B: in samples.
        top_db: a frame is loud if it is less than this below the loudest one, in any channel.

    Reference: ``librosa.effects.trim``.
    """
    return _span_of_loud_frames(_frame_power(x_BCT), length_B, top_db)


@loud_span.loop()
def _loud_span_by_loop(x_BCT: torch.Tensor, length_B: torch.Tensor, top_db: float) -> tuple[torch.Tensor, torch.Tensor]:
    power_BF = x_BCT.new_empty(len(x_BCT), x_BCT.shape[-1] // HOP + 1)
    run(_compute_frame_power, len(x_BCT), x_BCT, power_BF)
    return _span_of_loud_frames(power_BF, length_B, top_db)


@loud_span.kernel()
def _loud_span_by_kernel(
    x_BCT: torch.Tensor, length_B: torch.Tensor, top_db: float
) -> tuple[torch.Tensor, torch.Tensor]:
    from audioaug.dsp.trimming import kernel

    return kernel.loud_span(x_BCT, length_B, top_db, HOP, FRAME_HOPS, SMALLEST_POWER)


def _frame_power(x_BCT: torch.Tensor) -> torch.Tensor:
    """Return (B, F): the power of each frame, which is centred on its place, in the loudest channel."""
    hops = x_BCT.shape[-1] // HOP + 1  # as many frames as hops, the unfinished one included
    missing = hops * HOP - x_BCT.shape[-1]
    energy_BCF = F.pad(x_BCT, (0, missing)).square().unflatten(-1, (hops, HOP)).sum(dim=-1)
    around_BCF = F.pad(energy_BCF, (FRAME_HOPS // 2, FRAME_HOPS // 2 - 1)).unfold(-1, FRAME_HOPS, 1)
    return around_BCF.sum(dim=-1).amax(dim=1) / (FRAME_HOPS * HOP)


def _span_of_loud_frames(
    power_BF: torch.Tensor, length_B: torch.Tensor, top_db: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the first loud frame of each example begins, and the samples from there to the end of the last."""
    frame_F = torch.arange(power_BF.shape[1], device=power_BF.device)
    real_BF = frame_F <= length_B[:, None] // HOP
    power_BF = torch.where(real_BF, power_BF.clamp(min=SMALLEST_POWER), SMALLEST_POWER)
    loudest_B1 = power_BF.amax(dim=1, keepdim=True)
    loud_BF = real_BF & (10 * (power_BF / loudest_B1).log10() > -top_db)
    last_B = torch.where(loud_BF, frame_F, -1).amax(dim=1)
    first_B = torch.where(loud_BF, frame_F, last_B[:, None]).amin(dim=1)
    end_B = torch.minimum((last_B + 1) * HOP, length_B)
    start_B = first_B.clamp(min=0) * HOP
    return start_B, end_B - torch.minimum(start_B, end_B)


@loop
def _compute_frame_power(x_BCT: Floats, power_BF: Floats, first: int, last: int) -> None:
    """Compute the power of the frames of examples."""
    hops, before = power_BF.shape[1], FRAME_HOPS // 2
    energy_F = np.zeros(before + hops + FRAME_HOPS, np.float32)
    for row in range(first, last):
        power_F = power_BF[row]
        power_F[:] = 0
        for channel in range(x_BCT.shape[1]):
            for hop in range(hops):
                energy_F[before + hop] = _squares(x_BCT[row, channel, hop * HOP : (hop + 1) * HOP])
            for frame in range(hops):
                power = energy_F[frame : frame + FRAME_HOPS].sum() / np.float32(FRAME_HOPS * HOP)
                power_F[frame] = np.maximum(power_F[frame], power)


@loop_of_sums
def _squares(x_T: Floats) -> np.float32:
    total = np.float32(0)
    for t in range(len(x_T)):
        total += x_T[t] * x_T[t]
    return total
