"""Draws: every random decision for a batch of examples, as one table, made before any audio is touched.

The numbers come from a counter-based generator: a pure function of (seed, epoch, key of the example, position in the
chain, lane), without any state. So batch size, worker count, world size and placement cannot change a draw.

Shapes: B examples (rows), L columns.
"""

import operator
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audioaug.core.distributions import FloatArray
from audioaug.errors import DataError

_MASK_32 = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_CACHED = 8192
"""Counters of which all words and products fit into a CPU's cache."""


def philox(counter_4N: ArrayLike, key: tuple[int, int]) -> NDArray[np.uint64]:
    """Encrypt N counters with a key of two words: four 32-bit words of each in, four out, held in uint64; (4, N).

    Reference: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    result_4N = np.array(counter_4N, dtype=np.uint64)
    for first in range(0, result_4N.shape[1], _CACHED):
        a, b, c, d = result_4N[:, first : first + _CACHED]  # in place: new arrays would take most of the time
        from_a, from_c = np.empty_like(a), np.empty_like(c)
        for key_a, key_c in _round_keys(*key):
            np.multiply(a, _MULTIPLIERS[0], out=from_a)
            np.multiply(c, _MULTIPLIERS[1], out=from_c)
            for product, even, odd, word in ((from_c, a, b, key_a), (from_a, c, d, key_c)):
                np.right_shift(product, _SHIFT_32, out=even)
                np.bitwise_xor(even, odd, out=even)
                np.bitwise_xor(even, word, out=even)
                np.bitwise_and(product, _MASK_32, out=odd)
    return result_4N


@lru_cache(maxsize=64)
def _round_keys(low: int, high: int) -> NDArray[np.uint64]:
    """Return the key's two words in each round, (rounds, 2)."""
    words = [[word + step * turn for word, step in zip((low, high), _KEY_STEPS)] for turn in range(_ROUNDS)]
    return np.asarray(words, dtype=np.uint64) & _MASK_32


def uniforms(seed: int, epoch: int, keys: ArrayLike, positions: ArrayLike, lanes: ArrayLike) -> FloatArray:
    """Return numbers in [0, 1) of shape (B, L): a row for each key's number, a column for each (position, lane).

    The seed and the epoch are the key of the cipher, the rest is its counter, so no two places share a number.
    """
    key_B = np.asarray(keys, dtype=np.int64).astype(np.uint64)
    position_L1, lane_L1 = (np.asarray(each, dtype=np.uint64).reshape(-1, 1) for each in (positions, lanes))
    counter_4LB = np.empty((4, len(position_L1), len(key_B)), dtype=np.uint64)
    counter_4LB[0], counter_4LB[1] = key_B & _MASK_32, key_B >> _SHIFT_32
    counter_4LB[2], counter_4LB[3] = position_L1, lane_L1
    high_N, low_N, *_ = philox(counter_4LB.reshape(4, -1), _key(int(seed), int(epoch)))
    mantissa_N = ((high_N >> np.uint64(5)) << np.uint64(26)) | (low_N >> np.uint64(6))
    return (mantissa_N * 2.0**-53).reshape(counter_4LB.shape[1:]).T  # each column in one piece of memory


@lru_cache(maxsize=64)
def _key(seed: int, epoch: int) -> tuple[int, int]:
    low, high, *_ = philox([[word] for number in (seed, epoch) for word in _words(number)], (0, 0))
    return int(low[0]), int(high[0])


def _words(number: int) -> tuple[int, int]:
    """Split a 64-bit number (negative ones wrap around) into its low and high 32 bits."""
    return number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF


def legacy_generator(key: float) -> np.random.RandomState:
    """Return a generator that yields what numpy's global one does, once it is seeded with this key of 52 bits.

    Some references draw while they apply, from the global generator: this one yields the same numbers.
    """
    return np.random.RandomState(seed_words(key))


def legacy_integer(key: float, count: int) -> int:
    """Return the first ``randint(0, count)`` of ``legacy_generator(key)``, for a count from 1 to 2**32 - 1.

    Python's generator is the same one and takes half as long to seed. The seeds are the same words, except that Python
    leaves out a high word of 0. Of each word, numpy keeps as many low bits as the largest integer has, and draws again
    while they are out of range.
    """
    if count == 1:
        return 0
    if key < 2**32:
        return int(legacy_generator(key).randint(0, count))
    draw_bits, mask = random.Random(int(key)).getrandbits, (1 << (count - 1).bit_length()) - 1
    while (integer := draw_bits(32) & mask) >= count:
        pass
    return integer


def seed_words(key: float) -> list[int]:
    """Return a key of 52 bits as the two words that numpy takes for a seed."""
    return [int(key) & 0xFFFFFFFF, int(key) >> 32]


def torch_words(key_R: FloatArray, count: int) -> NDArray[np.int64]:
    """Return the 32-bit words that torch's generator on the CPU yields from each seed, (R, count).

    ``torch.randint`` takes one of them, modulo how many numbers there are (two from 2**28 on). Both it and numpy's have
    the state of MT19937 for a seed, of which torch takes 32 bits; numpy's is set far sooner.
    """
    seed, draw_words = _twister.seed, _twister.draw_words
    words_RN = np.empty((len(key_R), count), dtype=np.int64)
    for row, seed_32 in enumerate((key_R.astype(np.int64) & 0xFFFFFFFF).tolist()):
        seed(seed_32)
        words_RN[row] = draw_words(count)
    return words_RN


class _Twister(threading.local):
    """One MT19937 for each thread, since making one takes as long as seeding it 60 times."""

    def __init__(self) -> None:
        source = np.random.MT19937(0)
        self.seed, self.draw_words = np.random.RandomState(source).seed, source.random_raw


_twister = _Twister()


@contextmanager
def numpy_seeded(key: float) -> Iterator[None]:
    """Seed numpy's global generator with a key of 52 bits for a while, and put it back as it was.

    For references that draw their noise from it: there is no other way to hand them a seed.
    """
    before = np.random.get_state()
    np.random.seed(seed_words(key))
    try:
        yield
    finally:
        np.random.set_state(before)


@lru_cache(maxsize=256)
def _places(columns: tuple[str, ...]) -> dict[str, int]:
    return {name: place for place, name in enumerate(columns)}


@dataclass(frozen=True, eq=False)
class Draws:
    """A table of decisions: a row for each example, a column for each ``"path:name"``, such as ``"2:gain_db"``.

    The column ``"path:apply"`` is the coin toss for ``p``: 1.0 or 0.0. Draws can be saved (``to_dict``) and replayed.
    ``draws["2:gain_db"]`` is a column; ``draws[3]``, ``draws[2:5]`` and ``draws[[0, 2]]`` are draws of those examples.

    Shape:
        table: (B, L), float64.
    """

    columns: tuple[str, ...]
    table: FloatArray

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, item: str) -> FloatArray: ...

    @overload
    def __getitem__(self, item: "int | slice | Sequence[int] | NDArray[np.int64]") -> "Draws": ...

    def __getitem__(self, item: Any) -> "FloatArray | Draws":
        if not isinstance(item, str):
            return self.rows([operator.index(item)] if hasattr(item, "__index__") and np.ndim(item) == 0 else item)
        if item not in self._place:
            raise DataError(f"These draws have no column {item!r}.", "Draw with the chain that they are used for.")
        return self.table[:, self._place[item]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draws) and self.columns == other.columns and np.array_equal(self.table, other.table)

    @cached_property
    def _place(self) -> dict[str, int]:
        return _places(self.columns)

    def rows(self, rows: "slice | Sequence[int] | NDArray[np.int64]") -> "Draws":
        """Return the draws of some examples only."""
        return Draws(self.columns, self.table[rows if isinstance(rows, slice | np.ndarray) else list(rows)])

    def __iter__(self) -> "Iterator[Draws]":
        """Iterate over the examples one by one, each as draws of a batch of one."""
        return (self.rows(slice(row, row + 1)) for row in range(len(self)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists that JSON can hold."""
        return {"columns": list(self.columns), "table": self.table.tolist()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Draws":
        """Read what ``to_dict`` wrote; raise ``DataError`` if the table does not fit its columns."""
        columns, rows = tuple(content["columns"]), content["table"]
        sizes = {len(row) for row in rows}
        if sizes - {len(columns)}:
            raise DataError(f"These draws have {len(columns)} columns, but their table has rows of {sorted(sizes)}.")
        return cls(columns, np.asarray(rows, dtype=np.float64).reshape(len(rows), len(columns)))
