"""How a loop is compiled: when it first runs, and once for all processes where that can be kept in a file.

It is compiled anew when the file that it is in changes: what it calls, and the numbers that it knows, are in there too.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

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


def _compiled(function: Callable[P, T], fastmath: set[str]) -> Callable[P, T]:
    how: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **how)(function)
    except RuntimeError:  # there is no folder to keep it in
        compiled = numba.njit(**how)(function)
    return cast(Callable[P, T], compiled)
