"""Convolution: on a CPU as it is written down if taps are few, else by FFT.

Shapes: R rows, N responses of L taps, C channels, T samples.
"""

import torch

from audioaug.dsp import compiled, plans
from audioaug.dsp.fft import apply_response, block_length

TAPS_WEIGHT = 0.5
"""What the spectrum of a row's taps costs: half of an FFT and back."""
FEW_TAPS = 128
"""With no more a CPU is faster without an FFT."""


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
    if compiled.fits(x_RCT):
        if which_R is None and taps_NCL.shape[1] == 1 and tail < FEW_TAPS:
            return _directly(x_RCT, taps_NCL[:, 0], start, stop)
        if plans.library():
            return _by_plan(x_RCT, taps_NCL, which_R, start, stop)
    n = block_length(samples, tail, TAPS_WEIGHT, stop)
    response_RCF = torch.fft.rfft(taps_NCL, n)
    if which_R is not None:
        response_RCF = response_RCF.index_select(0, which_R)
    return apply_response(x_RCT, lambda each: each.mul_(response_RCF[:, :, None]), n, tail, stop)[..., start:]


def _directly(x_RCT: torch.Tensor, taps_RL: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    from audioaug.dsp.loops.convolving import TAPS, convolve_directly

    taps_RN = torch.nn.functional.pad(taps_RL, (0, -taps_RL.shape[1] % TAPS))
    return compiled.of_rows(convolve_directly, x_RCT, taps_RN, start, samples_out=stop - start)


def _by_plan(
    x_RCT: torch.Tensor, taps_NCL: torch.Tensor, which_R: torch.Tensor | None, start: int, stop: int
) -> torch.Tensor:
    from audioaug.dsp.loops.spectra import convolve_by_spectra, transform

    samples, tail = x_RCT.shape[-1], taps_NCL.shape[-1] - 1
    n = cached_length(samples, tail)
    plan, response_NCF = plans.plan(n), taps_NCL.new_empty(*taps_NCL.shape[:2], n // 2 + 1, dtype=torch.complex64)
    compiled.run(transform, taps_NCL[..., 0].numel(), taps_NCL.flatten(0, 1), plan, n, response_NCF.flatten(0, 1))
    which_R = torch.arange(len(x_RCT)) if which_R is None else which_R
    return compiled.of_rows(
        convolve_by_spectra, x_RCT, response_NCF, which_R, plan, n - tail, start, samples_out=stop - start
    )


def cached_length(samples: int, tail: int) -> int:
    """Return the power of two at which blocks cost a CPU least: a sample's time grows faster than its logarithm."""
    whole, block = (max(samples, 1) + tail - 1).bit_length(), (2 * tail - 1).bit_length()
    sizes = [1 << bits for bits in range(max(1, min(whole, block)), max(1, whole) + 1)]
    return min(sizes, key=lambda n: n * n.bit_length() * (-(-samples // (n - tail)) + TAPS_WEIGHT))
