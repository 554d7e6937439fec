"""FFT passes: their sizes, and a response applied to a batch.

Shapes: R rows, C channels, T samples, K blocks, F = n // 2 + 1 frequencies of an FFT of n samples.
"""

import functools
from collections.abc import Callable

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
    multiply: Callable[[torch.Tensor], torch.Tensor],
    n: int,
    tail: int,
    samples_out: int | None = None,
    before_RC1: torch.Tensor | None = None,
) -> torch.Tensor:
    """Filter each channel by a response at the frequencies of an FFT of n samples.

    A row that does not fit into n samples with its tail is filtered in overlapping blocks (overlap-save).

    Args:
        x_RCT: the rows.
        multiply: returns spectra, (R, C, K, F), times the response, in their own memory if it likes.
        n: as ``block_length`` advises.
        tail: how long the filter rings.
        samples_out: how many samples to return, at most T + tail; T by default.
        before_RC1: the value of every sample before the first one; 0 by default.
    """
    samples, step = x_RCT.shape[-1], n - tail
    samples_out = samples if samples_out is None else samples_out
    before_RC1 = x_RCT.new_zeros(1, 1, 1) if before_RC1 is None else before_RC1
    if n >= samples + tail:  # what is before the row lies at the end, around which an FFT goes
        around = torch.cat([x_RCT, before_RC1.expand(*x_RCT.shape[:2], n - samples)], dim=-1)
        return torch.fft.irfft(multiply(torch.fft.rfft(around[:, :, None])), n)[:, :, 0, :samples_out]
    blocks = _blocks(x_RCT, before_RC1, n, tail, -(-samples_out // step))
    return torch.fft.irfft(multiply(torch.fft.rfft(blocks)), n)[..., tail:].flatten(-2)[..., :samples_out]


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
