"""White Gaussian noise in vector registers, which need every function as a polynomial: exact to float32's digits.

Shapes: R rows, T samples.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.loops.compiling import Floats, loop

f32, i32, u32 = np.float32, np.int32, np.uint32
Keys: TypeAlias = NDArray[np.int32]

BLOCK = 1024
"""Samples that are at hand while they are worked on."""

RADIUS_MASK, RADIUS_STEP = i32(2**20 - 1), f32(2.0**-20)
TURN = f32(2 * math.pi * 2.0**-32)
EIGHTH_TURN = i32(2**29)
ROOT_HALF = i32(0x3F3504F3)
"""The bits of the root of 1/2."""
LN_2 = f32(math.log(2))
ONE, HALF, TWO = f32(1), f32(0.5), f32(2)
SIN_3, SIN_5, SIN_7, SIN_9 = f32(-1 / 6), f32(1 / 120), f32(-1 / 5040), f32(1 / 362880)
COS_2, COS_4, COS_6, COS_8 = f32(-1 / 2), f32(1 / 24), f32(-1 / 720), f32(1 / 40320)
LN_3, LN_5, LN_7, LN_9 = f32(2 / 3), f32(2 / 5), f32(2 / 7), f32(2 / 9)


@loop
def fill_with_noise(keys_R2: Keys, y_RT: Floats, first: int, last: int) -> None:
    """Do what ``noise.gaussian`` does, from two keys of each row; T is even."""
    for row in range(first, last):
        _fill(y_RT[row], 0, u32(keys_R2[row, 0]), u32(keys_R2[row, 1]))


@loop
def add_noise(x_RT: Floats, keys_BC2: Keys, gain_B: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Add a gain times that noise to rows, of which an example has so many channels. The result may be where x is."""
    some = np.empty(BLOCK, dtype=np.float32)
    for row in range(first, last):
        key_2, gain = keys_BC2[row // channels, row % channels], gain_B[row // channels]
        for begin in range(0, x_RT.shape[1], BLOCK):
            x_T, y_T = x_RT[row, begin : begin + BLOCK], y_RT[row, begin : begin + BLOCK]
            _fill(some, begin // 2, u32(key_2[0]), u32(key_2[1]))
            for t in range(len(x_T)):
                some[t] = x_T[t] + gain * some[t]
            for t in range(len(x_T)):
                y_T[t] = some[t]


@loop
def _fill(y_T: Floats, first_pair: int, key: Any, other_key: Any) -> None:
    for pair in range(len(y_T) // 2):
        y_T[2 * pair], y_T[2 * pair + 1] = _pair(u32(first_pair + pair), key, other_key)


@loop
def _pair(counter: Any, key: Any, other_key: Any) -> tuple[Any, Any]:
    """Return two normal numbers. All is in 32 bits: what numba adds in 64 is cut again."""
    # The hash, as in noise._hash_32.
    z = u32(counter * u32(0x9E3779B9) + key)
    z = u32((z ^ (z >> u32(16))) * u32(0x7FEB352D) + other_key)
    z = u32((z ^ (z >> u32(15))) * u32(0x846CA68B))
    bits = i32(z ^ (z >> u32(16)))
    # The radius: u is m 2^e, with m around 1, whose logarithm is a series in t = (m - 1) / (m + 1).
    u = f32((f32(i32(bits & RADIUS_MASK)) + HALF) * RADIUS_STEP).view(np.int32)
    e = i32(i32(u - ROOT_HALF) >> i32(23))
    m = i32(u - i32(e << i32(23))).view(np.float32)
    t = (m - ONE) / (m + ONE)
    tt = t * t
    logarithm = f32(e) * LN_2 + t * (TWO + tt * (LN_3 + tt * (LN_5 + tt * (LN_7 + tt * LN_9))))
    radius = np.sqrt(-TWO * logarithm)
    # The angle: from the middle of its quarter of a turn.
    quarter = i32(i32(bits + EIGHTH_TURN) >> i32(30))
    a = f32(i32(bits - i32(quarter << i32(30)))) * TURN
    aa = a * a
    sine = a + a * aa * (SIN_3 + aa * (SIN_5 + aa * (SIN_7 + aa * SIN_9)))
    cosine = ONE + aa * (COS_2 + aa * (COS_4 + aa * (COS_6 + aa * COS_8)))
    odd = (quarter & i32(1)) != 0
    x, y = sine if odd else cosine, cosine if odd else sine
    x_below, y_below = (i32(quarter + i32(1)) & i32(2)) != 0, (quarter & i32(2)) != 0
    return (-x if x_below else x) * radius, (-y if y_below else y) * radius
