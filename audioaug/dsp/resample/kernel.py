"""Kernels that resample rows, at a rate for each: they cut blocks, limit the band of their spectra, and interpolate.

Shapes: B examples, C channels, T samples, K blocks of N samples, F frequencies, S samples of the result.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.fft import with_room
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 512
"""Samples, or frequencies, that a program computes."""


def cut(x_BCT: torch.Tensor, length_B: torch.Tensor, n: int, reach: int, blocks: int) -> torch.Tensor:
    """Return blocks of n samples, (B, C, K, n), that overlap by twice the reach; around a clip is silence."""
    rows, channels, samples = x_BCT.shape
    y_BCKN = with_room(x_BCT, rows, channels, blocks, n)
    grid, sizes = grid_of(y_BCKN, BLOCK), (samples, channels, blocks, n, reach)
    dispatch.launch(_cut, grid, y_BCKN, x_BCT.contiguous(), length_B.contiguous(), *sizes, BLOCK=BLOCK)
    return y_BCKN


def limit_band(
    spectrum_BCKF: torch.Tensor,
    step_B: torch.Tensor,
    bits: int,
    band_limit: bool,
    band: tuple[float, float, float],
    factors: Sequence[float],
) -> torch.Tensor:
    """Return the spectra of signals of twice the rate: times each row's gain, with nothing in the upper half.

    Args:
        spectrum_BCKF: of blocks of N samples, N / 2 + 1 frequencies.
        step_B: old rate over new rate, times 2**bits.
        bits: how many of a step are its fraction.
        band_limit: whether the band ends at the lower of both Nyquist frequencies.
        band: centre, slope and bend of its end.
        factors: of the polynomial that undoes the kernel.
    """
    rows, channels, blocks, bins = spectrum_BCKF.shape
    wider = with_room(spectrum_BCKF, rows, channels, blocks, 2 * bins - 1)
    spectra = torch.view_as_real(wider), torch.view_as_real(spectrum_BCKF.contiguous())
    grid, sizes = grid_of(wider, BLOCK), (channels * blocks, bins)
    numbers = float(2.0**-bits), int(band_limit), *band
    dispatch.launch(
        _limit_band, grid, *spectra, step_B.contiguous(), *sizes, *numbers, FACTORS=tuple(factors[::-1]), BLOCK=BLOCK
    )
    return wider


def interpolate(
    fine_BCKN: torch.Tensor,
    x_BCT: torch.Tensor,
    step_B: torch.Tensor,
    length_B: torch.Tensor,
    factors: Sequence[Sequence[float]],
    bits: int,
    reach: int,
    samples_out: int,
) -> torch.Tensor:
    """Return what ``resample`` does of clips at twice their rate, (B, C, S).

    Args:
        fine_BCKN: blocks at twice the rate, N times too large, of which the reach at both ends is not used.
        x_BCT: the clips themselves, for steps of 1.
        step_B: old rate over new rate, times 2**bits.
        length_B: of the clips; after it, the result is silent.
        factors: of the weights of half of the taps, by the powers of the distance from the middle between two samples.
        bits: how many of a time are its fraction.
        reach: in samples of the clips.
        samples_out: S.
    """
    out = x_BCT.new_empty(*x_BCT.shape[:2], samples_out)
    values = fine_BCKN.contiguous(), x_BCT.contiguous(), step_B.contiguous(), length_B.contiguous()
    sizes = *fine_BCKN.shape[2:], 2 * reach, x_BCT.shape[-1], samples_out, x_BCT.shape[1]
    constants = tuple(tuple(each) for each in factors)
    dispatch.launch(_interpolate, grid_of(out, BLOCK), out, *values, *sizes, FACTORS=constants, BITS=bits, BLOCK=BLOCK)
    return out


@kernel
def _cut(y_ptr, x_ptr, length_ptr, samples, channels, blocks, n, reach, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)  # of the block, one row after the other
    part, place = number // blocks, tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = number % blocks * (n - 2 * reach) + place - reach
    inside = (time >= 0) & (time < tl.load(length_ptr + part // channels)) & (time < samples) & (place < n)
    value = tl.load(x_ptr + part * samples + time, mask=inside, other=0.0)
    tl.store(y_ptr + number * n + place, value, mask=place < n)


@kernel
def _limit_band(
    y_ptr,
    x_ptr,
    step_ptr,
    parts,
    bins,
    unit,
    band_limit,
    centre,
    slope,
    bend,
    FACTORS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lower = tl.maximum(tl.load(step_ptr + number // parts).to(tl.float32) * unit, 1.0)  # old Nyquist over the lower one
    lower = tl.where(band_limit != 0, lower, 1.0)
    share = place.to(tl.float32) / (bins - 1).to(tl.float32)
    z = (share * lower - centre) / (1.0 - centre)
    gain = 1.0 - tl.erf(z * (slope + bend * z * z))  # half of erfc, and twice for the irfft of twice the length
    undone = tl.full([BLOCK], FACTORS[0], tl.float32)
    for place_of in tl.static_range(1, len(FACTORS)):
        undone = undone * share * share + FACTORS[place_of]
    gain = gain * undone
    at, inside = x_ptr + (number * bins + place) * 2, place < bins
    x, x_j = tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)
    into_ptr = y_ptr + (number * (2 * bins - 1) + place) * 2
    tl.store(into_ptr, tl.where(inside, x * gain, 0.0), mask=place < 2 * bins - 1)
    tl.store(into_ptr + 1, tl.where(inside, x_j * gain, 0.0), mask=place < 2 * bins - 1)


@kernel
def _interpolate(
    y_ptr,
    fine_ptr,
    x_ptr,
    step_ptr,
    length_ptr,
    blocks,
    width,
    margin,
    samples,
    wanted,
    channels,
    FACTORS: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)  # an example's channel
    step, length = tl.load(step_ptr + part // channels), tl.load(length_ptr + part // channels)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = place.to(tl.int64) * step
    heard = (place < wanted) & ((time >> BITS) < length)
    whole = time >> (BITS - 1)
    off = (time - (whole << (BITS - 1))).to(tl.float32) * 2.0 ** (1 - BITS) - 0.5
    square = off * off
    taps: tl.constexpr = 2 * len(FACTORS)
    row_ptr = fine_ptr + part * blocks * width
    value = tl.full([BLOCK], 0.0, tl.float32)
    for tap in tl.static_range(len(FACTORS)):
        even = tl.full([BLOCK], FACTORS[tap][8], tl.float32)
        odd = tl.full([BLOCK], FACTORS[tap][7], tl.float32)
        for power in tl.static_range(6, -1, -2):
            even = even * square + FACTORS[tap][power]
        for power in tl.static_range(5, 0, -2):
            odd = odd * square + FACTORS[tap][power]
        odd = odd * off
        early = _address(row_ptr, whole + (tap + 1 - taps // 2), width, margin)
        late = _address(row_ptr, whole + (taps // 2 - tap), width, margin)
        value += (even + odd) * tl.load(early, mask=heard, other=0.0)
        value += (even - odd) * tl.load(late, mask=heard, other=0.0)
    same = step == (1 << BITS)
    own = tl.load(x_ptr + part * samples + place, mask=heard & same & (place < samples), other=0.0)
    value = tl.where(same, own, value / width)
    tl.store(y_ptr + part * wanted + place, tl.where(heard, value, 0.0), mask=place < wanted)


@triton.jit
def _address(row_ptr, place, width, margin):
    """Return where a row's sample lies, in the block whose middle it belongs to; what is before the first is in its."""
    block = tl.maximum(place, 0) // (width - 2 * margin)
    return row_ptr + block * width + margin + place - block * (width - 2 * margin)
