"""Convolution with few taps, as it is written down.

Shapes: R rows, T samples, N taps.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, loop

BLOCK = 2048
"""Samples of the result that are at hand while all taps are added to them."""
TAPS = 16
"""Taps that are added at once."""


@loop
def convolve_directly(
    x_RT: Floats, taps_BN: Floats, start: int, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Do what ``fft.convolve`` does, with taps for each example, which has so many channels; N is a multiple of 16."""
    samples, count = x_RT.shape[1], taps_BN.shape[1]
    around, some = np.zeros(samples + 2 * count, dtype=np.float32), np.empty(BLOCK, dtype=np.float32)
    for row in range(first, last):
        taps_N, x_T, inside = taps_BN[row // channels], x_RT[row], around[count : count + samples]
        for t in range(samples):
            inside[t] = x_T[t]
        for begin in range(0, y_RT.shape[1], BLOCK):
            y_T = y_RT[row, begin : begin + BLOCK]
            some[:] = 0.0
            for since in range(0, count, TAPS):
                few, earlier = taps_N[since : since + TAPS], around[start + begin + count - since - TAPS + 1 :]
                for t in range(len(y_T)):
                    total = some[t]
                    for tap in range(TAPS):
                        total += few[tap] * earlier[t + TAPS - 1 - tap]
                    some[t] = total
            for t in range(len(y_T)):
                y_T[t] = some[t]
