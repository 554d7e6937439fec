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
    """Fold segments of rows to half their width, one after the other; ``channels`` rows an example.

    What follows a segment is not moved each time: a row is a list of pieces, put together when all are known.
    """
    most_pieces = 3 * half_BN.shape[1] + 1
    place_P, end_P = np.empty(most_pieces, np.int64), np.empty(most_pieces, np.int64)
    for row in range(first, last):
        x_T, start_N, half_N = x_RT[row], start_BN[row // channels], half_BN[row // channels]
        fades_F = np.empty(half_N.sum(), np.float32)
        place_P[0], end_P[0], pieces, used = 0, len(x_T), 1, 0
        for start, half in zip(start_N, half_N):
            if half:
                pieces = _fold(x_T, fades_F, used, place_P, end_P, pieces, start, half)
                used += half
        _join(x_T, fades_F, place_P, end_P, 0, pieces, y_RT[row])
        y_RT[row, end_P[pieces - 1] :] = 0.0


@loop
def _fold(
    x_T: Floats, fades_F: Floats, used: int, place_P: Integers, end_P: Integers, pieces: int, start: int, half: int
) -> int:
    """Fold a segment: one new piece takes the place of its pieces. Return how many there are then.

    Args:
        x_T: what pieces are from: the row.
        fades_F: and all fades, one after the other, as if they followed the row.
        used: how much of these is filled.
        place_P: where each piece is there.
        end_P: where it ends in what the splices before have left.
        pieces: how many there are; at most two more are made.
        start: of the segment.
        half: of its length.
    """
    first, pieces = _cut(place_P, end_P, pieces, start)
    middle, pieces = _cut(place_P, end_P, pieces, start + half)
    last, pieces = _cut(place_P, end_P, pieces, start + 2 * half)
    fade_F, after_F = fades_F[used : used + half], np.empty(half, np.float32)
    _join(x_T, fades_F, place_P, end_P, first, middle, fade_F)
    _join(x_T, fades_F, place_P, end_P, middle, last, after_F)
    _crossfade(fade_F, after_F)
    place_P[first], end_P[first] = len(x_T) + used, start + half
    for piece in range(last, pieces):
        to = piece - last + first + 1
        place_P[to], end_P[to] = place_P[piece], end_P[piece] - half
    return pieces - last + first + 1


@loop
def _cut(place_P: Integers, end_P: Integers, pieces: int, at: int) -> tuple[int, int]:
    """Let a piece begin there; return which one, and how many there are then."""
    piece = begin = 0
    while piece < pieces and end_P[piece] <= at:
        begin = end_P[piece]
        piece += 1
    if begin == at:
        return piece, pieces
    for to in range(pieces, piece, -1):
        place_P[to], end_P[to] = place_P[to - 1], end_P[to - 1]
    end_P[piece] = at
    place_P[piece + 1] += at - begin
    return piece + 1, pieces + 1


@loop
def _join(x_T: Floats, fades_F: Floats, place_P: Integers, end_P: Integers, first: int, last: int, y_T: Floats) -> None:
    """Copy some of the pieces, one after the other, to where y begins."""
    begin = end_P[first - 1] if first else 0
    at = 0
    for piece in range(first, last):
        place, end = place_P[piece], end_P[piece] - begin
        if place < len(x_T):
            _copy(x_T[place:], y_T[at:end])
        else:
            _copy(fades_F[place - len(x_T) :], y_T[at:end])
        at = end


@loop
def _crossfade(y_T: Floats, after_T: Floats) -> None:
    """Fade in the second over the first."""
    # The fade is (1 - cos(t w)) / 2. Two cosines in a row give the next: cos((t + 1) w) = 2 cos(w) cos(t w) - ...
    step = np.pi / len(y_T)
    before, now, turn = np.cos(step), 1.0, 2 * np.cos(step)
    for t in range(len(y_T)):
        y_T[t] += (0.5 - 0.5 * now) * (after_T[t] - y_T[t])
        before, now = now, turn * now - before


@loop
def _copy(x_T: Floats, y_T: Floats) -> None:
    """Copy as many samples as y has; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]
