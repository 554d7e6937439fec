"""What the two ops that run your own code share."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core.draws import numpy_seeded
from audioaug.errors import DataError

PLAIN = (str, int, float, bool, type(None), np.integer, np.floating, np.bool_)


@contextmanager
def seeded(key: float) -> Iterator[None]:
    """Seed the global generators of numpy, Python and torch for a while, and put them back as they were.

    There is no other way to hand code a seed that it does not take.
    """
    before = random.getstate(), torch.get_rng_state()
    with numpy_seeded(key):
        random.seed(int(key))
        torch.default_generator.manual_seed(int(key))
        try:
            yield
        finally:
            random.setstate(before[0])
            torch.set_rng_state(before[1])


def run(
    code: Callable[..., Any], name: str, samples: NDArray[np.float32], sample_rate: int, key: float
) -> NDArray[np.float32]:
    """Call code with a copy of a clip, which it may change; whatever it draws from global generators follows the key.

    Raises:
        DataError: it does not return a clip.
    """
    with seeded(key):
        result = np.asarray(code(samples.copy(), sample_rate))
    if result.ndim not in (1, 2) or not np.issubdtype(result.dtype, np.floating):
        raise DataError(
            f"{name} returns shape {result.shape} and type {result.dtype}, "
            "but must return floating point, (T,) or (C, T)."
        )
    result = result.astype(np.float32, copy=False)
    return result[0] if result.ndim == 2 and len(result) == 1 else result


def is_plain(value: Any) -> bool:
    """Return whether a file can hold the value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return all(is_plain(item) for item in value) if isinstance(value, list | tuple) else isinstance(value, PLAIN)


def described(value: Any) -> Any:
    """Return the value if it is plain, else the name of its class: the same in every process."""
    return value if is_plain(value) else type(value).__qualname__
