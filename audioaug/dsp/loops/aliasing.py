"""Rows read at evenly spaced places, fewer or more than they have samples, and back again.

Shapes: B examples, R rows, T samples, N samples read.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop


@loop
def alias(
    x_RT: Floats, length_B: Integers, left_B: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Do what ``Aliasing`` does; an example has so many channels, a row each. The result may be where x is."""
    some_N = np.empty(0, dtype=np.float32)
    for row in range(first, last):
        length, left = length_B[row // channels], left_B[row // channels]
        if len(some_N) < left:
            some_N = np.empty(left, dtype=np.float32)
        _read(x_RT[row], length, some_N, left)
        _read(some_N, left, y_RT[row], length)


@loop
def _read(x_N: Floats, have: int, y_N: Floats, want: int) -> None:
    """Read so many places, evenly spaced from the first sample to the last one."""
    end = max(have - 1, 0)
    step = end / max(want - 1, 1)
    for n in range(want):
        place = n * step
        before = min(int(place), end)
        here, there = x_N[before], x_N[min(before + 1, end)]
        y_N[n] = here + (there - here) * np.float32(place - before)
