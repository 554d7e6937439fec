"""Rows put together of pieces of themselves.

Shapes: R rows, T samples, K pieces, N splices.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop


@loop
def copy_pieces(
    x_RT: Floats, begin_RK: Integers, by_RK: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Do what ``windows.pieced`` does; an example has so many channels, a row each."""
    pieces, wanted = begin_RK.shape[1], y_RT.shape[1]
    for row in range(first, last):
        begin_K, by_K = begin_RK[row // channels], by_RK[row // channels]
        for piece in range(pieces):
            end = min(begin_K[piece + 1], wanted) if piece + 1 < pieces else wanted
            _copy(x_RT[row], min(begin_K[piece], wanted), end, by_K[piece], y_RT[row])


@loop
def roll(x_RT: Floats, by_B: Integers, length_B: Integers, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Roll the first ``length`` samples of each row ``by`` later; an example has so many channels, a row each."""
    for row in range(first, last):
        by, length = by_B[row // channels], length_B[row // channels]
        x_T, y_T = x_RT[row], y_RT[row]
        _read(x_T[length - by : length], y_T[:by])
        _read(x_T[: length - by], y_T[by:length])
        y_T[length:] = 0.0


@loop
def place_stretch(
    x_RT: Floats,
    start_B: Integers,
    length_B: Integers,
    place_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Copy ``length`` samples of each row, from ``start`` on, to ``place``, into silence."""
    for row in range(first, last):
        start, length, place = start_B[row // channels], length_B[row // channels], place_B[row // channels]
        y_T, end = y_RT[row], min(place + length, y_RT.shape[1])
        y_T[:place] = 0.0
        _copy(x_RT[row], place, end, place - start, y_T)
        y_T[end:] = 0.0


@loop
def _copy(x_T: Floats, begin: int, end: int, by: int, y_T: Floats) -> None:
    """Copy what lies ``by`` samples before; around the row is silence."""
    inside = min(max(begin, by), end)
    outside = max(min(end, by + len(x_T)), inside)
    y_T[begin:inside] = 0.0
    _read(x_T[inside - by : outside - by], y_T[inside:outside])
    y_T[outside:end] = 0.0


@loop
def _read(x_T: Floats, y_T: Floats) -> None:
    """Copy; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]


@loop
def splice(
    x_RT: Floats, start_RN: Integers, half_RN: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Fold stretches of each row to half their width, one after the other.

    Args:
        x_RT: the rows.
        start_RN: where the stretches of each example begin.
        half_RN: half their widths.
        channels: how many rows an example has.
        y_RT: where the result goes, with silence behind it.
        first: the first row.
        last: the one behind the last row.
    """
    for row in range(first, last):
        _read(x_RT[row], y_RT[row])
        for start, half in zip(start_RN[row // channels], half_RN[row // channels]):
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
        _read(y_T[begin + half : end + half], y_T[begin:end])
    y_T[rest:] = 0.0
