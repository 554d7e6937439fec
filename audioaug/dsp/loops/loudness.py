"""The energy of what an ear hears of rows, in float64.

Shapes: R rows, T samples, N steps.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, loop

Section = tuple[float, float, float, float, float]

TINY = 1e-200
"""A state below it is nothing, as in ``cascades``."""


@loop
def add_weighted_squares(
    x_RT: Floats, sections: tuple[Section, Section], sum_RN: Doubles, first: int, last: int
) -> None:
    """Add up the squares of each row's steps behind two sections: b0, b1, b2, a1 and a2 of each. N divides T."""
    (b0, b1, b2, a1, a2), (d0, d1, d2, c1, c2) = sections
    step = x_RT.shape[1] // sum_RN.shape[1]
    for row in range(first, last):
        p1, p2, q1, q2 = 0.0, 0.0, 0.0, 0.0
        for n in range(sum_RN.shape[1]):
            x_T, total = x_RT[row, n * step : (n + 1) * step], 0.0
            for t in range(step):
                x = np.float64(x_T[t])
                y = b0 * x + p1
                p1, p2 = b1 * x + p2 - a1 * y, b2 * x - a2 * y
                z = d0 * y + q1
                q1, q2 = d1 * y + q2 - c1 * z, d2 * y - c2 * z
                total += z * z
            p1, p2 = 0.0 if abs(p1) < TINY else p1, 0.0 if abs(p2) < TINY else p2
            q1, q2 = 0.0 if abs(q1) < TINY else q1, 0.0 if abs(q2) < TINY else q2
            sum_RN[row, n] = total
