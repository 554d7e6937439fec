"""A kernel that interpolates signals, at a rate for each row.

Shapes: B examples, C channels, T samples, N samples at twice the rate, K samples of the result.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 512
"""Samples of the result that a program computes."""


def interpolate(
    fine_BCN: torch.Tensor,
    x_BCT: torch.Tensor,
    step_B: torch.Tensor,
    length_B: torch.Tensor,
    factors: Sequence[Sequence[float]],
    bits: int,
    samples_out: int,
) -> torch.Tensor:
    """Return what ``resample`` does of clips at twice their rate, (B, C, K).

    Args:
        fine_BCN: periodic signals of twice the rate.
        x_BCT: the clips themselves, for steps of 1.
        step_B: old rate over new rate, times 2**bits.
        length_B: of the clips; after it, the result is silent.
        factors: of the weights of half of the taps, by the powers of the distance from the middle between two samples.
        bits: how many of a time are its fraction.
        samples_out: K.
    """
    out = x_BCT.new_empty(*x_BCT.shape[:2], samples_out)
    values = fine_BCN.contiguous(), x_BCT.contiguous(), step_B.contiguous(), length_B.contiguous()
    sizes = fine_BCN.shape[-1], x_BCT.shape[-1], samples_out, x_BCT.shape[1]
    grid = out.shape[0] * out.shape[1], triton.cdiv(samples_out, BLOCK)
    constants = tuple(tuple(each) for each in factors)
    dispatch.launch(_interpolate, grid, out, *values, *sizes, FACTORS=constants, BITS=bits, BLOCK=BLOCK)
    return out


@kernel
def _interpolate(
    y_ptr,
    fine_ptr,
    x_ptr,
    step_ptr,
    length_ptr,
    fine,
    samples,
    wanted,
    channels,
    FACTORS: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0)  # an example's channel
    step, length = tl.load(step_ptr + part // channels), tl.load(length_ptr + part // channels)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = place.to(tl.int64) * step
    heard = (place < wanted) & ((time >> BITS) < length)
    whole = time >> (BITS - 1)
    off = (time - (whole << (BITS - 1))).to(tl.float32) * 2.0 ** (1 - BITS) - 0.5
    before, square = whole.to(tl.int32), off * off
    taps: tl.constexpr = 2 * len(FACTORS)
    row_ptr = fine_ptr + part.to(tl.int64) * fine
    value = tl.full([BLOCK], 0.0, tl.float32)
    for tap in tl.static_range(len(FACTORS)):
        even = tl.full([BLOCK], FACTORS[tap][8], tl.float32)
        odd = tl.full([BLOCK], FACTORS[tap][7], tl.float32)
        for power in tl.static_range(6, -1, -2):
            even = even * square + FACTORS[tap][power]
        for power in tl.static_range(5, 0, -2):
            odd = odd * square + FACTORS[tap][power]
        odd = odd * off
        early, late = before + (tap + 1 - taps // 2), before + (taps // 2 - tap)
        early, late = tl.where(early < 0, early + fine, early), tl.where(late < fine, late, late - fine)
        value += (even + odd) * tl.load(row_ptr + early, mask=heard, other=0.0)
        value += (even - odd) * tl.load(row_ptr + late, mask=heard, other=0.0)
    same = step == (1 << BITS)
    own = tl.load(x_ptr + part.to(tl.int64) * samples + place, mask=heard & same & (place < samples), other=0.0)
    value = tl.where(same, own, value)
    tl.store(y_ptr + part.to(tl.int64) * wanted + place, tl.where(heard, value, 0.0), mask=place < wanted)
