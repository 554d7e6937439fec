"""A kernel that reads rows at fewer places and back: each sample from the four that it depends on.

Shapes: B examples, C channels, T samples; the grid is rows (a channel of an example each) by blocks.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 512
"""Samples that a program computes."""


def alias(x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor) -> torch.Tensor:
    """Return what ``aliasing.alias`` does; past the end of a row is silence."""
    y_BCT = torch.empty_like(x_BCT, memory_format=torch.contiguous_format)
    rows = x_BCT.contiguous(), length_B.contiguous(), left_B.contiguous()
    dispatch.launch(_alias, grid_of(y_BCT, BLOCK), y_BCT, *rows, x_BCT.shape[-1], x_BCT.shape[1], BLOCK=BLOCK)
    return y_BCT


@kernel
def _alias(y_ptr, x_ptr, length_ptr, left_ptr, samples, channels, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    last, last_left = tl.load(length_ptr + part // channels) - 1, tl.load(left_ptr + part // channels) - 1
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (place <= last) & (place < samples)
    # Of those wanted, place i lies at i * last / steps of those there are. In whole numbers: float32 is too coarse.
    at, steps = tl.where(inside, place, 0) * last_left, tl.maximum(last, 1)
    before = at // steps
    here = _read(x_ptr + part * samples, before, last, last_left, inside)
    there = _read(x_ptr + part * samples, tl.minimum(before + 1, last_left), last, last_left, inside)
    share = (at - before * steps).to(tl.float32) / steps.to(tl.float32)
    value = here + (there - here) * share
    tl.store(y_ptr + part * samples + place, tl.where(inside, value, 0.0), mask=place < samples)


@triton.jit
def _read(row_ptr, place, last, last_left, inside):
    """Return the row at one of the places that are left."""
    steps = tl.maximum(last_left, 1)
    at = place * last
    before = at // steps
    here = tl.load(row_ptr + before, mask=inside, other=0.0)
    there = tl.load(row_ptr + tl.minimum(before + 1, last), mask=inside, other=0.0)
    return here + (there - here) * ((at - before * steps).to(tl.float32) / steps.to(tl.float32))
