"""Padding: a stretch of each row, moved to a place of its own, with silence or itself around it.

Shapes: B rows, C channels, T samples.
"""

from typing import Literal, TypeAlias

import torch

from audioaug.dsp import compiled
from audioaug.dsp.windows import moved

PadMode: TypeAlias = Literal["silence", "wrap", "reflect"]


def pad(
    x_BCT: torch.Tensor,
    start_B: torch.Tensor,
    length_B: torch.Tensor,
    place_B: torch.Tensor,
    samples_out: int,
    mode: PadMode,
) -> torch.Tensor:
    """Cut a stretch out of each row, put it somewhere, and fill what is around it.

    Args:
        x_BCT: the rows.
        start_B: where the stretch begins in each row.
        length_B: how long it is.
        place_B: where it begins in the result.
        samples_out: the length of the result.
        mode: ``"silence"`` around the stretch; or the stretch again and again, as it is or every other time mirrored.

    Reference: ``numpy.pad`` with ``constant``, ``wrap`` and ``reflect``.
    """
    if mode == "silence" and compiled.fits(x_BCT):
        from audioaug.dsp.loops.pieces import place_stretch

        return compiled.of_rows(place_stretch, x_BCT, start_B, length_B, place_B, samples_out=samples_out)
    within_BT = torch.arange(samples_out, device=x_BCT.device) - place_B[:, None]
    length_B1 = length_B[:, None]
    if mode == "silence":
        inside_BT = (within_BT >= 0) & (within_BT < length_B1)
        return torch.where(inside_BT[:, None], moved(x_BCT, place_B - start_B, samples_out), 0.0)
    if mode == "reflect":
        period_B1 = (2 * length_B1 - 2).clamp(min=1)
        within_BT = within_BT % period_B1
        source_BT = torch.minimum(within_BT, period_B1 - within_BT) * (length_B1 > 1)
    else:
        source_BT = within_BT % length_B1.clamp(min=1)
    place_BT = (start_B[:, None] + source_BT).clamp(0, max(0, x_BCT.shape[-1] - 1))
    return x_BCT.gather(-1, place_BT[:, None].expand(-1, x_BCT.shape[1], -1))
