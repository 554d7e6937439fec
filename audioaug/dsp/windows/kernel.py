"""Kernels that read each sample of a result from where it lies in the rows.

Shapes: B examples, C channels, T samples, K segments; the grid is rows (a channel of an example each) by blocks.
"""

import torch
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program computes."""

MODES = {"silence": 0, "wrap": 1, "reflect": 2}


def join_segments(x_BCT: torch.Tensor, begin_BK: torch.Tensor, by_BK: torch.Tensor, samples_out: int) -> torch.Tensor:
    """Return what ``windows.join_segments`` does."""
    y_BCT = x_BCT.new_empty(*x_BCT.shape[:2], samples_out)
    rows = x_BCT.contiguous(), begin_BK.contiguous(), by_BK.contiguous()
    sizes = x_BCT.shape[-1], samples_out, begin_BK.shape[1], x_BCT.shape[1]
    dispatch.launch(_join, grid_of(y_BCT, BLOCK), y_BCT, *rows, *sizes, BLOCK=BLOCK)
    return y_BCT


def roll(x_BCT: torch.Tensor, by_B: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
    """Return what ``windows.rolled`` does; past the end of a row is silence."""
    y_BCT = torch.empty_like(x_BCT, memory_format=torch.contiguous_format)
    rows = x_BCT.contiguous(), by_B.contiguous(), length_B.contiguous()
    dispatch.launch(_roll, grid_of(y_BCT, BLOCK), y_BCT, *rows, x_BCT.shape[-1], x_BCT.shape[1], BLOCK=BLOCK)
    return y_BCT


def pad(
    x_BCT: torch.Tensor, start_B: torch.Tensor, length_B: torch.Tensor, place_B: torch.Tensor, samples: int, mode: str
) -> torch.Tensor:
    """Return what ``windows.pad`` does, (B, C, samples)."""
    y_BCT = x_BCT.new_empty(*x_BCT.shape[:2], samples)
    rows = x_BCT.contiguous(), start_B.contiguous(), length_B.contiguous(), place_B.contiguous()
    sizes = x_BCT.shape[-1], samples, x_BCT.shape[1], MODES[mode]
    dispatch.launch(_pad, grid_of(y_BCT, BLOCK), y_BCT, *rows, *sizes, BLOCK=BLOCK)
    return y_BCT


def silence_past_ends(x_BCT: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
    """Do what ``windows.silence_past_ends`` does to contiguous rows, in place."""
    sizes = x_BCT.shape[-1], x_BCT.shape[1]
    dispatch.launch(_silence, grid_of(x_BCT, BLOCK), x_BCT, length_B.contiguous(), *sizes, BLOCK=BLOCK)
    return x_BCT


@kernel
def _silence(x_ptr, length_ptr, samples, channels, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    past = (place >= tl.load(length_ptr + part // channels)) & (place < samples)
    tl.store(x_ptr + part * samples + place, tl.full([BLOCK], 0.0, tl.float32), mask=past)


@kernel
def _join(y_ptr, x_ptr, begin_ptr, by_ptr, samples, wanted, segments, channels, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    first = part // channels * segments
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = place - tl.load(by_ptr + first)
    k = 1
    while k < segments:
        source = tl.where(place >= tl.load(begin_ptr + first + k), place - tl.load(by_ptr + first + k), source)
        k += 1
    inside = place < wanted
    value = tl.load(x_ptr + part * samples + source, mask=inside & (source >= 0) & (source < samples), other=0.0)
    tl.store(y_ptr + part * wanted + place, value, mask=inside)


@kernel
def _roll(y_ptr, x_ptr, by_ptr, length_ptr, samples, channels, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    length = tl.load(length_ptr + part // channels)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = place - tl.load(by_ptr + part // channels)
    source = tl.where(source < 0, source + length, source)
    value = tl.load(x_ptr + part * samples + source, mask=(place < length) & (place < samples), other=0.0)
    tl.store(y_ptr + part * samples + place, value, mask=place < samples)


@kernel
def _pad(y_ptr, x_ptr, start_ptr, length_ptr, place_ptr, samples, wanted, channels, mode, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    example = part // channels
    length, place = tl.load(length_ptr + example), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    within = place - tl.load(place_ptr + example)
    period = tl.maximum(tl.where(mode == 2, 2 * length - 2, length), 1)
    again = within % period
    again = tl.where(again < 0, again + period, again)  # % has the sign of what is divided
    again = tl.where(mode == 2, tl.minimum(again, period - again) * (length > 1), again)
    source = tl.load(start_ptr + example) + tl.where(mode == 0, within, again)
    source = tl.where(mode == 0, source, tl.minimum(tl.maximum(source, 0), samples - 1))
    inside = (place < wanted) & (source >= 0) & (source < samples)
    inside = inside & ((mode != 0) | ((within >= 0) & (within < length)))
    value = tl.load(x_ptr + part * samples + source, mask=inside, other=0.0)
    tl.store(y_ptr + part * wanted + place, value, mask=place < wanted)
