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
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from audioaug.dsp.dispatch import map_chunks, primitive
from audioaug.dsp.fft import PLANNED, fast_length, from_spectrum, has_mkl, irfft, mkl_plan, rfft, to_spectrum
from audioaug.dsp.loops import Doubles, Floats, Integers, loop, lowers, run_rows

FloatArray = NDArray[np.float64]
f32 = np.float32

FRACTION_BITS = 36
"""Time is a whole number of 2**-36 input samples: float32 would be a sample off after a few minutes."""

RINGING = 128
"""How far the band limit's impulse response reaches (to 1e-7), in samples of the lower rate."""

WIDE_RINGING = 512
"""The same without a band limit, since its end is steeper."""

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

TABLE_BITS = 10
"""A loop looks weights up at this many bits of a time and interpolates between two of them: off by 2e-7."""

SHORTEST_BLOCK = 4096
"""Samples of a block that stays in a CPU's cache at twice the rate."""

END = 1.4
"""The band limit is 1, or 0, to rounding where z is this far from 0."""


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
    return _resampled(x_RCT, step_R, samples_out, lengths_R, reach, band_limit)


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
    channels, samples = x_RCT.shape[1:]

    def resampled(some: slice) -> torch.Tensor:
        inside_R1T = torch.arange(samples, device=x_RCT.device) < lengths_R[some, None, None]
        clips = torch.where(inside_R1T, x_RCT[some], 0.0)
        fine = _at_twice_the_rate(clips, functools.partial(_gain_RF, step_R[some], band_limit), reach)
        return _interpolate(fine, clips, step_R[some], samples_out, lengths_R[some])

    return map_chunks(resampled, x_RCT, channels * max(samples + reach, samples_out))


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
    fine = irfft(spectra, 2 * n, scaled=False)
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
    numbers = x_RCT.flatten(0, 1), step_R, lengths_R, _table_of_taps()
    return run_rows(_interpolate_rows, fine_RCN, *numbers, samples_out=samples_out)


@functools.lru_cache(maxsize=1)
def _table_of_taps() -> torch.Tensor:
    """Return the taps' weights at S times between two samples, and what they grow by up to the next, (S, 2 TAPS)."""
    off_S = np.linspace(-0.5, 0.5, 2**TABLE_BITS + 1)
    weight_SP = np.stack([_weight(place, off_S) for place in range(-BEFORE, TAPS - BEFORE)], axis=1)
    return torch.from_numpy(np.concatenate([weight_SP[:-1], np.diff(weight_SP, axis=0)], axis=1)).float()


@loop
def _interpolate_rows(
    fine_RN: Floats,
    x_RT: Floats,
    step_B: Integers,
    length_B: Integers,
    table_SP: Floats,
    channels: int,
    y_RK: Floats,
    first: int,
    last: int,
) -> None:
    """Read rows, ``channels`` of them an example; after a clip's end the result is silent."""
    fine = fine_RN.shape[1]
    ringed = np.empty(fine + TAPS, dtype=f32)
    for row in range(first, last):
        step, y_K = step_B[row // channels], y_RK[row]
        heard = min(len(y_K), ((length_B[row // channels] << FRACTION_BITS) + step - 1) // step)
        if step == 1 << FRACTION_BITS:
            y_K[:heard] = x_RT[row, :heard]
        else:
            ringed[:BEFORE] = fine_RN[row, fine - BEFORE :]
            ringed[BEFORE : BEFORE + fine] = fine_RN[row]
            ringed[BEFORE + fine :] = fine_RN[row, : TAPS - BEFORE]
            _read_at_steps(ringed, 0, step, table_SP, y_K[:heard])
        y_K[heard:] = 0.0


@loop
def _read_at_steps(fine_N: Floats, time: int, step: int, table_SP: Floats, y_K: Floats) -> None:
    """Read a signal of twice the rate, whose first sample is ``BEFORE`` samples before time 0."""
    half = FRACTION_BITS - 1
    shift = half - TABLE_BITS
    for k in range(len(y_K)):
        left = time & ((1 << half) - 1)
        share = f32(left & ((1 << shift) - 1)) * f32(2.0**-shift)
        y_K[k] = _weighted_taps(fine_N, time >> half, table_SP, left >> shift, share)
        time += step


def _weighted_taps(fine_N: Floats, place: int, table_SP: Floats, entry: int, share: f32) -> f32:
    """Return the sum of the taps from ``place`` on, with weights ``share`` of the way to the table's next entry."""
    weight_P = table_SP[entry, :TAPS] + share * table_SP[entry, TAPS:]
    return f32((fine_N[place : place + TAPS] * weight_P).sum())


@lowers(_weighted_taps, "float32")
def _weigh_in_one_vector(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Compile ``_weighted_taps``: LLVM does not vectorize a loop over eight taps, which makes it 3 times as slow."""
    from llvmlite.ir import Constant, FloatType, IntType, Undefined, VectorType

    _, place, _, entry, share = arguments
    vector, fused = VectorType(FloatType(), TAPS), {"flags": ("contract",)}

    def load(argument: int, start: Any) -> Any:
        samples = context.make_array(signature.args[argument])(context, builder, arguments[argument]).data
        loaded = builder.load(builder.bitcast(builder.gep(samples, [start]), vector.as_pointer()))
        loaded.align = 4
        return loaded

    def shuffled(lanes: Any, *places: int) -> Any:
        return builder.shuffle_vector(lanes, lanes, Constant(VectorType(IntType(32), len(places)), places))

    start = builder.mul(entry, Constant(entry.type, 2 * TAPS))
    first_lane = builder.insert_element(Constant(vector, Undefined), share, Constant(IntType(32), 0))
    growth = load(2, builder.add(start, Constant(entry.type, TAPS)))
    weights = builder.fadd(load(2, start), builder.fmul(shuffled(first_lane, *[0] * TAPS), growth, **fused), **fused)
    lanes = builder.fmul(load(0, place), weights)
    while (half := lanes.type.count // 2) > 0:
        lanes = builder.fadd(shuffled(lanes, *range(half)), shuffled(lanes, *range(half, 2 * half)))
    return builder.extract_element(lanes, Constant(IntType(32), 0))


@_resampled.loop(when=has_mkl)
def _resample_by_loop(
    x_RCT: torch.Tensor,
    step_R: torch.Tensor,
    samples_out: int,
    lengths_R: torch.Tensor,
    reach: int,
    band_limit: bool,
) -> torch.Tensor:
    """Do each row in blocks that stay in the cache, of a length that its own ratio, and not the lowest, asks for."""
    lower_R = (step_R.double() * 2.0**-FRACTION_BITS).clamp(min=1.0) if band_limit else torch.ones_like(step_R).double()
    reach_R = (RINGING if band_limit else WIDE_RINGING) * 2 ** lower_R.log2().ceil().long()
    n_R = (BLOCK_REACHES * reach_R).clamp(min=SHORTEST_BLOCK)
    plans_2R = n_R.new_tensor([[mkl_plan(times * n) for n in n_R.tolist()] for times in (1, 2)])
    band = (lower_R, CENTRE if band_limit else WIDE_CENTRE)
    constants = torch.tensor(_undoing_the_kernel(), device="cpu"), _table_of_taps()
    return run_rows(
        _resample_rows, x_RCT, step_R, lengths_R, n_R, reach_R, *plans_2R, *band, *constants, samples_out=samples_out
    )


@loop
def _resample_rows(
    x_RT: Floats,
    step_B: Integers,
    length_B: Integers,
    n_B: Integers,
    reach_B: Integers,
    plan_B: Integers,
    fine_plan_B: Integers,
    lower_B: Doubles,
    centre: float,
    undoing_D: Floats,
    table_SP: Floats,
    channels: int,
    y_RK: Floats,
    first: int,
    last: int,
) -> None:
    """Resample rows, ``channels`` of them an example; after a clip's end the result is silent."""
    most = n_B.max()
    block_F, gain_F = np.empty(most + 1, dtype=np.complex64), np.empty(most // 2 + 1, dtype=f32)
    some = block_F.view(f32)
    for row in range(first, last):
        example = row // channels
        step, n, reach = step_B[example], n_B[example], reach_B[example]
        x_T, y_K, inside = x_RT[row, : length_B[example]], y_RK[row], n - 2 * reach
        heard = min(len(y_K), ((len(x_T) << FRACTION_BITS) + step - 1) // step)
        y_K[heard:] = 0.0
        if step == 1 << FRACTION_BITS:
            y_K[:heard] = x_T[:heard]
            continue
        _find_gain(n, lower_B[example], centre, undoing_D, gain_F)
        begin = 0
        for start in range(0, len(x_T), inside):
            end = min(heard, (((start + inside) << FRACTION_BITS) + step - 1) // step)
            _read(x_T, start - reach, some[:n])
            wrong = to_spectrum(plan_B[example], some.ctypes.data)
            for f in range(n // 2 + 1):
                block_F[f] *= gain_F[f]
            block_F[n // 2 + 1 : n + 1] = 0.0
            if wrong or from_spectrum(fine_plan_B[example], some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")
            time = begin * step - ((start - reach) << FRACTION_BITS)
            _read_at_steps(some, time - (BEFORE << (FRACTION_BITS - 1)), step, table_SP, y_K[begin:end])
            begin = end


@loop
def _read(x_T: Floats, start: int, y_N: Floats) -> None:
    """Read a block; around the row is silence."""
    begin = min(max(-start, 0), len(y_N))
    end = max(min(len(x_T) - start, len(y_N)), begin)
    inside, into = x_T[start + begin : start + end], y_N[begin:end]
    y_N[:begin] = 0.0
    for place in range(len(into)):
        into[place] = inside[place]
    y_N[end:] = 0.0


@loop
def _find_gain(n: int, lower: float, centre: float, undoing_D: Floats, gain_F: Floats) -> None:
    """Write the band limit over the kernel's spectrum, at the frequencies of an FFT of n samples, over n."""
    bins, unit = n // 2 + 1, lower * 2 / n
    first = max(0, int((centre - END * (1 - centre)) / unit))
    last = min(bins, int((centre + END * (1 - centre)) / unit) + 1)
    for f in range(last):
        square = f32(f * 2 / n) * f32(f * 2 / n)
        value = undoing_D[SPECTRUM_DEGREE]
        for power in range(SPECTRUM_DEGREE - 1, -1, -1):
            value = value * square + undoing_D[power]
        gain_F[f] = value * f32(1 / n)
    for f in range(first, last):
        z = (f * unit - centre) / (1 - centre)
        gain_F[f] *= f32(0.5 * math.erfc(z * (SLOPE + BEND * z * z)))
    gain_F[last:bins] = 0.0
