"""Kernels that fade segments of rows in place.

Shapes: B examples, C channels, T samples.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 1024
"""Samples that a program computes."""


def silence_segment(
    y_BCT: torch.Tensor, start_B: torch.Tensor, count_B: torch.Tensor, fade_B: torch.Tensor, bend_by: float
) -> None:
    """Do what ``fades.silence_segment`` does to rows whose samples lie together, with fades that bend."""
    rows, channels, samples = y_BCT.shape
    grid = rows * channels, triton.cdiv(samples, BLOCK)
    numbers = *y_BCT.stride()[:2], bend_by, channels, samples
    dispatch.launch(_silence, grid, y_BCT, start_B, count_B, fade_B, *numbers, BLOCK=BLOCK)


def fade_around(y_BCT: torch.Tensor, stitch_B: torch.Tensor, fade: int, bend_by: float) -> None:
    """Do what ``fades.fade_around`` does to rows whose samples lie together, with fades that bend."""
    rows, channels, samples = y_BCT.shape
    grid = rows * channels, triton.cdiv(2 * fade, BLOCK)
    numbers = *y_BCT.stride()[:2], bend_by, channels, samples
    dispatch.launch(_fade, grid, y_BCT, stitch_B, fade, *numbers, BLOCK=BLOCK)


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
