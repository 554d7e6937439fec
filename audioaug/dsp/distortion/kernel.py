"""Kernels that bend examples by tanh and restore their levels.

Shapes: B examples, C channels, T samples; the grid is rows (a channel of an example each), perhaps by blocks.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel, memory_for
from audioaug.dsp.levels.kernel import added

BLOCK = 1024
"""Samples that a program computes."""

MEASURED = 4096
"""Samples that a program measures together."""


def distorted(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    """Return what ``distortion.distorted`` does."""
    out = memory_for(x_BCT, out)
    rms_BC2 = x_BCT.new_empty(*x_BCT.shape[:2], 2)
    x_BCT, threshold_B, sizes = x_BCT.contiguous(), threshold_B.contiguous(), x_BCT.shape[1:]
    numbers = x_BCT, threshold_B, length_B.contiguous(), *sizes
    dispatch.launch(_measure, (rms_BC2.numel() // 2,), rms_BC2, *numbers, BLOCK=MEASURED, num_warps=8)
    dispatch.launch(_distort, grid_of(out, BLOCK), out, x_BCT, threshold_B, rms_BC2, *sizes, BLOCK=BLOCK)
    return out


@kernel
def _measure(rms_ptr, x_ptr, threshold_ptr, length_ptr, channels, samples, BLOCK: tl.constexpr):
    """Find the RMS of each row, and of what tanh makes of it."""
    part = tl.program_id(0).to(tl.int64)
    gain = _gain(threshold_ptr + part // channels)
    before, after, begin = tl.full([BLOCK], 0.0, tl.float32), tl.full([BLOCK], 0.0, tl.float32), 0
    while begin < samples:
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + part * samples + place, mask=place < samples, other=0.0)
        bent = _tanh(value * gain)
        before += value * value
        after += bent * bent
        begin += BLOCK
    length = tl.maximum(tl.load(length_ptr + part // channels), 1).to(tl.float32)
    tl.store(rms_ptr + 2 * part, tl.sqrt(tl.reduce(before, 0, added) / length))
    tl.store(rms_ptr + 2 * part + 1, tl.sqrt(tl.reduce(after, 0, added) / length))


@kernel
def _distort(y_ptr, x_ptr, threshold_ptr, rms_ptr, channels, samples, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    example, place = part // channels, tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    before, after, channel = 0.0, 0.0, 0
    while channel < channels:
        both_ptr = rms_ptr + 2 * (example * channels + channel)
        before += tl.load(both_ptr)
        after += tl.load(both_ptr + 1)
        channel += 1
    heard = before > 1e-9 * channels
    factor = tl.where(heard, before / tl.where(heard, after, 1.0), 1.0)
    value = tl.load(x_ptr + part * samples + place, mask=place < samples, other=0.0)
    bent = _tanh(value * _gain(threshold_ptr + example))
    tl.store(y_ptr + part * samples + place, bent * factor, mask=place < samples)


@triton.jit
def _gain(threshold_ptr):
    return 0.5 / (tl.load(threshold_ptr) + 1e-6)


@triton.jit
def _tanh(x):
    """Return tanh to float32's digits: near 0 by a polynomial, where the quotient would lose them."""
    size = tl.abs(x)
    small = tl.minimum(size, 0.625)
    z, e = small * small, tl.exp(-2.0 * size)
    p = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    found = tl.where(size < 0.625, small + small * z * (p - 3.33332819422e-1), (1.0 - e) / (1.0 + e))
    return tl.where(x < 0.0, -found, found)
