"""Percentiles: the value at a rank of each row. A loop sorts only what a sample of the row leaves of it.

Reference: R. W. Floyd and R. L. Rivest, "Expected time bounds for selection" (1975). Before values are copied, bounds
are narrowed by counting, which processors do with eight and more values in one instruction.

Shapes: R rows, N values, S of a sample.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop_as_written, loop_of_sums, run

RANGES = 8
"""The ranks of a row are divided into this many ranges: ``lowest`` and ``highest`` are bounds of these."""
RANKED = ("rank", "fraction", "lowest", "highest")
"""Arguments of ``at_rank``."""

SAMPLE = 256
DEVIATIONS = 2.5
"""Half the width of the first interval, in standard deviations of the rank in the sample."""
NEAR = 0.06
"""Half the width of later intervals, as a share of the range that is left."""
ENOUGH = 128
"""Narrowing stops when no more values than this are left."""
LEAST_GONE = 0.01
"""Narrowing stops when a step removes less than this share: many values are equal."""
MOST_TURNS = 16
BLOCK = 64
COUNTED = 2**16
"""A float32 counts as many exactly."""
STEP = np.uint32(0x9E3779B1)
"""Places of the sample are this far apart, modulo 2**32: spread evenly, and in no rhythm that audio has."""
INF, MOST = np.float32(np.inf), np.finfo(np.float32).max

f32: TypeAlias = np.float32
u64: TypeAlias = np.uint64


def ranked(share_R: NDArray[np.float64], count_R: NDArray[np.int64]) -> dict[str, Any]:
    """Return the arguments of ``at_rank`` for these shares of the way up, 0 to 1, of rows of ``count`` values.

    There are few bounds, since shapes follow from them.
    """
    last_R = np.maximum(count_R - 1, 0)
    rank_R = share_R * last_R
    last = int(last_R.max())
    step = max(1, (last + 1) // RANGES)
    lowest, highest = int(rank_R.min()) // step * step, min(last, -(-int(rank_R.max()) // step) * step)
    return {"rank": rank_R.astype(np.int64), "fraction": rank_R % 1, "lowest": lowest, "highest": highest}


@primitive
def at_rank(
    x_RN: torch.Tensor,
    rank_R: torch.Tensor,
    fraction_R: torch.Tensor,
    lowest: int,
    highest: int,
    absolute: bool = False,
) -> torch.Tensor:
    """Return the value at rank ``rank + fraction`` of each row, between neighbours linearly, as numpy's percentile.

    Where the fraction is 0 the next value is not looked at; it may be infinite.

    Args:
        x_RN: the values, in any order.
        rank_R: from 0, the smallest value. Rows with NaN have an undefined result.
        fraction_R: 0 to 1.
        lowest: no rank is lower.
        highest: no rank is higher, up to N - 1.
        absolute: take the absolute values.
    """
    # One row's rank after the other is the same rank of all, the highest, once each has enough below its values.
    # Selecting is 4x faster than sorting.
    x_RN = x_RN.abs() if absolute else x_RN
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


@at_rank.loop()
def _at_rank_by_loop(
    x_RN: torch.Tensor,
    rank_R: torch.Tensor,
    fraction_R: torch.Tensor,
    lowest: int,
    highest: int,
    absolute: bool = False,
) -> torch.Tensor:
    found_R = torch.empty_like(fraction_R)
    run(_find_at_rank, len(x_RN), x_RN, rank_R, fraction_R, absolute, found_R)
    return found_R


@at_rank.kernel()
def _at_rank_by_kernel(
    x_RN: torch.Tensor,
    rank_R: torch.Tensor,
    fraction_R: torch.Tensor,
    lowest: int,
    highest: int,
    absolute: bool = False,
) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.at_rank(x_RN, rank_R, fraction_R, absolute)


@loop_as_written
def _find_at_rank(
    x_RN: Floats, rank_R: Integers, fraction_R: Floats, is_absolute: bool, y_R: Floats, first: int, last: int
) -> None:
    """Find the value at ``rank + fraction`` of each row, or of its absolute values; undefined for rows with NaN."""
    kept_N, sample_S = np.empty(x_RN.shape[1], np.float32), np.empty(SAMPLE, np.float32)
    absolute_N = np.empty(x_RN.shape[1] if is_absolute else 0, np.float32)
    for row in range(first, last):
        x_N = x_RN[row]
        if is_absolute:
            for n in range(len(x_N)):
                absolute_N[n] = abs(x_N[n])
            x_N = absolute_N
        value, after = _select(x_N, rank_R[row], kept_N, sample_S)
        if fraction_R[row] > 0 and not after < INF:
            after = _next(x_N, value)
        y_R[row] = value if fraction_R[row] == 0 or value == after else value + (after - value) * fraction_R[row]


@loop_as_written
def _select(x_N: Floats, rank: int, kept_N: Floats, sample_S: Floats) -> tuple[f32, f32]:
    """Return the value at a rank, and the next one, which is infinite if it is not known."""
    some_N = x_N
    for _ in range(MOST_TURNS):
        if len(some_N) <= SAMPLE:
            break
        low, high, below, up_to = _narrow(some_N, rank, sample_S)
        if low == high:
            return low, low if rank + 1 < up_to else INF
        some_N = kept_N[: _keep(some_N, low, high, kept_N)]
        rank -= below
    rest_N = kept_N[: len(some_N)]
    rest_N[:] = some_N
    rest_N.sort()
    if rank >= len(rest_N):
        return f32(np.nan), INF
    return rest_N[rank], rest_N[rank + 1] if rank + 1 < len(rest_N) else INF


@loop_as_written
def _narrow(x_N: Floats, rank: int, sample_S: Floats) -> tuple[f32, f32, int, int]:
    """Return the lowest and the highest value that may be at a rank, and how many are below, and up to the highest."""
    low, high, below, up_to = -INF, INF, 0, len(x_N)
    trial_low, trial_high = _around(x_N, rank, sample_S)
    for _ in range(MOST_TURNS):
        before = up_to - below
        low, high, below, up_to = _tried(x_N, rank, low, high, trial_low, trial_high)
        left, span = up_to - below, high - low
        if left <= ENOUGH or left > (1 - LEAST_GONE) * before or not 0 < span < INF:
            break
        share = (rank + 0.5 - below) / left
        trial_low = max(low, f32(low + span * (share - NEAR)))
        trial_high = min(high, f32(low + span * (share + NEAR)))
    if up_to - below > ENOUGH and low < high:  # if the lowest value is there many times: without it, or it alone
        low, high, below, up_to = _tried(x_N, rank, low, high, low, low)
    return low, high, below, up_to


@loop_as_written
def _tried(x_N: Floats, rank: int, low: f32, high: f32, trial_low: f32, trial_high: f32) -> tuple[f32, f32, int, int]:
    """Return the trial bounds if the rank lies between them, else what is left of the bounds below or above these."""
    below, up_to = _count(x_N, trial_low, trial_high)
    if below <= rank < up_to:
        return trial_low, trial_high, below, up_to
    if rank < below:
        high = np.nextafter(trial_low, -INF)
    else:
        low = np.nextafter(trial_high, INF)
    below, up_to = _count(x_N, low, high)  # again: where denormal numbers are taken for 0, these may be the same
    return low, high, below, up_to


@loop_as_written
def _around(x_N: Floats, rank: int, sample_S: Floats) -> tuple[f32, f32]:
    """Return two finite values that most probably are below and above a rank, as they are in a sample."""
    place = np.uint32(0)
    for s in range(SAMPLE):
        place = np.uint32(place + STEP)
        sample_S[s] = x_N[u64(place) * u64(len(x_N)) >> u64(32)]
    sample_S.sort()
    share = rank / len(x_N)
    aside = DEVIATIONS * (math.sqrt(SAMPLE * share * (1 - share)) + 0.5)
    low, high = sample_S[max(0, int(share * SAMPLE - aside))], sample_S[min(SAMPLE - 1, int(share * SAMPLE + aside))]
    return min(low, MOST), min(high, MOST)


@loop_of_sums
def _count(x_N: Floats, low: f32, high: f32) -> tuple[int, int]:
    """Return how many values are below the low one, and how many up to the high one."""
    below = up_to = 0
    for begin in range(0, len(x_N), COUNTED):
        some_N, some_below, some_up_to = x_N[begin : min(begin + COUNTED, len(x_N))], f32(0.0), f32(0.0)
        for n in range(len(some_N)):
            some_below += f32(some_N[n] < low)
            some_up_to += f32(some_N[n] <= high)
        below += int(some_below)
        up_to += int(some_up_to)
    return below, up_to


@loop_of_sums
def _keep(x_N: Floats, low: f32, high: f32, kept_N: Floats) -> int:
    """Copy the values from low to high to the start of ``kept``, which may be the same memory. Return how many."""
    kept = 0
    for begin in range(0, len(x_N), BLOCK):
        some_N, inside = x_N[begin : min(begin + BLOCK, len(x_N))], f32(0.0)
        for n in range(len(some_N)):
            inside += f32(some_N[n] <= high) - f32(some_N[n] < low)
        if inside > 0:
            for n in range(len(some_N)):
                value = some_N[n]
                if low <= value and value <= high:
                    kept_N[kept] = value
                    kept += 1
    return kept


@loop_as_written
def _next(x_N: Floats, low: f32) -> f32:
    """Return the lowest value above ``low``."""
    higher = INF
    for n in range(len(x_N)):
        if low < x_N[n] < higher:
            higher = x_N[n]
    return higher
