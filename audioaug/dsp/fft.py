"""FFT passes: a response applied to a batch, and convolution.

Shapes: R rows, N responses, C channels, T samples, K blocks, F = n // 2 + 1 frequencies of an FFT of n samples.
"""

import functools

import torch

from audioaug.dsp import compiled

TAPS_WEIGHT = 0.5
"""What the spectrum of a row's taps costs: half of an FFT and back."""
FEW_TAPS = 128
"""With no more a CPU is faster without an FFT: in 0.6 of the time with as many."""


@functools.lru_cache(maxsize=1024)
def fast_length(at_least: int) -> int:
    """Return the smallest FFT length of only factors 2, 3 and 5 that is large enough: few sizes, fast everywhere."""
    best = 1 << max(0, at_least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            size = three << max(0, -(-at_least // three) - 1).bit_length()
            best = min(best, size) if size >= at_least else best
            three *= 3
        five *= 5
    return best


def block_length(samples: int, tail: int, weight: float = 0.0, samples_out: int | None = None) -> int:
    """Return the FFT length at which it is cheapest to filter rows of that many samples with ``apply_response``.

    Args:
        samples: of each row.
        tail: how long the filter rings.
        weight: cost of a filter's response, in units of an FFT of the same length and back.
        samples_out: how many samples are wanted; as many by default.
    """
    sizes = [fast_length(samples + tail)]
    sizes += [1 << bits for bits in range((2 * max(tail, 1) - 1).bit_length(), sizes[0].bit_length())]
    return min(sizes, key=lambda n: n * ((1 if n == sizes[0] else -(-(samples_out or samples) // (n - tail))) + weight))


def apply_response(
    x_RCT: torch.Tensor,
    response_NCF: torch.Tensor,
    n: int,
    tail: int,
    samples_out: int | None = None,
    before_RC1: torch.Tensor | None = None,
    which_R: torch.Tensor | None = None,
) -> torch.Tensor:
    """Filter each channel by its response (or all by one) at the frequencies of an FFT of n samples.

    A row that does not fit into n samples with its tail is filtered in overlapping blocks (overlap-save).

    Args:
        x_RCT: the rows.
        response_NCF: of each channel, or (N, 1, F), of all; of each row, N = R.
        n: as ``block_length`` advises.
        tail: how long the filter rings.
        samples_out: how many samples to return, at most T + tail; T by default.
        before_RC1: the value of every sample before the first one; 0 by default.
        which_R: which of N responses each row has instead.
    """
    samples, step = x_RCT.shape[-1], n - tail
    samples_out = samples if samples_out is None else samples_out
    before_RC1 = x_RCT.new_zeros(1, 1, 1) if before_RC1 is None else before_RC1
    if n >= samples + tail:  # what is before the row lies at the end, around which an FFT goes
        around = torch.cat([x_RCT, before_RC1.expand(*x_RCT.shape[:2], n - samples)], dim=-1)
        spectrum_RC1F = _times(torch.fft.rfft(around[:, :, None]), response_NCF, which_R)
        return torch.fft.irfft(spectrum_RC1F, n)[:, :, 0, :samples_out]
    blocks = _blocks(x_RCT, before_RC1, n, tail, -(-samples_out // step))
    spectrum_RCKF = _times(torch.fft.rfft(blocks), response_NCF, which_R)
    return torch.fft.irfft(spectrum_RCKF, n)[..., tail:].flatten(-2)[..., :samples_out]


def _times(spectrum_RCKF: torch.Tensor, response_NCF: torch.Tensor, which_R: torch.Tensor | None) -> torch.Tensor:
    """Multiply in place."""
    if which_R is None:
        return spectrum_RCKF.mul_(response_NCF[:, :, None])
    if not compiled.fits(spectrum_RCKF):
        return spectrum_RCKF.mul_(response_NCF.index_select(0, which_R)[:, :, None])
    from audioaug.dsp.loops.spectra import multiply

    compiled.run(multiply, len(spectrum_RCKF), response_NCF, which_R, spectrum_RCKF)
    return spectrum_RCKF


def _blocks(x_RCT: torch.Tensor, before_RC1: torch.Tensor, n: int, tail: int, count: int) -> torch.Tensor:
    """Return blocks of n samples, (R, C, K, n), each ``n - tail`` behind the last; the first holds ``tail`` before.

    In one pass, where padding the rows first takes two. A step is no shorter than ``tail``, and no longer than a row.
    """
    step, samples = n - tail, x_RCT.shape[-1]
    inside = min(samples // step, count)  # blocks that end within the row, the first one included
    parts = [torch.cat([before_RC1.expand(*x_RCT.shape[:2], tail), x_RCT[..., :step]], dim=-1)[:, :, None]]
    if inside > 1:
        parts.append(x_RCT[..., step - tail :].unfold(-1, n, step)[:, :, : inside - 1])
    if inside < count:
        rest = x_RCT[..., inside * step - tail :]
        missing = (count - inside) * step + tail - rest.shape[-1]
        parts.append(torch.nn.functional.pad(rest, (0, missing)).unfold(-1, n, step))
    return torch.cat(parts, dim=2)


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
        taps_NCL: of each row, N = R; for each channel or, (R, 1, L), for all.
        which_R: which of N taps each row has instead.
        start: the first sample to return.
        samples_out: how many samples to return; all by default, up to T + L - 1.
    """
    samples, tail = x_RCT.shape[-1], taps_NCL.shape[-1] - 1
    stop = samples + tail if samples_out is None else start + samples_out
    if which_R is None and taps_NCL.shape[1] == 1 and tail < FEW_TAPS and compiled.fits(x_RCT):
        return _convolve_directly(x_RCT, taps_NCL[:, 0], start, stop)
    n = block_length(samples, tail, TAPS_WEIGHT, stop)
    return apply_response(x_RCT, torch.fft.rfft(taps_NCL, n), n, tail, stop, which_R=which_R)[..., start:]


def _convolve_directly(x_RCT: torch.Tensor, taps_RL: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    from audioaug.dsp.loops.convolving import TAPS, convolve_directly

    taps_RN = torch.nn.functional.pad(taps_RL, (0, -taps_RL.shape[1] % TAPS))
    return compiled.of_rows(convolve_directly, x_RCT, taps_RN, start, samples_out=stop - start)
