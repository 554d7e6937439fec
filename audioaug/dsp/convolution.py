"""Convolution: on a CPU as it is written down if taps are few, else by FFT.

Shapes: R rows, N responses of L taps, C channels, T samples.
"""

from typing import Any

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.fft import (
    COMPLEX,
    apply_response,
    block_length,
    from_spectrum,
    has_mkl,
    mkl_plan,
    multiply_by,
    rfft,
    to_spectrum,
)
from audioaug.dsp.loops import Complex, Floats, Integers, loop, run, run_rows

TAPS_WEIGHT = 0.5
"""What the spectrum of a row's taps costs: half of an FFT and back."""
FEW_TAPS, FEW_TAPS_WITH_MKL = 128, 24
"""With no more a CPU is faster without an FFT; and without FFTs of blocks that loops can call."""
BLOCK = 2048
"""This many samples of the result stay in the cache while all taps are added to them."""
TAPS = 16
"""Taps that are added together."""


@primitive
def convolve(
    x_RCT: torch.Tensor,
    taps_NCL: torch.Tensor,
    which_R: torch.Tensor | None = None,
    start: int = 0,
    samples_out: int | None = None,
) -> torch.Tensor:
    """Convolve each channel with its own taps (or all with one row's). Returns (R, C, samples_out).

    Args:
        x_RCT: the rows.
        taps_NCL: of each row, N = R; for each channel or, (N, 1, L), for all.
        which_R: which of N taps each row has instead.
        start: the first sample to return.
        samples_out: how many samples to return; all by default, up to T + L - 1.
    """
    samples, tail = x_RCT.shape[-1], taps_NCL.shape[-1] - 1
    stop = samples + tail if samples_out is None else start + samples_out
    n = block_length(samples, tail, TAPS_WEIGHT, stop, x_RCT.device)
    response_NCF = rfft(taps_NCL / n, n)
    return apply_response(x_RCT, lambda each: multiply_by(each, response_NCF, which_R), n, tail, stop)[..., start:]


def _taps_are_few(
    x_RCT: torch.Tensor, taps_NCL: torch.Tensor, which_R: torch.Tensor | None = None, *_: Any, **__: Any
) -> bool:
    few = FEW_TAPS_WITH_MKL if has_mkl() else FEW_TAPS
    return which_R is None and taps_NCL.shape[1] == 1 and taps_NCL.shape[-1] <= few


@convolve.loop(when=_taps_are_few)
def _convolve_directly(
    x_RCT: torch.Tensor,
    taps_NCL: torch.Tensor,
    which_R: torch.Tensor | None = None,
    start: int = 0,
    samples_out: int | None = None,
) -> torch.Tensor:
    samples_out = x_RCT.shape[-1] + taps_NCL.shape[-1] - 1 - start if samples_out is None else samples_out
    taps_RN = torch.nn.functional.pad(taps_NCL[:, 0], (0, -taps_NCL.shape[-1] % TAPS))
    return run_rows(_add_taps, x_RCT, taps_RN, start, samples_out=samples_out)


@convolve.loop(when=has_mkl)
def _convolve_by_blocks(
    x_RCT: torch.Tensor,
    taps_NCL: torch.Tensor,
    which_R: torch.Tensor | None = None,
    start: int = 0,
    samples_out: int | None = None,
) -> torch.Tensor:
    samples, tail = x_RCT.shape[-1], taps_NCL.shape[-1] - 1
    n = cached_length(samples, tail)
    plan, step = mkl_plan(n), n - tail
    pair_plan, bins = (mkl_plan(n, COMPLEX), n) if samples > step else (0, n // 2 + 1)
    response_NCF = taps_NCL.new_empty(*taps_NCL.shape[:2], bins, dtype=torch.complex64)
    run(_find_responses, taps_NCL[..., 0].numel(), taps_NCL.flatten(0, 1), plan, n, response_NCF.flatten(0, 1))
    which_R = torch.arange(len(x_RCT), device="cpu") if which_R is None else which_R
    samples_out = samples + tail - start if samples_out is None else samples_out
    numbers = response_NCF, which_R, plan, pair_plan, n, step, start
    return run_rows(_filter_blocks, x_RCT, *numbers, samples_out=samples_out)


def cached_length(samples: int, tail: int) -> int:
    """Return the power of two at which blocks cost a CPU least: a sample's time grows faster than its logarithm."""
    whole, block = (max(samples, 1) + tail - 1).bit_length(), (2 * tail - 1).bit_length()
    sizes = [1 << bits for bits in range(max(1, min(whole, block)), max(1, whole) + 1)]
    return min(sizes, key=lambda n: n * n.bit_length() * (-(-samples // (n - tail)) + TAPS_WEIGHT))


@loop
def _add_taps(x_RT: Floats, taps_BN: Floats, start: int, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Convolve rows, as it is written down, with taps for each example of ``channels`` rows; N is a multiple of 16."""
    samples, count = x_RT.shape[1], taps_BN.shape[1]
    around, some = np.zeros(samples + 2 * count, dtype=np.float32), np.empty(BLOCK, dtype=np.float32)
    for row in range(first, last):
        taps_N, x_T, inside = taps_BN[row // channels], x_RT[row], around[count : count + samples]
        for t in range(samples):
            inside[t] = x_T[t]
        for begin in range(0, y_RT.shape[1], BLOCK):
            y_T = y_RT[row, begin : begin + BLOCK]
            some[:] = 0.0
            for since in range(0, count, TAPS):
                few, earlier = taps_N[since : since + TAPS], around[start + begin + count - since - TAPS + 1 :]
                for t in range(len(y_T)):
                    total = some[t]
                    for tap in range(TAPS):
                        total += few[tap] * earlier[t + TAPS - 1 - tap]
                    some[t] = total
            for t in range(len(y_T)):
                y_T[t] = some[t]


# Two blocks of a row have the same response, which is that of real taps. So one complex FFT filters both: one block is
# the real parts, the other one the imaginary parts. That is 1.1 to 1.4x faster than an FFT of real numbers for each.
# Rounding errors are 1e-7 of the louder block's peak.


@loop
def _find_responses(taps_RL: Floats, plan: int, n: int, y_RF: Complex, first: int, last: int) -> None:
    """Write the spectra of rows of at most n taps, divided by n: of n // 2 + 1 bins, or of all n."""
    for row in range(first, last):
        y_F = y_RF[row]
        some = y_F.view(np.float32)
        for tap in range(taps_RL.shape[1]):
            some[tap] = taps_RL[row, tap] * np.float32(1 / n)
        some[taps_RL.shape[1] :] = 0.0
        if to_spectrum(plan, some.ctypes.data):
            raise RuntimeError("MKL refuses an FFT.")
        for f in range(n // 2 + 1, len(y_F)):
            y_F[f] = y_F[n - f].conjugate()


@loop
def _filter_blocks(
    x_RT: Floats,
    response_NCF: Complex,
    which_B: Integers,
    plan: int,
    pair_plan: int,
    n: int,
    step: int,
    start: int,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Convolve rows with one of the responses for each example of ``channels`` rows, in blocks that stay in the cache.

    A response rings on for at most n - ``step`` samples after a block of ``step`` samples.
    """
    pair, real, imaginary = np.empty(2 * n, np.float32), np.empty(n + 2, np.float32), np.empty(n, np.float32)
    for row in range(first, last):
        response_F = response_NCF[which_B[row // channels], min(row % channels, response_NCF.shape[1] - 1)]
        y_T = y_RT[row]
        x_T = x_RT[row, : start + len(y_T)]
        y_T[:] = 0.0
        for begin in range(0, len(x_T), 2 * step):
            one_T, other_T = x_T[begin : begin + step], x_T[begin + step : begin + 2 * step]
            if len(other_T):
                _pack(one_T, other_T, pair)
                _filter(pair_plan, pair, response_F)
                _unpack(pair, real, imaginary)
                _add(imaginary, begin + step - start, y_T)
            else:
                for t in range(len(one_T)):
                    real[t] = one_T[t]
                real[len(one_T) :] = 0.0
                _filter(plan, real, response_F[: n // 2 + 1])
            _add(real[:n], begin - start, y_T)


@loop
def _pack(one_T: Floats, other_T: Floats, pair: Floats) -> None:
    """Write two blocks as real and imaginary parts; the second one may be shorter, and after both is silence."""
    for t in range(len(other_T)):
        pair[2 * t], pair[2 * t + 1] = one_T[t], other_T[t]
    for t in range(len(other_T), len(one_T)):
        pair[2 * t], pair[2 * t + 1] = one_T[t], np.float32(0)
    pair[2 * len(one_T) :] = 0.0


@loop
def _unpack(pair: Floats, real: Floats, imaginary: Floats) -> None:
    for t in range(len(imaginary)):
        real[t], imaginary[t] = pair[2 * t], pair[2 * t + 1]


@loop
def _filter(plan: int, block: Floats, response_F: Complex) -> None:
    """Multiply the spectrum of a block by a response, in place."""
    wrong, response = to_spectrum(plan, block.ctypes.data), response_F.view(np.float32)
    for f in range(len(response_F)):
        a, b, c, d = block[2 * f], block[2 * f + 1], response[2 * f], response[2 * f + 1]
        block[2 * f], block[2 * f + 1] = a * c - b * d, a * d + b * c
    if wrong or from_spectrum(plan, block.ctypes.data):
        raise RuntimeError("MKL refuses an FFT.")


@loop
def _add(block_T: Floats, place: int, y_T: Floats) -> None:
    """Add a filtered block to a row from ``place`` on, which may be negative."""
    inside, into = block_T[max(-place, 0) :], y_T[max(place, 0) :]
    for t in range(min(len(inside), len(into))):
        into[t] += inside[t]
