"""The power of stretches of memory, and rows added to others.

Shapes: S samples in memory, N stretches, B examples, C channels, R rows, T samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, Integers, loop, loop_of_sums


@loop_of_sums
def add_squares(x_S: Floats, place_N: Integers, count_N: Integers, sum_N: Doubles, first: int, last: int) -> None:
    """Find the sum of the squares of each stretch: from ``place`` on, ``count`` samples."""
    for n in range(first, last):
        stretch, total = x_S[place_N[n] : place_N[n] + count_N[n]], 0.0
        for t in range(len(stretch)):
            total += np.float64(stretch[t]) * np.float64(stretch[t])
        sum_N[n] = total


@loop
def add_others(
    x_RT: Floats, other_B: Integers, gain_BC: Floats, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Add another example, with a gain, to each one; an example has so many channels, a row each."""
    for row in range(first, last):
        example, channel = row // channels, row % channels
        x_T, other_T, y_T = x_RT[row], x_RT[other_B[example] * channels + channel], y_RT[row]
        gain = gain_BC[example, channel]
        for t in range(len(x_T)):
            y_T[t] = x_T[t] + gain * other_T[t]
