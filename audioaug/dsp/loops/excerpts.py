"""Excerpts of a bank of noise, again and again if they are shorter than a row.

Shapes: S samples of the bank, B examples, R rows, T samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, Integers, loop

BLOCK = 1024
"""Samples that are at hand while they are worked on."""
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
    """Add an excerpt, with a gain, to each row: an example has so many channels. The result may be where x is."""
    some = np.empty(BLOCK, dtype=np.float32)
    for row in range(first, last):
        example, begin = row // channels, 0
        place, span, gain = place_B[example], span_B[example], gain_B[example]
        while begin < x_RT.shape[1]:
            since = begin % span
            count = min(BLOCK, span - since, x_RT.shape[1] - begin)
            x_T, y_T = x_RT[row, begin : begin + count], y_RT[row, begin : begin + count]
            noise_T = bank_S[place + since : place + since + count]
            for t in range(count):
                some[t] = x_T[t] + gain * noise_T[t]
            for t in range(count):
                y_T[t] = some[t]
            begin += count
