"""Keys: what identifies an example, so that its draws can be repeated anywhere.

A key is an integer, such as a dataset index, a string or bytes. Draws follow from its number of 64 bits, which is the
same on every platform and in every version:

* that of an integer of 64 bits is the integer itself; one from 2**63 on wraps around to a negative number;
* that of bytes is their BLAKE2b digest of 8 bytes, read as a signed little-endian integer;
* that of a string is the number of its UTF-8 bytes, that of a longer integer the number of its decimal digits.

Two of a million keys share a number with a probability of 3e-8.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.errors import DataError

Key: TypeAlias = str | bytes | int


def key_of(value: Any, what: str = "A key") -> Key:
    """Return a key as Python's own type, from an integer of NumPy or torch as well; ``what`` names it in errors.

    Raises:
        DataError: it is neither an integer, nor a string, nor bytes.
    """
    if isinstance(value, np.generic) or (hasattr(value, "item") and getattr(value, "shape", None) == ()):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        shown = repr(value)
        raise DataError(
            f"{what} must be a string, bytes or an integer, but it is {shown[:60]}, a {type(value).__name__}.",
            "Use something that stays the same wherever the example is read, such as its path or id.",
        )
    return value


def key_number(key: Key) -> int:
    """Return the signed 64-bit number that the draws of a key follow from."""
    if isinstance(key, int) and -(2**63) <= key < 2**64:
        return key if key < 2**63 else key - 2**64
    content = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def key_numbers(keys: Any) -> NDArray[np.int64]:
    """Return the numbers of keys, (B,): of an array or tensor of integers, or of any iterable of keys.

    Raises:
        DataError: something in it is not a key, or an array has another shape or type.
    """
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise DataError(f"Expected a key for each example, got {keys!r:.60}.", "Give a list of keys.")
    if not hasattr(keys, "dtype"):
        keys = list(keys)
        if not all(type(key) is int for key in keys):
            return _one_by_one(keys)
    array = np.asarray(keys)
    if array.ndim != 1:
        raise DataError(f"Expected keys of shape (B,), got {array.shape}.")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return _one_by_one(keys if isinstance(keys, list) else array.tolist())


def _one_by_one(keys: list[Any]) -> NDArray[np.int64]:
    return np.asarray([key_number(key_of(key)) for key in keys], dtype=np.int64)
