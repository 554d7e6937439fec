"""Resampling of whole batches, each row by a real ratio of its own, as soxr does in high quality ("HQ").

The band limit is a factor on the spectrum, whose shape is soxr's: flat up to 0.91 of the lower of both Nyquist
frequencies, below 1e-5 (-100 dB) from there on. soxr chains stages that depend on the ratio, so that its own gain in
between varies by 0.013 (far more for ratios from 4 to 4.25); ours runs in the middle.

What is left is to evaluate a trigonometric polynomial at evenly spaced, arbitrary times: twice as many samples by FFT,
then a kernel of 8 samples, whose own spectrum was divided out before (a "non-uniform FFT"). Measured against a sum over
a windowed sinc of the same band limit, 180 taps a sample (900 for a ratio of 0.2): both are off by 1e-6 of the peak,
which is rounding, and this is 50x faster.

Shapes: R rows, C channels, T samples, F frequencies, K output samples.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from audioaug.dsp.dispatch import map_chunks, primitive
from audioaug.dsp.fft import PLANNED, fast_length, irfft, rfft
from audioaug.dsp.loops import Floats, Integers, loop, run_rows

FloatArray = NDArray[np.float64]
f32 = np.float32

FRACTION_BITS = 36
"""Time is a whole number of 2**-36 input samples: float32 would be a sample off after a few minutes."""

RINGING = 128
"""How far the band limit's impulse response reaches (to 1e-7), in samples of the lower rate."""

REACH = 1024
"""Silence after each clip, in input samples, into which it may ring: enough for ratios down to 1/8."""

BLOCK_REACHES = 8
"""An FFT of a long clip is this many times the reach: a quarter of it is not used, and it stays in the cache."""

CENTRE, SLOPE, BEND = 0.95686, 2.6116, 0.41
"""The band limit: half of erfc(z (SLOPE + BEND z^2)), with z = -1 .. 1 from 2 CENTRE - 1 to 1."""

WIDE_CENTRE = 0.985
"""The same without a band limit: only so that jumps do not ring for long."""

TAPS = 8
BEFORE = TAPS // 2 - 1
"""Taps before the sample before the time."""
KERNEL_SHAPE = 2.3 * TAPS
"""Best for twice the rate: 1e-7 (Barnett, Magland, af Klinteberg: "A parallel nonuniform fast Fourier transform library
based on an 'exponential of semicircle' kernel", 2019)."""

TAP_DEGREE, SPECTRUM_DEGREE, NODES = 8, 7, 16

BLOCK = 256
"""Samples of the result that stay in the cache while a loop works on them."""


def fixed_ratio(old_rate: FloatArray, new_rate: FloatArray) -> NDArray[np.int64]:
    """Return the ratio of two rates as ``resample`` takes it: the input time between output samples. On the host."""
    return np.rint(np.asarray(old_rate) / np.asarray(new_rate) * 2.0**FRACTION_BITS).astype(np.int64)


def reach_of(lowest_ratio: float) -> int:
    """Return how much silence clips need after them for ratios down to that one, as one of few sizes."""
    return max(REACH, 1 << math.ceil(math.log2(RINGING / lowest_ratio)))


def resample(
    x_RCT: torch.Tensor,
    ratio_R: torch.Tensor,
    samples_out: int,
    lengths_R: torch.Tensor,
    reach: int = REACH,
    band_limit: bool = True,
) -> torch.Tensor:
    """Return (R, C, samples_out): sample k is the row's band-limited value at input time k / ratio; both start at 0.

    Around a clip is silence, as for soxr, so that a clip that begins or ends with a jump rings there. What would lie at
    or past its end (k / ratio >= length) is 0. A row whose ratio is 1 stays as it is.

    Args:
        x_RCT: the clips; what lies past their ends is ignored.
        ratio_R: new rate over old rate, above 0: int64 from ``fixed_ratio``. Floating-point numbers will do for short
            clips; float32 makes the last sample up to T / 2**24 samples late or early.
        samples_out: how many samples to return.
        lengths_R: of the clips, in input samples.
        reach: the silence after the clips, ``reach_of(lowest_ratio)`` if ratios below 1/8 may occur.
        band_limit: with ``False``, all up to 0.97 of the clip's own Nyquist frequency passes: for clips with nothing
            above the new one.
    """
    step_R = (2.0**FRACTION_BITS / ratio_R).round().long() if ratio_R.is_floating_point() else ratio_R
    channels, samples = x_RCT.shape[1:]

    def resampled(some: slice) -> torch.Tensor:
        return _resampled(x_RCT[some], step_R[some], samples_out, lengths_R[some], reach, band_limit)

    return map_chunks(resampled, x_RCT, channels * max(samples + reach, samples_out))


@primitive
def _resampled(
    x_RCT: torch.Tensor,
    step_R: torch.Tensor,
    samples_out: int,
    lengths_R: torch.Tensor,
    reach: int,
    band_limit: bool,
) -> torch.Tensor:
    """Resample rows; ``step`` is the input time between samples, in 2**-36 of one."""
    inside_R1T = torch.arange(x_RCT.shape[-1], device=x_RCT.device) < lengths_R[:, None, None]
    clips = torch.where(inside_R1T, x_RCT, 0.0)
    fine = _at_twice_the_rate(clips, functools.partial(_gain_RF, step_R, band_limit), reach)
    return _interpolate(fine, clips, step_R, samples_out, lengths_R)


@_resampled.kernel()
def _resample_by_kernel(
    x_RCT: torch.Tensor,
    step_R: torch.Tensor,
    samples_out: int,
    lengths_R: torch.Tensor,
    reach: int,
    band_limit: bool,
) -> torch.Tensor:
    """Do all rows in blocks, whose FFTs are of one length."""
    from audioaug.dsp.resample import kernel

    n = BLOCK_REACHES * reach
    step, taps = n - 2 * reach, _taps_as_polynomials()
    blocks_RCKN = kernel.cut(x_RCT, lengths_R, n, reach, -(-(x_RCT.shape[-1] + TAPS) // step))
    band = (CENTRE, SLOPE, BEND) if band_limit else (WIDE_CENTRE, SLOPE, BEND)
    spectra = kernel.limit_band(rfft(blocks_RCKN), step_R, FRACTION_BITS, band_limit, band, _undoing_the_kernel())
    fine = irfft(spectra, 2 * n)
    return kernel.interpolate(fine, x_RCT, step_R, lengths_R, taps, FRACTION_BITS, reach, samples_out)


def _at_twice_the_rate(clips_RCT: torch.Tensor, gain: Callable[[int], torch.Tensor], reach: int) -> torch.Tensor:
    """Return periodic signals of twice the rate, band-limited by the gain at the frequencies of an FFT of some length.

    Long clips are done in blocks, in the middle of which what is around them is not heard: large FFTs leave the cache.
    """
    samples, n = clips_RCT.shape[-1], BLOCK_REACHES * reach
    if samples + reach <= n and clips_RCT.device.type not in PLANNED:
        n = fast_length(samples + reach)
        return irfft(rfft(clips_RCT, n) * gain(n)[:, None], 2 * n) * 2
    step = n - 2 * reach
    blocks = -(-(samples + TAPS) // step)
    around = torch.nn.functional.pad(clips_RCT, (reach, blocks * step + reach - samples))
    spectra = rfft(around.unfold(-1, n, step)) * (2 * gain(n))[:, None, None]
    fine = irfft(spectra, 2 * n)
    joined = fine.new_empty(*clips_RCT.shape[:-1], 2 * blocks * step + TAPS)
    joined[..., :-TAPS].unflatten(-1, (blocks, -1)).copy_(fine[..., 2 * reach : -2 * reach])
    joined[..., -TAPS:].copy_(fine[..., 0, 2 * reach - TAPS : 2 * reach])  # what is before the beginning
    return joined


def _gain_RF(step_R: torch.Tensor, band_limit: bool, n: int) -> torch.Tensor:
    """Return the band limit of each row over the kernel's spectrum, at the frequencies of an FFT of n samples."""
    place_F = torch.arange(n // 2 + 1, device=step_R.device)
    lower_R = (step_R.float() * 2.0**-FRACTION_BITS).clamp(min=1.0)  # old Nyquist over the lower one
    lower_R, centre = (lower_R, CENTRE) if band_limit else (torch.ones_like(lower_R), WIDE_CENTRE)
    z_RF = (place_F * (2 / n) * lower_R[:, None] - centre) / (1 - centre)
    limit_RF = 0.5 * torch.erfc(z_RF * (SLOPE + BEND * z_RF.square()))
    return limit_RF * _at((place_F * (2 / n)).square(), _undoing_the_kernel())


def _kernel(z: FloatArray) -> FloatArray:
    """Return the exponential of a semicircle, on [-1, 1]."""
    return np.asarray(np.exp(KERNEL_SHAPE * (np.sqrt(1 - z * z) - 1)))


def _polynomial(function: Callable[[FloatArray], FloatArray], degree: int, low: float, high: float) -> list[float]:
    """Return the factors of the powers, from 0 on, of the polynomial that meets a function at its Chebyshev points."""
    found = Chebyshev.interpolate(function, degree, domain=[low, high])
    return [float(factor) for factor in found.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef]


@functools.lru_cache(maxsize=1)
def _taps_as_polynomials() -> list[list[float]]:
    """Return for each tap of the first half its weight, by how far the time is from the middle between two samples.

    The other half are their mirror images. Off by 1e-8; rounding is more.
    """
    places = range(1 - TAPS // 2, 1)
    return [_polynomial(functools.partial(_weight, place), TAP_DEGREE, -0.5, 0.5) for place in places]


def _weight(place: int, off: FloatArray) -> FloatArray:
    """Return the weight of the tap that is ``place`` samples after the last one before the time."""
    return _kernel((place - 0.5 - off) * (2 / TAPS))


@functools.lru_cache(maxsize=1)
def _undoing_the_kernel() -> list[float]:
    """Return one over the kernel's spectrum as a polynomial of the square of the share of the Nyquist frequency.

    The spectrum is the sum of the kernel times cosines, by quadrature. Off by 1e-8.
    """
    node_N, weight_N = np.polynomial.legendre.leggauss(2 * NODES)
    height_N = weight_N * (TAPS / 2) * _kernel(node_N)

    def undone(square: FloatArray) -> FloatArray:
        angle = np.sqrt(square) * (TAPS * math.pi / 4)
        return np.asarray(1 / (height_N * np.cos(angle[:, None] * node_N)).sum(-1))

    return _polynomial(undone, SPECTRUM_DEGREE, 0.0, 1.0)


def _at(place: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    """Return the value of a polynomial at these places."""
    *lower, highest = factors
    value = torch.full_like(place, highest)
    for factor in reversed(lower):
        value.mul_(place).add_(factor)
    return value


@primitive
def _interpolate(
    fine_RCN: torch.Tensor, x_RCT: torch.Tensor, step_R: torch.Tensor, samples_out: int, lengths_R: torch.Tensor
) -> torch.Tensor:
    """Read clips at steps of their own from periodic signals of twice the rate; those of step 1 as they are."""
    time_RK = torch.arange(samples_out, device=x_RCT.device) * step_R[:, None]
    same = torch.nn.functional.pad(x_RCT, (0, max(0, samples_out - x_RCT.shape[-1])))[..., :samples_out]
    y_RCK = torch.where((step_R == 1 << FRACTION_BITS)[:, None, None], same, _read_between(fine_RCN, time_RK))
    return torch.where(((time_RK >> FRACTION_BITS) < lengths_R[:, None])[:, None], y_RCK, 0.0)


def _read_between(fine_RCN: torch.Tensor, time_RK: torch.Tensor) -> torch.Tensor:
    """Read a periodic signal of twice the rate at times between its samples."""
    channels, length = fine_RCN.shape[1:]
    half = FRACTION_BITS - 1
    ringed = torch.cat([fine_RCN[..., -BEFORE:], fine_RCN, fine_RCN[..., : TAPS - BEFORE]], dim=-1)
    place_RCK = (time_RK >> half).clamp(max=length - 1)[:, None].expand(-1, channels, -1)
    off_RK = (time_RK & ((1 << half) - 1)).float() * 2.0**-half - 0.5
    square_RK = off_RK.square()
    total_RCK = fine_RCN.new_zeros(place_RCK.shape)
    for tap, factors in enumerate(_taps_as_polynomials()):
        even_RK, odd_RK = _at(square_RK, factors[::2]), _at(square_RK, factors[1::2]).mul_(off_RK)
        for place, weight_RK in ((tap, even_RK + odd_RK), (TAPS - 1 - tap, even_RK - odd_RK)):
            read_RCK = ringed[..., place : place + length].gather(-1, place_RCK)
            total_RCK.addcmul_(weight_RK[:, None], read_RCK)
    return total_RCK


@_interpolate.loop()
def _interpolate_by_loop(
    fine_RCN: torch.Tensor, x_RCT: torch.Tensor, step_R: torch.Tensor, samples_out: int, lengths_R: torch.Tensor
) -> torch.Tensor:
    numbers = x_RCT.flatten(0, 1), step_R, lengths_R, torch.tensor(_taps_as_polynomials())
    return run_rows(_interpolate_rows, fine_RCN, *numbers, samples_out=samples_out)


@loop
def _interpolate_rows(
    fine_RN: Floats,
    x_RT: Floats,
    step_B: Integers,
    length_B: Integers,
    factors_PD: Floats,
    channels: int,
    y_RK: Floats,
    first: int,
    last: int,
) -> None:
    """Read rows, ``channels`` of them an example; after a clip's end the result is silent.

    ``factors_PD``: of each pair of taps the factors of its weight, by the powers of the distance from the middle
    between two samples.
    """
    fine, wanted = fine_RN.shape[1], y_RK.shape[1]
    ringed = np.empty(fine + TAPS, dtype=f32)
    for row in range(first, last):
        step, length = step_B[row // channels], length_B[row // channels]
        heard = min(wanted, ((length << FRACTION_BITS) + step - 1) // step)
        y_K = y_RK[row]
        if step == 1 << FRACTION_BITS:
            for k in range(heard):
                y_K[k] = x_RT[row, k]
        else:
            ringed[:BEFORE] = fine_RN[row, fine - BEFORE :]
            for place in range(fine):
                ringed[BEFORE + place] = fine_RN[row, place]
            ringed[BEFORE + fine :] = fine_RN[row, : TAPS - BEFORE]
            for begin in range(0, heard, BLOCK):
                _interpolate_block(ringed, fine, begin, step, factors_PD, y_K[begin : min(begin + BLOCK, heard)])
        y_K[heard:] = 0.0


@loop
def _interpolate_block(ringed: Floats, fine: int, begin: int, step: int, factors_PD: Floats, y_K: Floats) -> None:
    count, half = len(y_K), FRACTION_BITS - 1
    place_K, off_K = np.empty(BLOCK, dtype=np.int64), np.empty(BLOCK, dtype=f32)
    total_K = np.zeros(BLOCK, dtype=f32)
    for k in range(count):
        time = (begin + k) * step
        place_K[k] = min(time >> half, fine - 1)
        off_K[k] = f32(time & ((1 << half) - 1)) * f32(2.0**-half) - f32(0.5)
    for tap in range(TAPS // 2):
        c = factors_PD[tap]
        c0, c1, c2, c3, c4, c5, c6, c7, c8 = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]
        for k in range(count):
            off = off_K[k]
            square = off * off
            even = (((c8 * square + c6) * square + c4) * square + c2) * square + c0
            odd = (((c7 * square + c5) * square + c3) * square + c1) * off
            earlier, later = ringed[place_K[k] + tap], ringed[place_K[k] + TAPS - 1 - tap]
            total_K[k] += (even + odd) * earlier + (even - odd) * later
    for k in range(count):
        y_K[k] = total_K[k]
