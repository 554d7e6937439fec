"""Levels: peaks, order statistics and decibels of rows.

Shapes: R rows, N values.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp import compiled

NORM_BLOCK = 1024

RANGES = 8
"""Of ranks, in a row: the bounds of those that are asked for are bounds of these."""

RANKED = ("rank", "fraction", "lowest", "highest")
"""Arguments of ``at_rank``."""


def db_to_ratio(decibels: torch.Tensor) -> torch.Tensor:
    """Return the amplitude ratio of a level difference."""
    return torch.exp(decibels * (math.log(10.0) / 20.0))


def norm(x_RN: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of each row's squares, whatever the dimensions before the last; silence: gradient 0.

    Block by block: the plain norm adds up in float32, and of a million squares that loses digits.
    """
    if compiled.fits(x_RN):
        samples, rows = x_RN.shape[-1], x_RN.shape[:-1]
        place_R = torch.arange(rows.numel()) * samples
        return norm_of_stretches(x_RN.flatten(), place_R, torch.full_like(place_R, samples)).view(rows)
    whole = x_RN.shape[-1] // NORM_BLOCK * NORM_BLOCK
    blocks = x_RN[..., :whole].unflatten(-1, (whole // NORM_BLOCK, NORM_BLOCK))
    rest = torch.linalg.vector_norm(x_RN[..., whole:], dim=-1, keepdim=True)
    return torch.linalg.vector_norm(torch.cat([torch.linalg.vector_norm(blocks, dim=-1), rest], dim=-1), dim=-1)


def norm_of_stretches(x_S: torch.Tensor, place_N: torch.Tensor, count_N: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of squares of each stretch of the samples, where a loop may run."""
    from audioaug.dsp.loops.levels import add_squares

    sum_N = torch.empty(len(place_N), dtype=torch.float64)
    compiled.run(add_squares, len(place_N), x_S, place_N, count_N, sum_N)
    return sum_N.sqrt_().float()


def added(x_BCT: torch.Tensor, other_BCT: torch.Tensor, gain_BC: torch.Tensor) -> torch.Tensor:
    """Return ``x + gain * other``, with a gain for each channel or, (B, 1), example.

    It takes the other's memory, where that is large enough and no gradient flows: the other is not for use any more.
    """
    out = None if x_BCT.requires_grad or other_BCT.shape != x_BCT.shape else other_BCT
    return torch.addcmul(x_BCT, other_BCT, gain_BC[..., None], out=out)


def with_others(x_BCT: torch.Tensor, other_B: torch.Tensor, gain_BC: torch.Tensor) -> torch.Tensor:
    """Return ``x + gain * x[other]``, with a gain for each channel."""
    if compiled.fits(x_BCT):
        from audioaug.dsp.loops.levels import add_others

        return compiled.of_rows(add_others, x_BCT, other_B, gain_BC)
    return added(x_BCT, x_BCT.index_select(0, other_B), gain_BC)


def peak(x_BCT: torch.Tensor) -> torch.Tensor:
    """Return the highest absolute sample of each example over all channels, (B, 1, 1)."""
    return torch.maximum(x_BCT.amax(dim=(1, 2), keepdim=True), -x_BCT.amin(dim=(1, 2), keepdim=True))


def level(x_BCT: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
    """Return the level of each clip, silent behind its end: the mean over channels of each channel's RMS, (B,)."""
    return rms(x_BCT, length_B[:, None]).mean(dim=1)


def rms(x_RN: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each row's first ``count`` values; the others are 0. Silence has gradient 0."""
    return norm(x_RN) / count_R.clamp(min=1).sqrt()


def rms_without_silence(x_RN: torch.Tensor, count_R: torch.Tensor, window: int) -> torch.Tensor:
    """Return the root mean square of those windows that are at most 28 dB (a factor of 25) softer than the loudest.

    Only windows that end before the row's first ``count`` values do are looked at; the values behind these must be 0.
    Where there is no such window, or all are silent, it is that of the whole.

    Reference: ``audiomentations.core.utils.calculate_rms_without_silence``.
    """
    windows_RWN = torch.nn.functional.pad(x_RN, (0, -x_RN.shape[-1] % window)).unflatten(-1, (-1, window))
    end_W = torch.arange(1, windows_RWN.shape[1] + 1, device=x_RN.device) * window
    power_RW = torch.where(end_W < count_R[:, None], windows_RWN.square().mean(dim=-1), 0.0)
    heard_RW = power_RW > power_RW.amax(dim=-1, keepdim=True) / 25**2
    power_R = torch.where(heard_RW, power_RW, 0.0).sum(dim=-1) / heard_RW.sum(dim=-1).clamp(min=1)
    return torch.where(heard_RW.any(dim=-1), power_R.masked_fill(power_R == 0, 1.0).sqrt(), rms(x_RN, count_R))


def ranked(share_R: NDArray[np.float64], count_R: NDArray[np.int64]) -> dict[str, Any]:
    """Return the arguments of ``at_rank`` for these shares of the way up, 0 to 1, of rows of so many values.

    There are few bounds, since shapes follow from them.
    """
    last_R = np.maximum(count_R - 1, 0)
    rank_R = share_R * last_R
    last = int(last_R.max())
    step = max(1, (last + 1) // RANGES)
    lowest, highest = int(rank_R.min()) // step * step, min(last, -(-int(rank_R.max()) // step) * step)
    return {"rank": rank_R.astype(np.int64), "fraction": rank_R % 1, "lowest": lowest, "highest": highest}


def at_rank(
    x_RN: torch.Tensor, rank_R: torch.Tensor, fraction_R: torch.Tensor, lowest: int, highest: int
) -> torch.Tensor:
    """Return the value at rank ``rank + fraction`` of each row, between neighbours linearly, as numpy's percentile.

    Where the fraction is 0 the next value is not looked at; it may be infinite.

    Args:
        x_RN: the values, in any order.
        rank_R: from 0, the smallest value.
        fraction_R: 0 to 1.
        lowest: no rank is lower.
        highest: no rank is higher, up to N - 1.
    """
    if compiled.fits(x_RN):
        from audioaug.dsp.loops.ranking import find_at_rank

        found_R = torch.empty_like(fraction_R)
        compiled.run(find_at_rank, len(x_RN), x_RN, rank_R, fraction_R, found_R)
        return found_R
    # One row's rank after the other is the same rank of all, the highest, once each has enough below its values.
    # Selecting takes a quarter of the time of sorting.
    count = x_RN.shape[1]
    below_RN = torch.arange(highest - lowest, device=x_RN.device) < (highest - rank_R)[:, None]
    around_RN = torch.where(below_RN, -torch.inf, torch.inf).to(x_RN.dtype)
    all_RN = torch.cat([x_RN, around_RN], dim=1)
    if torch.are_deterministic_algorithms_enabled():  # which on CUDA forbid kthvalue
        low_R = all_RN.sort(dim=1).values[:, highest]
    else:
        low_R = all_RN.kthvalue(highest + 1, dim=1).values
    above_RN = x_RN > low_R[:, None]
    next_R = torch.where(above_RN, x_RN, torch.inf).amin(dim=1)
    high_R = torch.where(count - above_RN.sum(dim=1) > rank_R + 1, low_R, next_R)
    return torch.where(fraction_R > 0, low_R + (high_R - low_R) * fraction_R, low_R)
