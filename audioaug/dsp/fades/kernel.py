"""Kernels that fade segments of rows in place, and join segments with fades.

Shapes: B examples, C channels, T samples, K segments.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program computes."""


def silence_segment(
    y_BCT: torch.Tensor, start_B: torch.Tensor, count_B: torch.Tensor, fade_B: torch.Tensor, bend_by: float
) -> None:
    """Do what ``fades.silence_segment`` does to rows whose samples lie together, with fades that bend."""
    channels, samples = y_BCT.shape[1:]
    numbers = *y_BCT.stride()[:2], bend_by, channels, samples
    dispatch.launch(_silence, grid_of(y_BCT, BLOCK), y_BCT, start_B, count_B, fade_B, *numbers, BLOCK=BLOCK)


def fade_around(y_BCT: torch.Tensor, stitch_B: torch.Tensor, fade: int, bend_by: float) -> None:
    """Do what ``fades.fade_around`` does to rows whose samples lie together, with fades that bend."""
    rows, channels, samples = y_BCT.shape
    grid = rows * channels, triton.cdiv(2 * fade, BLOCK)
    numbers = *y_BCT.stride()[:2], bend_by, channels, samples
    dispatch.launch(_fade, grid, y_BCT, stitch_B, fade, *numbers, BLOCK=BLOCK)


def crossfaded_segments(
    x_BCT: torch.Tensor,
    begin_BK: torch.Tensor,
    by_BK: torch.Tensor,
    same_sound_B: torch.Tensor,
    samples_out: int,
    fade: int,
    energy_bend: float,
    gain_bend: float,
) -> torch.Tensor:
    """Return what ``fades.crossfaded_segments`` does, with fades that bend."""
    y_BCT = x_BCT.new_empty(*x_BCT.shape[:2], samples_out)
    rows = x_BCT.contiguous(), begin_BK.contiguous(), by_BK.contiguous(), same_sound_B.contiguous()
    sizes = x_BCT.shape[-1], samples_out, begin_BK.shape[1], x_BCT.shape[1]
    dispatch.launch(_join, grid_of(y_BCT, BLOCK), y_BCT, *rows, *sizes, fade, energy_bend, gain_bend, BLOCK=BLOCK)
    return y_BCT


@kernel
def _silence(
    y_ptr, start_ptr, count_ptr, fade_ptr, stride_B, stride_C, bend_by, channels, samples, BLOCK: tl.constexpr
):
    example = tl.program_id(0) // channels
    count, fade = tl.load(count_ptr + example), tl.load(fade_ptr + example)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    into = place - tl.load(start_ptr + example)
    from_edge = tl.minimum(into, count - 1 - into)
    gain = tl.where(from_edge < fade, _crossfade(fade - 1 - from_edge, fade, bend_by), 0.0)
    _multiply(_row(y_ptr, stride_B, stride_C, channels) + place, gain, (from_edge >= 0) & (place < samples))


@kernel
def _fade(y_ptr, stitch_ptr, fade, stride_B, stride_C, bend_by, channels, samples, BLOCK: tl.constexpr):
    stitch = tl.load(stitch_ptr + tl.program_id(0) // channels)
    after = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) - fade
    place = stitch + after
    gain = _crossfade(tl.maximum(after, -1 - after), fade, bend_by)
    _multiply(
        _row(y_ptr, stride_B, stride_C, channels) + place, gain, (after < fade) & (place >= 0) & (place < samples)
    )


@kernel
def _join(
    y_ptr,
    x_ptr,
    begin_ptr,
    by_ptr,
    same_ptr,
    samples,
    wanted,
    segments,
    channels,
    fade,
    energy_bend,
    gain_bend,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)
    first, same = part // channels * segments, tl.load(same_ptr + part // channels)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = place - tl.load(by_ptr + first)
    before, into = source, source * 0 + fade  # the first segment is not faded in
    bend_by = tl.full([BLOCK], 0.0, tl.float32)
    k = 1
    while k < segments:
        begin = tl.load(begin_ptr + first + k)
        begun = place >= begin
        before = tl.where(begun, place - tl.load(by_ptr + first + k - 1), before)
        source = tl.where(begun, place - tl.load(by_ptr + first + k), source)
        into = tl.where(begun, place - begin, into)
        bend_by = tl.where(begun, tl.where(same == k, gain_bend, energy_bend), bend_by)
        k += 1
    row_ptr, fades = x_ptr + part * samples, (place < wanted) & (into < fade)
    value = tl.load(row_ptr + source, mask=(place < wanted) & (source >= 0) & (source < samples), other=0.0)
    old = tl.load(row_ptr + before, mask=fades & (before >= 0) & (before < samples), other=0.0)
    faded = value * _crossfade(into, fade, bend_by) + old * _crossfade(fade - 1 - into, fade, bend_by)
    tl.store(y_ptr + part * wanted + place, tl.where(fades, faded, value), mask=place < wanted)


@triton.jit
def _row(y_ptr, stride_B, stride_C, channels):
    example, channel = tl.program_id(0) // channels, tl.program_id(0) % channels
    return y_ptr + example.to(tl.int64) * stride_B + channel.to(tl.int64) * stride_C


@triton.jit
def _multiply(at, gain, inside):
    tl.store(at, tl.load(at, mask=inside, other=0.0) * gain, mask=inside)


@triton.jit
def _crossfade(position, length, bend_by):
    """Do what ``fades.crossfade`` does, within the fade."""
    x = position.to(tl.float32) / tl.maximum(length - 1, 1).to(tl.float32)
    bend = x - x * x
    gain = (bend_by * bend + 1.0) * bend + x
    return gain * gain
