"""Memory: a worker keeps what it has freed for the next batch, where the C library would hand it back to the system."""

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of two knobs in glibc's malloc.h."""

MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep freed memory; return whether the C library can do that (glibc can).

    By default glibc returns large blocks at once. Work on batches then waits for the system to clear the same pages
    again for every step of a chain: a third of the time, measured on ten ops. The most that a worker needs at once
    does not grow.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(knob, MOST) == 1 for knob in (TRIM_THRESHOLD, MMAP_THRESHOLD))
