"""Excerpts of a bank of noise, again and again if they are shorter than a row.

Shapes: S samples of the bank, B examples, R rows, T samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop

BLOCK = 1024
"""Samples that are at hand while they are worked on."""


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
