"""Excerpts of a bank of noise, again and again if they are shorter than a row.

Shapes: S samples of the bank, B examples, R rows, T samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, Integers, loop

LANES = 16
"""Sums that are added up side by side."""


@loop
def measure_power(bank_S: Floats, place_B: Integers, span_B: Integers, power_B: Doubles, first: int, last: int) -> None:
    """Find the mean square of each excerpt: from ``place`` on, ``span`` samples."""
    sums = np.empty(LANES)
    for example in range(first, last):
        excerpt = bank_S[place_B[example] : place_B[example] + span_B[example]]
        whole = len(excerpt) // LANES * LANES
        sums[:] = 0.0
        for begin in range(0, whole, LANES):
            some = excerpt[begin : begin + LANES]
            for lane in range(LANES):
                sums[lane] += np.float64(some[lane]) * np.float64(some[lane])
        for rest in range(whole, len(excerpt)):
            sums[0] += np.float64(excerpt[rest]) * np.float64(excerpt[rest])
        power_B[example] = sums.sum() / max(len(excerpt), 1)


@loop
def add_excerpts(
    x_RT: Floats,
    bank_S: Floats,
    place_B: Integers,
    span_B: Integers,
    gain_B: Floats,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Add an excerpt to each row, with a gain. An example has so many channels, a row each."""
    samples = x_RT.shape[1]
    for row in range(first, last):
        example = row // channels
        span, gain = span_B[example], gain_B[example]
        excerpt = bank_S[place_B[example] : place_B[example] + span]
        for begin in range(0, samples, max(span, 1)):
            x_T, y_T = x_RT[row, begin : begin + span], y_RT[row, begin : begin + span]
            for time in range(len(x_T)):
                y_T[time] = x_T[time] + gain * excerpt[time]
