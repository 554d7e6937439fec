"""What the three containers share."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from audioaug.core import Op
from audioaug.core.params import FloatArray
from audioaug.errors import ChainError


def freeze(container: Any) -> None:
    """Make the list of ops a tuple; raise ``ChainError`` if it is empty or holds something else."""
    if not isinstance(container.transforms, Iterable):
        raise ChainError(f"{container.name}: transforms is {container.transforms!r}, but it must be a list of ops.")
    object.__setattr__(container, "transforms", tuple(container.transforms))
    if not container.transforms:
        raise ChainError(f"{container.name}: transforms is empty.", "Give it at least one transform.")
    for item in container.transforms:
        if not isinstance(item, Op):
            raise ChainError(f"{container.name}: {item!r} is not an audioaug op.")


def keys(container: Any, draw: Mapping[str, FloatArray]) -> FloatArray:
    """Return the sort keys of the children, (B, children)."""
    return np.stack([draw[f"key_{k}"] for k in range(len(container.transforms))], axis=1)
