"""Draws: every random decision for a batch of examples, as one table, made before any audio is touched.

The numbers come from a counter-based generator: a pure function of (seed, epoch, key of the example, position in the
chain, lane), without any state. So batch size, worker count, world size and placement cannot change a draw.

Shapes: B examples (rows), L columns.
"""

import operator
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audioaug.core.distributions import FloatArray
from audioaug.dsp import philox
from audioaug.errors import DataError


def uniforms(seed: int, epoch: int, keys: ArrayLike, positions: ArrayLike, lanes: ArrayLike) -> FloatArray:
    """Return numbers in [0, 1) of shape (B, L): a row for each key's number, a column for each (position, lane).

    The seed and the epoch are the key of the cipher, the rest is its counter, so no two places share a number.
    """
    number_B = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)
    position_L, lane_L = np.asarray(positions, dtype=np.uint64), np.asarray(lanes, dtype=np.uint64)
    return philox.uniforms(number_B, position_L, lane_L, _key(int(seed), int(epoch))).T  # columns in one piece each


@lru_cache(maxsize=64)
def _key(seed: int, epoch: int) -> philox.Key:
    low, high, *_ = philox.philox([[word] for number in (seed, epoch) for word in _words(number)], (0, 0))
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
