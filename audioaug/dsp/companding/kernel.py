"""A kernel that encodes samples in 8 bits and decodes them.

Shapes: B examples, C channels, T samples; the grid is rows (a channel of an example each) by blocks.
"""

import torch
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel, memory_for

BLOCK = 1024
"""Samples that a program computes."""


def companded(
    x_BCT: torch.Tensor, full_B: torch.Tensor, scale: tuple[float, float, float, float], out: torch.Tensor | None
) -> torch.Tensor:
    """Return what ``companding.companded`` does."""
    out = memory_for(x_BCT, out)
    rows = x_BCT.contiguous(), full_B.contiguous(), *x_BCT.shape[1:]
    # Fused, a product would not be rounded before it is rounded to a whole number: libsndfile does both.
    exactly = {"enable_fp_fusion": False}
    dispatch.launch(_compand, grid_of(out, BLOCK), out, *rows, *scale, BLOCK=BLOCK, **exactly)
    return out


@kernel
def _compand(y_ptr, x_ptr, full_ptr, channels, samples, steps, most, bias, step, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + part * samples + place, mask=place < samples, other=0.0)
    full = tl.load(full_ptr + part // channels)
    # A GPU's division may be off by a digit: a power of 2 is inverted by its exponent. Numbers as large as 2**23 have
    # no digits after the point, so that adding and subtracting it rounds, halves to even.
    inverse = (2130706432 - full.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    size = (tl.abs(x * inverse) * steps + 8388608.0) - 8388608.0
    biased = tl.minimum(size, most) + bias
    digits = (biased.to(tl.int32, bitcast=True) & -524288) | 262144
    middle = tl.where(biased < 16.0, biased + 0.5, digits.to(tl.float32, bitcast=True))
    value = (middle - bias) * step * full
    tl.store(y_ptr + part * samples + place, tl.where(x < 0.0, -value, value), mask=place < samples)
