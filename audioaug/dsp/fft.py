"""FFT passes: a response applied to a batch, and convolution.

Shapes: R rows, C channels, T samples, F = n // 2 + 1 frequencies of an FFT of n samples.
"""

import functools

import torch


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


def apply_response(x_RCT: torch.Tensor, response_RF: torch.Tensor, n: int) -> torch.Tensor:
    """Multiply the spectra of all channels by their row's response; n is the FFT length. Returns (R, C, T)."""
    spectrum_RCF = torch.fft.rfft(x_RCT, n) * response_RF[:, None, :]
    return torch.fft.irfft(spectrum_RCF, n)[..., : x_RCT.shape[-1]]


def convolve(x_RCT: torch.Tensor, taps_RCL: torch.Tensor) -> torch.Tensor:
    """Convolve each channel with its own taps. Returns the full result, (R, C, T + L - 1)."""
    full = x_RCT.shape[-1] + taps_RCL.shape[-1] - 1
    n = fast_length(full)
    return torch.fft.irfft(torch.fft.rfft(x_RCT, n) * torch.fft.rfft(taps_RCL, n), n)[..., :full]
