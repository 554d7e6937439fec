"""Signals read between their samples, at a rate for each row.

Shapes: B examples, R rows, T samples, N samples at twice the rate, K samples of the result, P pairs of taps.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop

BLOCK = 256
"""Samples that are at hand while they are worked on."""
TAPS, FRACTION_BITS = 8, 36
"""As in ``resample``."""
BEFORE = TAPS // 2 - 1
"""Taps before the sample before the time."""

f32 = np.float32


@loop
def read_at_rates(
    fine_RN: Floats,
    x_RT: Floats,
    step_B: Integers,
    length_B: Integers,
    factors_PD: Floats,
    channels: int,
    y_RK: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``resample`` does with clips at twice their rate; an example has so many channels, a row each.

    Args:
        fine_RN: periodic signals of twice the rate.
        x_RT: the clips themselves, for steps of 1.
        step_B: old rate over new rate, times 2**36.
        length_B: of the clips; behind it, the result is silent.
        factors_PD: of each tap's weight, by the powers of the distance from the middle between two samples.
        channels: how many rows an example has.
        y_RK: where the result goes.
        first: the first row.
        last: the one behind the last row.
    """
    fine, wanted = fine_RN.shape[1], y_RK.shape[1]
    ringed = np.empty(fine + TAPS, dtype=f32)
    for row in range(first, last):
        step, length = step_B[row // channels], length_B[row // channels]
        heard = min(wanted, ((length << FRACTION_BITS) + step - 1) // step)
        y_K = y_RK[row]
        if step == 1 << FRACTION_BITS:
            for k in range(heard):
                y_K[k] = x_RT[row, k]
        else:
            ringed[:BEFORE] = fine_RN[row, fine - BEFORE :]
            for place in range(fine):
                ringed[BEFORE + place] = fine_RN[row, place]
            ringed[BEFORE + fine :] = fine_RN[row, : TAPS - BEFORE]
            for begin in range(0, heard, BLOCK):
                _read(ringed, fine, begin, step, factors_PD, y_K[begin : min(begin + BLOCK, heard)])
        y_K[heard:] = 0.0


@loop
def _read(ringed: Floats, fine: int, begin: int, step: int, factors_PD: Floats, y_K: Floats) -> None:
    count, half = len(y_K), FRACTION_BITS - 1
    place_K, off_K = np.empty(BLOCK, dtype=np.int64), np.empty(BLOCK, dtype=f32)
    total_K = np.zeros(BLOCK, dtype=f32)
    for k in range(count):
        time = (begin + k) * step
        place_K[k] = min(time >> half, fine - 1)
        off_K[k] = f32(time & ((1 << half) - 1)) * f32(2.0**-half) - f32(0.5)
    for tap in range(TAPS // 2):
        c = factors_PD[tap]
        c0, c1, c2, c3, c4, c5, c6, c7, c8 = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]
        for k in range(count):
            off = off_K[k]
            square = off * off
            even = (((c8 * square + c6) * square + c4) * square + c2) * square + c0
            odd = (((c7 * square + c5) * square + c3) * square + c1) * off
            earlier, later = ringed[place_K[k] + tap], ringed[place_K[k] + TAPS - 1 - tap]
            total_K[k] += (even + odd) * earlier + (even - odd) * later
    for k in range(count):
        y_K[k] = total_K[k]
