"""Draws: every random decision for a batch of examples, as one table, made before any audio is touched.

The numbers come from a counter-based generator: a pure function of (seed, epoch, example index, position in the chain,
lane), without any state. So batch size, worker count, world size and placement cannot change a draw.

Shapes: B examples (rows), L columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audioaug.core.params import FloatArray
from audioaug.errors import DataError

_MASK_32 = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(counter: Sequence[NDArray[np.uint64]], key: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
    """Encrypt counters: four 32-bit words in, four out (held in uint64 arrays that broadcast against each other).

    Reference: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (
            (second >> _SHIFT_32) ^ b ^ k0,
            second & _MASK_32,
            (first >> _SHIFT_32) ^ d ^ k1,
            first & _MASK_32,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK_32, (k1 + _KEY_STEPS[1]) & _MASK_32
    return [a, b, c, d]


def uniforms(seed: int, epoch: int, indices: ArrayLike, positions: ArrayLike, lanes: ArrayLike) -> FloatArray:
    """Return numbers in [0, 1) of shape (B, L): a row for each example index, a column for each (position, lane).

    The seed and the epoch are encrypted into the key, the rest is the counter, so no two places share a number.
    """
    index_B1 = np.asarray(indices, dtype=np.int64).astype(np.uint64)[:, None]
    position_L, lane_L = (np.asarray(part, dtype=np.uint64) for part in (positions, lanes))
    counter = np.broadcast_arrays(index_B1 & _MASK_32, index_B1 >> _SHIFT_32, position_L, lane_L)
    high, low, *_ = philox(counter, _key(int(seed), int(epoch)))
    mantissa = ((high >> np.uint64(5)) << np.uint64(26)) | (low >> np.uint64(6))
    return mantissa.astype(np.float64) * 2.0**-53


@lru_cache(maxsize=64)
def _key(seed: int, epoch: int) -> list[NDArray[np.uint64]]:
    return philox([*_words(seed), *_words(epoch)], [np.uint64(0), np.uint64(0)])[:2]  # type: ignore[list-item]


def _words(number: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Split a 64-bit number (negative ones wrap around) into its low and high 32 bits."""
    number = int(number) & (2**64 - 1)
    return np.asarray(number & 0xFFFFFFFF, dtype=np.uint64), np.asarray(number >> 32, dtype=np.uint64)


def legacy_generator(key: float) -> np.random.RandomState:
    """Return a generator that yields what numpy's global one does, once it is seeded with this key of 52 bits.

    Some references draw while they apply, from the global generator: this one tells what they will draw.
    """
    return np.random.RandomState(seed_words(key))


def seed_words(key: float) -> list[int]:
    """Return a key of 52 bits as the two words that numpy takes for a seed."""
    return [int(key) & 0xFFFFFFFF, int(key) >> 32]


@dataclass(frozen=True, eq=False)
class Draws:
    """A table of decisions: a row for each example, a column for each ``"path:name"``, such as ``"2:gain_db"``.

    The column ``"path:apply"`` is the coin toss for ``p``: 1.0 or 0.0. Draws can be saved (``to_dict``) and replayed.

    Shape:
        table: (B, L), float64.
    """

    columns: tuple[str, ...]
    table: FloatArray

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, column: str) -> FloatArray:
        if column not in self._place:
            raise DataError(f"These draws have no column {column!r}.", "Draw with the chain that they are used for.")
        return self.table[:, self._place[column]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draws) and self.columns == other.columns and np.array_equal(self.table, other.table)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    def rows(self, rows: "slice | Sequence[int] | NDArray[np.int64]") -> "Draws":
        """Return the draws of some examples only."""
        return Draws(self.columns, self.table[rows])

    def __iter__(self) -> "Iterator[Draws]":
        """Go through the examples one by one, each as draws of a batch of one."""
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
