"""Kernels that make white Gaussian noise, or add it to a batch, and spectra of filters that give it a colour.

Shapes: R rows, C channels, T samples, F frequencies.
"""

import math

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program computes."""


def add_noise(x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return ``x + gain * noise.gaussian(key)``, written to ``out``, which may be x; both are contiguous."""
    return _launch(out, x_RCT, key_R, gain_R, adds=True)


def noise(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    """Return what ``noise.gaussian`` does, (R, C, T)."""
    out = torch.empty(len(key_R), channels, samples, device=key_R.device)
    return _launch(out, out, key_R, key_R, adds=False)


def _launch(
    out: torch.Tensor, x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, adds: bool
) -> torch.Tensor:
    grid, sizes = grid_of(out, BLOCK), out.shape[1:]
    dispatch.launch(_make, grid, out, x_RCT, key_R, gain_R, *sizes, ADDS=adds, BLOCK=BLOCK)
    return out


def colour(
    key_R: torch.Tensor, slope_R: torch.Tensor, weighted_R: torch.Tensor, sample_rate: int, n_fft: int
) -> torch.Tensor:
    """Return what ``noise.colour`` does."""
    y_RF2 = slope_R.new_empty(len(key_R), n_fft // 2 + 1, 2)
    rows, bins = y_RF2.shape[:2]
    grid, numbers = (rows, triton.cdiv(bins, BLOCK)), (bins, sample_rate / n_fft, 2 * math.pi)
    inputs = key_R.contiguous(), slope_R.contiguous(), weighted_R.contiguous()
    dispatch.launch(_colour, grid, y_RF2, *inputs, *numbers, BLOCK=BLOCK)
    return torch.view_as_complex(y_RF2)


@kernel
def _colour(y_ptr, key_ptr, slope_ptr, weighted_ptr, bins, hertz, turn, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    stream = _hash_64(_hash_64(tl.load(key_ptr + row)) - 1)
    phase = (_hash_64(stream + place) >> 40).to(tl.float32) * 2.0**-24 * turn
    # Of the slope's factors, the largest is to be 1: that of 1 Hz, which 0 Hz counts as, or of one of both ends.
    slope, frequency = tl.load(slope_ptr + row), place.to(tl.float32) * hertz
    first, last = slope * tl.log(hertz), slope * tl.log(hertz * tl.maximum(bins - 1, 1).to(tl.float32))
    power = slope * tl.log(tl.where(place > 0, frequency, 1.0))
    magnitude = tl.exp((power - tl.maximum(tl.maximum(first, last), 0.0)) * 0.5)
    square = frequency * frequency
    low = (square + 20.6 * 20.6) * tl.sqrt((square + 107.7 * 107.7) * (square + 737.9 * 737.9))
    weighting = 12194.0 * 12194.0 / (square + 12194.0 * 12194.0) * (square / low) * square
    magnitude *= tl.where(tl.load(weighted_ptr + row) > 0, 2.0 + weighting, 1.0)
    inner, into_ptr = (place > 0) & (place < bins - 1), y_ptr + (row.to(tl.int64) * bins + place) * 2
    tl.store(into_ptr, magnitude * tl.cos(phase), mask=place < bins)
    tl.store(into_ptr + 1, tl.where(inner, magnitude * tl.sin(phase), 0.0), mask=place < bins)


@kernel
def _make(
    y_ptr,
    x_ptr,
    key_ptr,
    gain_ptr,
    channels,
    samples,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0)  # a row's channel
    row, channel = part // channels, part % channels
    both = _hash_64(_hash_64(tl.load(key_ptr + row)) + channel + 1)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < samples
    # The hash, as in _hash_32 of the torch definition.
    z = (place // 2).to(tl.uint32) * 0x9E3779B9 + both.to(tl.uint32)
    z = (z ^ (z >> 16)) * 0x7FEB352D + (both >> 32).to(tl.uint32)
    z = (z ^ (z >> 15)) * 0x846CA68B
    bits = (z ^ (z >> 16)).to(tl.int32, bitcast=True)
    # Of a pair, the first is the radius times the cosine of the angle, the second times its sine.
    angle = bits.to(tl.float32) * (6.283185307179586 * 2.0**-32)
    share = ((bits & 0xFFFFF).to(tl.float32) + 0.5) * 2.0**-20
    value = tl.sqrt(-2.0 * tl.log(share)) * tl.cos(angle - (place % 2).to(tl.float32) * 1.5707963267948966)
    at = part.to(tl.int64) * samples + place
    if ADDS:
        value = tl.load(x_ptr + at, mask=inside) + tl.load(gain_ptr + row) * value
    tl.store(y_ptr + at, value, mask=inside)


@triton.jit
def _hash_64(key):
    """Scramble 64 bits, as ``noise.hash_64``."""
    z = key.to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)
