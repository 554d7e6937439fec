"""Kernels that reduce rows to one number each, or change their gain.

Shapes: R rows, N values, B examples, C channels, T samples.
"""

import math

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel, memory_for

BLOCK = 1024
"""Values that a program takes together."""

SORTED = 4096
"""Values that are counted by their digits together."""


def rms(x_RN: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    """Return the norm of each row over the root of its count; rows that follow each other may share one."""
    y_R = x_RN.new_empty(x_RN.shape[:-1])
    sizes = x_RN.shape[-1], y_R.numel() // count_R.numel()
    dispatch.launch(_rms, (y_R.numel(),), y_R, x_RN.contiguous(), count_R.contiguous(), *sizes, BLOCK=BLOCK)
    return y_R


def peak(x_RN: torch.Tensor) -> torch.Tensor:
    """Return the highest absolute value of each row."""
    y_R = x_RN.new_empty(x_RN.shape[:-1])
    x_RN = x_RN if x_RN.stride(-1) == 1 else x_RN.contiguous()
    dispatch.launch(_peak, (y_R.numel(),), y_R, x_RN, x_RN.shape[-1], x_RN.stride(0), BLOCK=BLOCK)
    return y_R


def change_gain(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Return what ``levels.change_gain`` does."""
    out = memory_for(x_BCT, out)
    gains = x_BCT.contiguous(), start_db_B.contiguous(), end_db_B.contiguous()
    numbers = steps_B.contiguous(), begin_B.contiguous(), *x_BCT.shape[1:], math.log(10) / 20
    dispatch.launch(_change_gain, grid_of(out, BLOCK), out, *gains, *numbers, BLOCK=BLOCK)
    return out


def divide_by_peak(
    x_BCT: torch.Tensor, peak_B11: torch.Tensor, out: torch.Tensor | None, least: float = 0.0, level: float = 1.0
) -> torch.Tensor:
    """Return examples with their peak brought to a level, if it is above 0 and not below ``least``; else the examples.

    ``out`` may be x itself.
    """
    out = memory_for(x_BCT, out)
    x_BCT = x_BCT if x_BCT.stride(-1) == 1 else x_BCT.contiguous()
    numbers = x_BCT, peak_B11.contiguous(), *x_BCT.stride()[:2], *x_BCT.shape[1:], least, level
    dispatch.launch(_divide, grid_of(out, BLOCK), out, *numbers, BLOCK=BLOCK)
    return out


def at_rank(x_RN: torch.Tensor, rank_R: torch.Tensor, fraction_R: torch.Tensor, absolute: bool) -> torch.Tensor:
    """Return what ``percentile.at_rank`` does."""
    y_R, kept = x_RN.new_empty(len(x_RN)), 0x7FFFFFFF if absolute else -1
    numbers = x_RN.contiguous(), rank_R.contiguous(), fraction_R.contiguous(), x_RN.shape[1], kept
    dispatch.launch(_at_rank, (len(x_RN),), y_R, *numbers, BLOCK=SORTED, num_warps=8)
    return y_R


def added_at(
    x_BCT: torch.Tensor, other_BCT: torch.Tensor, level_B: torch.Tensor, own_B: torch.Tensor, silence: float
) -> torch.Tensor:
    """Return what ``levels.added_at`` does."""
    other_BCT = other_BCT.contiguous()
    values = x_BCT.contiguous(), other_BCT, level_B.contiguous(), own_B.contiguous()
    dispatch.launch(_add_at, grid_of(x_BCT, BLOCK), other_BCT, *values, silence, *x_BCT.shape[1:], BLOCK=BLOCK)
    return other_BCT


@kernel
def _add_at(y_ptr, x_ptr, other_ptr, level_ptr, own_ptr, silence, channels, samples, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    time = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    level, own = tl.load(level_ptr + row // channels), tl.load(own_ptr + row // channels)
    gain = tl.where(own < silence, 0.0, level / tl.where(own < silence, 1.0, own))
    place, inside = row * samples + time, time < samples
    other = tl.load(other_ptr + place, mask=inside)
    tl.store(y_ptr + place, tl.load(x_ptr + place, mask=inside) + gain * other, mask=inside)


@kernel
def _at_rank(y_ptr, x_ptr, rank_ptr, fraction_ptr, count, kept, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    row_ptr, rank = x_ptr + row * count, tl.load(rank_ptr + row).to(tl.int32)
    # Digit after digit, from the highest: how many numbers that begin as the one at the rank go on with each digit.
    known, equal = tl.full([1], 0, tl.uint32), rank * 0
    digits, digit = tl.arange(0, 256), 0
    while digit < 4:
        found, begin = tl.full([256], 0, tl.int32), 0
        while begin < count:
            place = begin + tl.arange(0, BLOCK)
            value, own = _ordered(row_ptr, place, count, kept), place < count
            own = own & ((digit == 0) | ((value >> (32 - 8 * tl.maximum(digit, 1))) == known))
            found += tl.histogram(((value >> (24 - 8 * digit)) & 255).to(tl.int32), 256, mask=own)
            begin += BLOCK
        lower = tl.associative_scan(found, 0, added) <= rank
        here = tl.reduce(lower.to(tl.int32), 0, added)
        rank -= tl.reduce(tl.where(lower, found, 0), 0, added)
        equal = tl.reduce(tl.where(digits == here, found, 0), 0, added)
        known = known * 256 + here.to(tl.uint32)
        digit += 1
    above, begin = tl.full([BLOCK], 0xFFFFFFFF, tl.uint32), 0
    while begin < count:
        value = _ordered(row_ptr, begin + tl.arange(0, BLOCK), count, kept)
        above = tl.where((value > known) & (value < above), value, above)
        begin += BLOCK
    higher = tl.reduce(above, 0, smaller)
    fraction, low = tl.load(fraction_ptr + row), _number(known)
    is_low = (fraction <= 0) | (rank + 1 < equal) | (higher == 0xFFFFFFFF)
    high = tl.where(is_low, low, _number(higher))
    tl.store(y_ptr + row + tl.arange(0, 1), low + (high - low) * fraction)


@triton.jit
def _ordered(row_ptr, place, count, kept):
    """Return bits of which, as whole numbers, the order is that of the values; those past the end are highest.

    Of the values, all bits are ``kept``, or all but the sign.
    """
    value = tl.load(row_ptr + place, mask=place < count, other=0.0)
    bits = (value.to(tl.int32, bitcast=True) & kept).to(tl.uint32, bitcast=True)
    ordered = bits ^ tl.where((bits >> 31) != 0, 0xFFFFFFFF, 0x80000000).to(tl.uint32)
    return tl.where(place < count, ordered, 0xFFFFFFFF).to(tl.uint32)


@triton.jit
def _number(ordered):
    bits = ordered ^ tl.where((ordered >> 31) != 0, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return bits.to(tl.float32, bitcast=True)


@kernel
def _change_gain(y_ptr, x_ptr, start_ptr, end_ptr, steps_ptr, begin_ptr, channels, samples, unit, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    example, place = part // channels, tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    into = (place - tl.load(begin_ptr + example)).to(tl.float32) / tl.load(steps_ptr + example).to(tl.float32)
    start, end = tl.load(start_ptr + example), tl.load(end_ptr + example)
    decibels = start + (end - start) * tl.minimum(tl.maximum(into, 0.0), 1.0)
    value = tl.load(x_ptr + part * samples + place, mask=place < samples, other=0.0)
    tl.store(y_ptr + part * samples + place, value * tl.exp(decibels * unit), mask=place < samples)


@kernel
def _rms(y_ptr, x_ptr, heard_ptr, count, rows, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total, begin = tl.full([BLOCK], 0.0, tl.float32), 0
    while begin < count:
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + row * count + place, mask=place < count, other=0.0)
        total += value * value
        begin += BLOCK
    heard = tl.maximum(tl.load(heard_ptr + row // rows), 1).to(tl.float32)
    tl.store(y_ptr + row, tl.sqrt(tl.reduce(total, 0, added) / heard))


@kernel
def _peak(y_ptr, x_ptr, count, step, BLOCK: tl.constexpr):
    """Compare values as integers, without their sign: of these, what is not a number is the highest."""
    row = tl.program_id(0).to(tl.int64)
    highest, begin = tl.full([BLOCK], 0, tl.int32), 0
    while begin < count:
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + row * step + place, mask=place < count, other=0.0)
        highest = tl.maximum(highest, value.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
        begin += BLOCK
    tl.store(y_ptr + row, tl.reduce(highest, 0, larger).to(tl.float32, bitcast=True))


@kernel
def _divide(
    y_ptr, x_ptr, peak_ptr, example_stride, channel_stride, channels, samples, least, level, BLOCK: tl.constexpr
):
    part = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    example, channel, inside = part // channels, part % channels, place < samples
    peak = tl.load(peak_ptr + example)
    changes = (peak > 0.0) & (peak >= least)
    value = tl.load(x_ptr + example * example_stride + channel * channel_stride + place, mask=inside, other=0.0)
    value = tl.where(changes, tl.div_rn(value, tl.where(changes, peak, 1.0)) * level, value)
    tl.store(y_ptr + part * samples + place, value, mask=inside)


@triton.jit
def added(a, b):
    """Return the sum: to reduce values by, as the two below."""
    return a + b


@triton.jit
def larger(a, b):
    """Return the larger value."""
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    """Return the smaller value."""
    return tl.minimum(a, b)
