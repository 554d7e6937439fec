"""Aliasing: rows read at fewer, evenly spaced places without a filter, and read back from these.

Shapes: B examples, C channels, T samples, N samples read; R rows, a channel of an example each.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run_rows


@primitive
def alias(
    x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor, most_left: int, out: torch.Tensor | None
) -> torch.Tensor:
    """Read ``left`` evenly spaced places of each example, and from these as many as before; between them linearly.

    Args:
        x_BCT: the examples.
        length_B: of each; what the result has past its end is undefined.
        left_B: how many places are read, at least 1.
        most_left: which none exceeds.
        out: where a loop writes the result, which may be where x is.
    """
    return _read(_read(x_BCT, length_B, left_B, most_left), left_B, length_B, x_BCT.shape[-1])


@alias.loop()
def _alias_by_loop(
    x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor, most_left: int, out: torch.Tensor | None
) -> torch.Tensor:
    return run_rows(_alias_rows, x_BCT, length_B, left_B, out=out)


@alias.kernel()
def _alias_by_kernel(
    x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor, most_left: int, out: torch.Tensor | None
) -> torch.Tensor:
    from audioaug.dsp.aliasing import kernel

    return kernel.alias(x_BCT, length_B, left_B)


def _read(x_BCT: torch.Tensor, have_B: torch.Tensor, want_B: torch.Tensor, size: int) -> torch.Tensor:
    """Read ``want`` places, evenly spaced from each row's first sample to its last; returns (B, C, size)."""
    # Place i lies at sample i * (have - 1) / (want - 1). In whole numbers: float32 is too coarse in a long clip.
    last_B1, steps_B1 = (have_B - 1).clamp(min=0)[:, None], (want_B - 1).clamp(min=1)[:, None]
    place_BN = torch.arange(size, device=x_BCT.device) * last_B1
    before_BN = place_BN // steps_B1
    fraction_BN = (place_BN - before_BN * steps_B1) / steps_B1
    low = _take(x_BCT, before_BN)
    return torch.lerp(low, _take(x_BCT, before_BN.add_(1)), fraction_BN[:, None])


def _take(x_BCT: torch.Tensor, index_BN: torch.Tensor) -> torch.Tensor:
    """Return the samples at these places; past the end of the row, where they have no weight, its last one."""
    index_BN = index_BN.clamp(max=x_BCT.shape[-1] - 1)
    return x_BCT.gather(-1, index_BN[:, None].expand(-1, x_BCT.shape[1], -1))


@loop
def _alias_rows(
    x_RT: Floats, length_B: Integers, left_B: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Read rows, ``channels`` of them an example. The result may be where x is."""
    some_N = np.empty(0, dtype=np.float32)
    for row in range(first, last):
        length, left = length_B[row // channels], left_B[row // channels]
        if len(some_N) < left:
            some_N = np.empty(left, dtype=np.float32)
        _read_row(x_RT[row], length, some_N, left)
        _read_row(some_N, left, y_RT[row], length)


@loop
def _read_row(x_N: Floats, have: int, y_N: Floats, want: int) -> None:
    """Read ``want`` places, evenly spaced from the first sample to the last one."""
    end = max(have - 1, 0)
    step = end / max(want - 1, 1)
    for n in range(want):
        place = n * step
        before = min(int(place), end)
        here, there = x_N[before], x_N[min(before + 1, end)]
        y_N[n] = here + (there - here) * np.float32(place - before)
