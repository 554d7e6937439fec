"""How a loop is compiled: when it first runs, and once for all processes where that can be kept in a file.

It is compiled anew when the file that it is in changes: what it calls, and the numbers that it knows, are in there too.
"""

import functools
import multiprocessing
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from audioaug.errors import AudioaugWarning, first_line
from audioaug.internals import numba_cache, set_numba_cache

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Complex: TypeAlias = NDArray[np.complex64]

P = ParamSpec("P")
T = TypeVar("T")


def loop(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function to run beside Python, rounding products only once they are added."""
    return _compiled(function, {"contract"})


def loop_of_sums(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function to add up numbers in any order, so that many are added at once."""
    return _compiled(function, {"contract", "reassoc"})


def loop_as_written(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function to round each product and sum as torch does, where a digit more would decide otherwise."""
    return _compiled(function, set())


class Cache:
    """numba's cache of one function, where a damaged entry or a full disk is no error: the function is compiled.

    Raises:
        RuntimeError: there is no folder to keep it in.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cache = numba_cache(function)
        self.cache_path = self._cache.cache_path

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return what was compiled before, or ``None``; forget all of it where that cannot be read."""
        try:
            return self._cache.load_overload(signature, target_context)
        except Exception:  # unpickling a damaged file can raise anything
            with suppress(OSError):
                self._cache.flush()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled, where that can be."""
        try:
            self._cache.save_overload(signature, compiled)
        except Exception as error:
            self._cache.disable()
            _warn_once(f"Compiled loops cannot be kept in {self.cache_path} ({first_line(error)})")


@functools.cache
def _warn_once(reason: str) -> None:
    if multiprocessing.parent_process() is None:
        warnings.warn(
            f"{reason}: each process compiles them again. Free space there, or name a folder in NUMBA_CACHE_DIR.",
            AudioaugWarning,
            stacklevel=3,
        )


def _compiled(function: Callable[P, T], fastmath: set[str]) -> Callable[P, T]:
    compiled: Any = numba.njit(nogil=True, fastmath=fastmath, error_model="numpy")(function)
    with suppress(RuntimeError):
        set_numba_cache(compiled, Cache(function))  # as enable_caching() does with numba's own
    return cast(Callable[P, T], compiled)
