"""Ranks: the value at a rank of each row, by a loop that sorts only what a sample of the row leaves of it.

Reference: R. W. Floyd and R. L. Rivest, "Expected time bounds for selection" (1975). On the way bounds are narrowed by
counting, since processors count eight values at a time and more, and copy those between two bounds one by one.

Shapes: R rows, N values, S of a sample.
"""

import math
from typing import TypeAlias

import numpy as np

from audioaug.dsp.loops import Floats, Integers, loop_as_written, loop_of_sums

SAMPLE = 256
SPREAD = 2.5
"""A rank is looked for as many standard deviations around where the sample has it."""
NEAR = 0.06
"""And then in this share of what is left, on both sides of where it would be if that were even."""
FEW = 128
"""Values that need not become fewer before they are sorted."""
LEAST_GONE = 0.01
"""Of what is left; where less goes in a turn, many values are the same, and a new sample helps."""
MOST_TURNS = 16
BLOCK = 64
COUNTED = 2**16
"""A float32 counts as many without an error."""
STEP = np.uint32(0x9E3779B1)
"""Places of the sample are this far apart, modulo 2**32: spread evenly, and in no rhythm that audio has."""
INF = np.float32(np.inf)

f32: TypeAlias = np.float32
u64: TypeAlias = np.uint64


@loop_as_written
def find_at_rank(x_RN: Floats, rank_R: Integers, fraction_R: Floats, y_R: Floats, first: int, last: int) -> None:
    """Find the value at ``rank + fraction`` of each row. NaN has no rank: of rows that have some, it is undefined."""
    kept_N, sample_S = np.empty(x_RN.shape[1], np.float32), np.empty(SAMPLE, np.float32)
    for row in range(first, last):
        low, high = _select(x_RN[row], rank_R[row], kept_N, sample_S)
        if fraction_R[row] > 0 and not high < INF:
            high = _next(x_RN[row], low)
        y_R[row] = low if fraction_R[row] == 0 or low == high else low + (high - low) * fraction_R[row]


@loop_as_written
def _select(x_N: Floats, rank: int, kept_N: Floats, sample_S: Floats) -> tuple[f32, f32]:
    """Return the value at a rank, and the next one, which is infinite if it is not known."""
    some_N = x_N
    for _ in range(MOST_TURNS):
        if len(some_N) <= SAMPLE:
            break
        low, high, below, upto = _narrow(some_N, rank, sample_S)
        if low == high:
            return low, low if rank + 1 < upto else INF
        some_N = kept_N[: _keep(some_N, low, high, kept_N)]
        rank -= below
    last_N = kept_N[: len(some_N)]
    last_N[:] = some_N
    last_N.sort()
    if rank >= len(last_N):
        return f32(np.nan), INF
    return last_N[rank], last_N[rank + 1] if rank + 1 < len(last_N) else INF


@loop_as_written
def _narrow(x_N: Floats, rank: int, sample_S: Floats) -> tuple[f32, f32, int, int]:
    """Return the lowest and the highest value that may be at a rank, and how many are below, and up to the highest."""
    low, high, below, upto = -INF, INF, 0, len(x_N)
    first, last = _around(x_N, rank, sample_S)
    for _ in range(MOST_TURNS):
        before, (under, until) = upto - below, _count(x_N, first, last)
        if under <= rank < until:
            low, high, below, upto = first, last, under, until
        else:
            if rank < under:
                high = np.nextafter(first, -INF)
            else:
                low = np.nextafter(last, INF)
            below, upto = _count(x_N, low, high)  # again: where denormal numbers are taken for 0, these may be the same
        left, span = upto - below, high - low
        if left <= FEW or left > (1 - LEAST_GONE) * before or not 0 < span < INF:
            break
        share = (rank + 0.5 - below) / left
        first, last = max(low, f32(low + span * (share - NEAR))), min(high, f32(low + span * (share + NEAR)))
    return low, high, below, upto


@loop_as_written
def _around(x_N: Floats, rank: int, sample_S: Floats) -> tuple[f32, f32]:
    """Return two values of a sample that most probably are below and above a rank."""
    place = np.uint32(0)
    for s in range(SAMPLE):
        place = np.uint32(place + STEP)
        sample_S[s] = x_N[u64(place) * u64(len(x_N)) >> u64(32)]
    sample_S.sort()
    share = rank / len(x_N)
    aside = SPREAD * (math.sqrt(SAMPLE * share * (1 - share)) + 0.5)
    return sample_S[max(0, int(share * SAMPLE - aside))], sample_S[min(SAMPLE - 1, int(share * SAMPLE + aside))]


@loop_of_sums
def _count(x_N: Floats, first: f32, last: f32) -> tuple[int, int]:
    """Return how many values are below the first, and how many up to the last."""
    under = until = 0
    for begin in range(0, len(x_N), COUNTED):
        some_N, some_under, some_until = x_N[begin : min(begin + COUNTED, len(x_N))], f32(0.0), f32(0.0)
        for n in range(len(some_N)):
            some_under += f32(some_N[n] < first)
            some_until += f32(some_N[n] <= last)
        under += int(some_under)
        until += int(some_until)
    return under, until


@loop_of_sums
def _keep(x_N: Floats, low: f32, high: f32, kept_N: Floats) -> int:
    """Copy the values from low to high to where ``kept`` begins, which may be the same memory. Return how many."""
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
