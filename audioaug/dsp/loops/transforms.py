"""FFTs for loops, by the plans of ``dsp.plans``: both return what is wrong, 0 if nothing is.

Their arguments are a plan and the address of the numbers, which they transform in place.
"""

import ctypes
from collections.abc import Callable
from typing import cast

import llvmlite.binding
from numba import types

from audioaug.dsp.plans import library


def _of_the_library(name: str) -> Callable[[int, int], int]:
    llvmlite.binding.add_symbol(name, ctypes.cast(getattr(library(), name), ctypes.c_void_p).value)
    return cast(Callable[[int, int], int], types.ExternalFunction(name, types.int64(types.int64, types.uintp)))


to_spectrum, from_spectrum = map(_of_the_library, ("DftiComputeForward", "DftiComputeBackward"))
