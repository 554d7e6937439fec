"""The power of stretches of memory, rows added to others, and gains that change.

Shapes: S samples in memory, N stretches, B examples, C channels, R rows, T samples.
"""

import math

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, Integers, loop, loop_of_sums

BLOCK = 64
"""Samples whose gains are one power each times that of the first."""


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


@loop
def change_gain(
    x_RT: Floats,
    start_db_B: Floats,
    end_db_B: Floats,
    steps_B: Integers,
    begin_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``GainTransition`` does; an example has so many channels, a row each. The result may be where x is."""
    power_K = np.empty(BLOCK)
    for row in range(first, last):
        b, x_T, y_T = row // channels, x_RT[row], y_RT[row]
        start, end = start_db_B[b] * (math.log(10) / 20), end_db_B[b] * (math.log(10) / 20)
        slope, samples = (end - start) / steps_B[b], len(x_T)
        begin, behind = min(max(begin_B[b], 0), samples), min(max(begin_B[b] + steps_B[b], 0), samples)
        _amplify(x_T[:begin], np.float32(math.exp(start)), y_T[:begin])
        for k in range(BLOCK):
            power_K[k] = math.exp(slope * k)
        for t in range(begin, behind, BLOCK):
            gain = math.exp(start + slope * (t - begin_B[b]))
            for k in range(min(BLOCK, behind - t)):
                y_T[t + k] = x_T[t + k] * np.float32(gain * power_K[k])
        _amplify(x_T[behind:], np.float32(math.exp(end)), y_T[behind:])


@loop
def _amplify(x_T: Floats, gain: np.float32, y_T: Floats) -> None:
    for t in range(len(x_T)):
        y_T[t] = gain * x_T[t]
