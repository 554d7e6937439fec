"""Splices: segments of rows folded to half their length, the second half faded in over the first.

Shapes: B examples, C channels, T samples, N splices, W samples of a fade; R rows, a channel of an example each.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run_rows
from audioaug.dsp.windows import BLOCK, read, without, write

MOST_SPLICES = 64
"""With more, the kernel would need more memory for their fades than the batch itself."""


@primitive
def splice(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    """Fold segments of each example to half their length, one after the other: the second half fades in over the first.

    Args:
        x_BCT: the examples; silence follows where they become shorter.
        start_BN: where each segment begins, in what the ones before have left.
        half_BN: half of its length; 0 for none.
        widest: no half is longer.
    """
    samples = x_BCT.shape[-1]
    # Into the silence at the end splices may reach.
    y_BCT = torch.nn.functional.pad(x_BCT, (0, widest + BLOCK + -samples % BLOCK))
    fade_W = torch.arange(widest, device=x_BCT.device)
    for half_B, start_B in zip(half_BN.unbind(dim=1), start_BN.unbind(dim=1)):
        # Both halves of a Hann window of 2 * half samples, which add up to 1: from 0 to 1, and 1 thereafter.
        into_BW = (fade_W / half_B[:, None].clamp(min=1)).clamp_(max=1.0)
        share_BW = into_BW.mul_(torch.pi / 2).sin_().square_()
        before_BCW, after_BCW = read(y_BCT, torch.stack([start_B, start_B + half_B], dim=1), widest).unbind(2)
        y_BCT = without(y_BCT, start_B, half_B)
        write(y_BCT, start_B, torch.lerp(before_BCW, after_BCW, share_BW[:, None]))
    return y_BCT[..., :samples]


@splice.loop()
def _splice_by_loop(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    return run_rows(_splice_rows, x_BCT, start_BN, half_BN)


@splice.kernel(when=lambda x_BCT, start_BN, half_BN, widest: start_BN.shape[1] <= MOST_SPLICES)
def _splice_by_kernel(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    from audioaug.dsp.splices import kernel

    return kernel.splice(x_BCT, start_BN, half_BN, widest)


@loop
def _splice_rows(
    x_RT: Floats, start_BN: Integers, half_BN: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Fold segments of rows to half their width, one after the other; ``channels`` rows an example."""
    for row in range(first, last):
        _copy(x_RT[row], y_RT[row])
        for start, half in zip(start_BN[row // channels], half_BN[row // channels]):
            if half:
                _fold(y_RT[row, start:], half)


@loop
def _fold(y_T: Floats, half: int) -> None:
    """Fade the second ``half`` samples in over the first, and move up what follows."""
    # The fade is (1 - cos(t w)) / 2. Two cosines in a row give the next: cos((t + 1) w) = 2 cos(w) cos(t w) - ...
    before, now, turn = np.cos(np.pi / half), 1.0, 2 * np.cos(np.pi / half)
    for t in range(half):
        y_T[t] += (0.5 - 0.5 * now) * (y_T[half + t] - y_T[t])
        before, now = now, turn * now - before
    rest = len(y_T) - half
    for begin in range(half, rest, half):  # as much at a time as does not overlap
        end = min(begin + half, rest)
        _copy(y_T[begin + half : end + half], y_T[begin:end])
    y_T[rest:] = 0.0


@loop
def _copy(x_T: Floats, y_T: Floats) -> None:
    """Copy; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]
