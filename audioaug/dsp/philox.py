"""Philox: random numbers that are a pure function of a key and a counter, the same on any machine.

NumPy defines them, and not torch, whose modes and default devices must not reach them.

Reference: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

Shapes: B examples, L places (a position in the chain and a lane each), N counters.
"""

import functools
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audioaug.dsp.host_function import HostFunction
from audioaug.dsp.loops import Doubles, loop_as_written

u64 = np.uint64
Words: TypeAlias = NDArray[np.uint64]
Key: TypeAlias = tuple[int, int]
"""Two words of 32 bits."""

_MASK, _HALF = u64(0xFFFFFFFF), u64(32)
_TIMES_A, _TIMES_C = u64(0xD2511F53), u64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_ABOVE, _BELOW, _LEFT = u64(5), u64(6), u64(26)
"""How 27 bits of a word and 26 of another become 53, which a double holds."""


def philox(counter_4N: ArrayLike, key: Key) -> Words:
    """Encrypt N counters: four words of 32 bits of each in, four out, held in uint64; (4, N)."""
    a, b, c, d = np.asarray(counter_4N, dtype=np.uint64)
    for key_a, key_c in _round_keys(key):
        from_a, from_c = a * _TIMES_A, c * _TIMES_C
        a, b = from_c >> _HALF ^ b ^ key_a, from_c & _MASK
        c, d = from_a >> _HALF ^ d ^ key_c, from_a & _MASK
    return np.stack([a, b, c, d])


@functools.lru_cache(maxsize=64)
def _round_keys(key: Key) -> Words:
    """Return the key's two words in each round, (rounds, 2)."""
    words = [[word + step * turn for word, step in zip(key, _KEY_STEPS)] for turn in range(_ROUNDS)]
    return np.asarray(words, dtype=np.uint64) & _MASK


def uniforms(number_B: Words, position_L: Words, lane_L: Words, key: Key) -> Doubles:
    """Return numbers in [0, 1), (L, B), that follow from each example's number of 64 bits and each place.

    By a compiled loop, if that gives what the definition does. A few are not worth importing numba for.
    """
    u_LB = np.empty((len(position_L), len(number_B)))
    _fill(number_B, position_L, lane_L, _round_keys(key), u_LB)
    return u_LB


def _uniforms(number_B: Words, position_L: Words, lane_L: Words, keys: Words, u_LB: Doubles) -> None:
    counter = np.broadcast_arrays(number_B & _MASK, number_B >> _HALF, position_L[:, None], lane_L[:, None])
    low_key, high_key = keys[0].tolist()  # the first round's words are the key itself
    high_LB, low_LB, _, _ = philox(np.stack(counter), (low_key, high_key))
    u_LB[:] = (high_LB >> _ABOVE << _LEFT | low_LB >> _BELOW) * 2.0**-53


@loop_as_written
def _uniforms_by_loop(number_B: Words, position_L: Words, lane_L: Words, keys: Words, u_LB: Doubles) -> None:
    for place in range(len(position_L)):
        for row in range(len(number_B)):
            a, b, c, d = number_B[row] & _MASK, number_B[row] >> _HALF, position_L[place], lane_L[place]
            for turn in range(_ROUNDS):
                from_a, from_c = a * _TIMES_A, c * _TIMES_C
                a, b = from_c >> _HALF ^ b ^ keys[turn, 0], from_c & _MASK
                c, d = from_a >> _HALF ^ d ^ keys[turn, 1], from_a & _MASK
            u_LB[place, row] = np.float64(a >> _ABOVE << _LEFT | b >> _BELOW) * 2.0**-53


def _some_places() -> tuple[Words, Words, Words, Words, Doubles]:
    number_B = np.arange(67, dtype=np.uint64) * u64(0x9E3779B97F4A7C15)
    position_L, lane_L = np.arange(3, dtype=np.uint64), np.arange(5, 8, dtype=np.uint64)
    return number_B, position_L, lane_L, _round_keys((1, 2)), np.empty((3, 67))


_fill = HostFunction(_uniforms, _uniforms_by_loop, _some_places)
