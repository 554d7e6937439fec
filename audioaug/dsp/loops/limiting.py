"""A look-ahead limiter, in float64.

Shapes: R rows, T samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Doubles, Floats, Integers, loop


@loop
def limit(
    x_RT: Floats,
    length_B: Integers,
    threshold_B: Doubles,
    attack_B: Doubles,
    release_B: Doubles,
    delay_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``ops.Limiter`` does.

    Args:
        x_RT: the rows.
        length_B: of each example; an example has so many ``channels``, a row each.
        threshold_B: the level that is limited to, above 0.
        attack_B: what is left of a change of the gain after each sample.
        release_B: what is left of a peak.
        delay_B: how many samples the gain comes before what it follows.
        channels: of an example.
        y_RT: where the result goes.
        first: the first row.
        last: the one behind the last row.
    """
    for row in range(first, last):
        example = row // channels
        threshold, attack, release = threshold_B[example], attack_B[example], release_B[example]
        length, delay, samples = length_B[example], delay_B[example], x_RT.shape[1]
        envelope = less = 0.0
        for time in range(samples + delay):
            peak = np.float64(abs(x_RT[row, time])) if time < length else 0.0
            envelope = max(peak, release * envelope)
            less = attack * less + (1 - attack) * (1 - threshold / max(envelope, threshold))
            if time >= delay:
                y_RT[row, time - delay] = x_RT[row, time - delay] * (1 - less)
