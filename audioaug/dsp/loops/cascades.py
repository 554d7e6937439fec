"""Cascades of second-order sections, a row each, in float64: sixteen rows side by side, in the lanes of registers.

A section alone waits for itself from sample to sample. So a tile of rows and samples is turned, to lie side by side;
each section runs through it, a few samples of all lanes at a time, and the result is turned back.

Shapes: R rows, T samples, S sections, K numbers of each.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, loop

LANES = 16
TILE = 32
"""Samples of each row."""
STEPS = 8
"""Samples after which a section's state is stored."""
TINY = 1e-200
"""A state below it is nothing: processors take long for numbers that are next to none, in the silence behind a clip."""
NUMBERS = 7
"""Of a section: b0, b1, b2, a1, a2 and its state of two, for all lanes each."""


@loop
def filter_cascades(x_RT: Floats, numbers_RSK: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Filter each row with its own cascade, which starts in the steady state of the row's first sample.

    Args:
        x_RT: the rows.
        numbers_RSK: of each example's sections, as of ``biquads.Section.numbers_RK``.
        channels: how many rows an example has.
        y_RT: where the result goes.
        first: the first row.
        last: the one behind the last row.
    """
    samples, sections = x_RT.shape[1], numbers_RSK.shape[1]
    tile, numbers = np.zeros(TILE * LANES), np.zeros(sections * NUMBERS * LANES)
    for row in range(first, last, LANES):
        lanes = min(LANES, last - row)
        for lane in range(lanes):
            _start(numbers_RSK[(row + lane) // channels], np.float64(x_RT[row + lane, 0]), numbers[lane:])
        for time in range(0, samples, TILE):
            count = min(TILE, samples - time)
            if lanes == LANES and count == TILE:  # as below, but the compiler knows how many
                _turn(x_RT, tile, row, time, LANES, TILE)
                _filter(tile, numbers, sections)
                _turn_back(tile, y_RT, row, time, LANES, TILE)
            else:
                _turn(x_RT, tile, row, time, lanes, count)
                _filter(tile, numbers, sections)
                _turn_back(tile, y_RT, row, time, lanes, count)


@loop
def _start(numbers_SK: Floats, before: float, into: Doubles) -> None:
    """Write a cascade's coefficients, and the states that an endless input of ``before`` leads to, into its lane."""
    for place in range(len(numbers_SK)):
        # (low + band p + high p^2) / (1 + k p + p^2), with p = (z - 1) / (z + 1) / g
        g, k = np.float64(numbers_SK[place, 0]), np.float64(numbers_SK[place, 1])
        low, band, high = numbers_SK[place, 2], numbers_SK[place, 3], numbers_SK[place, 4]
        a0 = 1 + g * (g + k)
        b0, b1, b2 = (
            (g * (g * low + band) + high) / a0,
            2 * (g * g * low - high) / a0,
            (g * (g * low - band) + high) / a0,
        )
        a1, a2 = 2 * (g * g - 1) / a0, (1 + g * (g - k)) / a0
        after = low * before
        own = into[place * NUMBERS * LANES :]
        own[0], own[LANES], own[2 * LANES], own[3 * LANES], own[4 * LANES] = b0, b1, b2, a1, a2
        own[5 * LANES], own[6 * LANES] = after - b0 * before, b2 * before - a2 * after
        before = after


@loop
def _turn(x_RT: Floats, tile: Doubles, row: int, time: int, lanes: int, count: int) -> None:
    for step in range(count):
        some = tile[step * LANES : (step + 1) * LANES]
        for lane in range(lanes):
            some[lane] = x_RT[row + lane, time + step]


@loop
def _turn_back(tile: Doubles, y_RT: Floats, row: int, time: int, lanes: int, count: int) -> None:
    for lane in range(lanes):
        y_T = y_RT[row + lane, time : time + count]
        for step in range(count):
            y_T[step] = tile[step * LANES + lane]


@loop
def _filter(tile: Doubles, numbers: Doubles, sections: int) -> None:
    """Run a tile through all sections, in the transposed direct form II."""
    for place in range(sections):
        own = numbers[place * NUMBERS * LANES : (place + 1) * NUMBERS * LANES]
        for time in range(0, TILE, STEPS):
            some = tile[time * LANES : (time + STEPS) * LANES]
            for lane in range(LANES):
                b0, b1, b2 = own[lane], own[LANES + lane], own[2 * LANES + lane]
                a1, a2 = own[3 * LANES + lane], own[4 * LANES + lane]
                state_1, state_2 = own[5 * LANES + lane], own[6 * LANES + lane]
                for step in range(STEPS):
                    x = some[step * LANES + lane]
                    y = b0 * x + state_1
                    state_1 = b1 * x + state_2 - a1 * y
                    state_2 = b2 * x - a2 * y
                    some[step * LANES + lane] = y
                own[5 * LANES + lane] = 0.0 if abs(state_1) < TINY else state_1
                own[6 * LANES + lane] = 0.0 if abs(state_2) < TINY else state_2
