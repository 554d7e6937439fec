"""Twister: the words of 32 bits that torch's generator on the CPU yields from a seed.

Reference: MT19937 of Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8(1), 1998).

Shapes: R seeds, N words of each.
"""

import threading
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.host_function import HostFunction
from audioaug.dsp.loops import Integers, loop_as_written

u32 = np.uint32
Words: TypeAlias = NDArray[np.uint32]

SIZE, AHEAD = 624, 397
"""A word follows from those of 624, 623 and 227 places earlier."""
_SEED_FACTOR, _UPPER, _LOWER, _MATRIX = u32(1812433253), u32(0x80000000), u32(0x7FFFFFFF), u32(0x9908B0DF)


def torch_words(key_R: NDArray[np.float64], count: int) -> Integers:
    """Return the words that torch's generator on the CPU yields from each seed, (R, count).

    ``torch.randint`` takes one of them, modulo how many numbers there are (two from 2**28 on). Of a seed, torch takes
    32 bits.
    """
    words_RN = np.empty((len(key_R), count), dtype=np.int64)
    _fill((key_R.astype(np.int64) & 0xFFFFFFFF).astype(u32), words_RN)
    return words_RN


def _words(seed_R: Words, words_RN: Integers) -> None:
    """Let NumPy's generator, which is the same one, draw them: it is set to a seed far sooner than torch's."""
    seed, draw_words = _twister.seed, _twister.draw_words
    for row, seed_32 in enumerate(seed_R.tolist()):
        seed(seed_32)
        words_RN[row] = draw_words(words_RN.shape[1])


class _Twister(threading.local):
    """One MT19937 for each thread, since making one takes as long as seeding it 60 times."""

    def __init__(self) -> None:
        source = np.random.MT19937(0)
        self.seed, self.draw_words = np.random.RandomState(source).seed, source.random_raw


_twister = _Twister()


@loop_as_written
def _words_by_loop(seed_R: Words, words_RN: Integers) -> None:
    """Compute all rows together, in the lanes of registers; of the seed's 624 words only those that are needed."""
    rows, count = words_RN.shape
    state_NR = np.empty((SIZE + count, rows), dtype=np.uint32)
    for row in range(rows):
        state_NR[0, row] = seed_R[row]
    for n in range(1, min(SIZE, AHEAD + count)):
        for row in range(rows):
            before = state_NR[n - 1, row]
            state_NR[n, row] = u32(_SEED_FACTOR * u32(before ^ (before >> u32(30)))) + u32(n)
    for n in range(count):
        for row in range(rows):
            joined = (state_NR[n, row] & _UPPER) | (state_NR[n + 1, row] & _LOWER)
            word = state_NR[n + AHEAD, row] ^ (joined >> u32(1)) ^ (_MATRIX if joined & u32(1) else u32(0))
            state_NR[SIZE + n, row] = word
            word ^= word >> u32(11)
            word ^= (word << u32(7)) & u32(0x9D2C5680)
            word ^= (word << u32(15)) & u32(0xEFC60000)
            words_RN[row, n] = word ^ (word >> u32(18))


def _some_seeds() -> tuple[Any, ...]:
    return np.asarray([0, 5, 2**32 - 1], dtype=np.uint32), np.empty((3, SIZE + 300), dtype=np.int64)


_fill = HostFunction(_words, _words_by_loop, _some_seeds)
