"""Plans of FFTs that last and that loops can use: torch makes one anew for every call.

They are those of MKL, which torch's own library holds on Linux with an x86 processor. Reference: oneMKL's developer
reference for C, "FFT functions" (DFTI).
"""

import ctypes
import functools
from pathlib import Path

import torch

SINGLE_PRECISION_REAL = 33
COMPLEX_STORAGE, THREAD_LIMIT = (10, 39), (27, 1)
"""Settings and their values: spectra as complex numbers; a thread that calls does all by itself."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library whose plans these are; ``None`` where it is not to be had."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    found = ctypes.CDLL(str(path)) if path.exists() else None
    return found if hasattr(found, "DftiCreateDescriptor_s_1d") else None


@functools.cache
def plan(n: int) -> int:
    """Return the address of a plan, which lasts as long as the process: sizes are to be few.

    In place, it makes n // 2 + 1 complex64 of n float32 at their start, and of these n times what was there. Any number
    of threads may use it at once.

    Raises:
        RuntimeError: the library refuses.
    """
    dfti, address = library(), ctypes.c_void_p()
    assert dfti is not None
    wrong = dfti.DftiCreateDescriptor_s_1d(ctypes.byref(address), SINGLE_PRECISION_REAL, ctypes.c_long(n))
    for setting, value in (COMPLEX_STORAGE, THREAD_LIMIT):
        wrong = wrong or dfti.DftiSetValue(address, setting, ctypes.c_long(value))
    wrong = wrong or dfti.DftiCommitDescriptor(address)
    if wrong:
        raise RuntimeError(f"MKL refuses to plan an FFT of {n} numbers: status {wrong}.")
    assert address.value is not None
    return address.value
