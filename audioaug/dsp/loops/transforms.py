"""FFTs for loops, by the plans of ``dsp.plans``: both return what is wrong, 0 if nothing is.

Their arguments are a plan and the address of the numbers, which they transform in place.

numba keeps what it compiled until the file of the calling loop changes: after a change here, change those files too.
"""

import ctypes
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from audioaug.dsp.plans import library


def _of_the_library(name: str) -> Any:
    """Return a function of MKL for loops to call.

    In C it takes two pointers and ``...``, and has to be called as such: a call that leaves ``...`` out does not set
    the register that counts arguments in vector registers, and crashes with the MKL of torch 2.4.
    """
    llvmlite.binding.add_symbol(name, ctypes.cast(getattr(library(), name), ctypes.c_void_p).value)
    word = ir.IntType(64)
    kind = ir.FunctionType(word, [word, word], var_arg=True)

    def call(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, arguments)

    @intrinsic
    def transform(context: Any, plan: Any, address: Any) -> Any:
        return types.int64(types.int64, types.uintp), call

    return transform


to_spectrum, from_spectrum = map(_of_the_library, ("DftiComputeForward", "DftiComputeBackward"))
