"""Stretches of rows, faded in place.

Shapes: B examples, R rows, T samples.
"""

from audioaug.dsp.loops.compiling import Floats, Integers, loop


@loop
def silence_stretch(
    start_B: Integers,
    count_B: Integers,
    fade_B: Integers,
    bend_by: float,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``fades.silence_stretch`` does, with fades that bend; an example has so many channels, a row each."""
    for row in range(first, last):
        start, count, fade = start_B[row // channels], count_B[row // channels], fade_B[row // channels]
        stretch_T = y_RT[row, start : start + count]
        for t in range(min(fade, count)):
            gain = _crossfade(fade - 1 - t, fade, bend_by)
            stretch_T[t] *= gain
            stretch_T[count - 1 - t] *= gain
        stretch_T[fade : count - fade] = 0.0


@loop
def fade_around(
    stitch_B: Integers, fade: int, bend_by: float, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Do what ``fades.fade_around`` does, with fades that bend; an example has so many channels, a row each."""
    for row in range(first, last):
        stitch = stitch_B[row // channels]
        for t in range(max(0, stitch - fade), min(stitch + fade, y_RT.shape[1])):
            y_RT[row, t] *= _crossfade(max(t - stitch, stitch - 1 - t), fade, bend_by)


@loop
def _crossfade(position: int, length: int, bend_by: float) -> float:
    """Do what ``fades.crossfade`` does, within the fade."""
    x = position / max(length - 1, 1)
    bend = x - x * x
    gain = (bend_by * bend + 1.0) * bend + x
    return gain * gain
