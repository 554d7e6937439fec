"""A kernel that rounds samples to multiples of a step.

Shapes: B examples, C channels, T samples; the grid is rows (a channel of an example each) by blocks.
"""

import torch
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel, memory_for

BLOCK = 1024
"""Samples that a program computes."""


def quantized(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return what ``quantization.quantized`` does, bit for bit."""
    out = memory_for(x_BCT, out)
    rows = x_BCT.contiguous(), steps_B.contiguous(), *x_BCT.shape[1:]
    # Fused, a product would not be rounded before it is rounded to a whole number: the definition does both.
    exactly = {"enable_fp_fusion": False}
    dispatch.launch(_quantize, grid_of(out, BLOCK), out, *rows, BLOCK=BLOCK, **exactly)
    return out


@kernel
def _quantize(y_ptr, x_ptr, steps_ptr, channels, samples, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + part * samples + place, mask=place < samples, other=0.0)
    steps = tl.load(steps_ptr + part // channels)
    # Numbers as large as 2**23 have no digits after the point, so that adding and subtracting it rounds smaller ones,
    # halves to even.
    size = tl.abs(x * steps)
    whole = tl.where(size < 8388608.0, (size + 8388608.0) - 8388608.0, size)
    signed = tl.div_rn(whole, steps).to(tl.int32, bitcast=True) | (x.to(tl.int32, bitcast=True) & -2147483648)
    tl.store(y_ptr + part * samples + place, signed.to(tl.float32, bitcast=True), mask=place < samples)
