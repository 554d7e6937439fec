"""Memory that a batch has freed: kept for the next one, where the C library would hand it back to the system.

What comes back from the system costs a page fault for each 4 KiB: a third of the time, measured on ten ops.
"""

import ctypes
import functools
import platform

import torch

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of two knobs in glibc's malloc.h."""

MOST = 2**31 - 1

LARGEST = 2**25 - 2**14
"""Bytes: glibc may take blocks of up to 32 MiB from what is kept."""


def keep_freed_memory() -> bool:
    """Let this process keep all memory that it frees; return whether the C library can do that (glibc can).

    For workers: the most that one needs at once does not grow.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(knob, MOST) == 1 for knob in (TRIM_THRESHOLD, MMAP_THRESHOLD))


@functools.cache
def keep_some_freed_memory() -> None:
    """Let this process keep up to 64 MiB of it. For processes that are not ours; what these have set stays.

    glibc hands back what is free at the end of its heap if that is more than twice the largest block that it has had
    from the system alone and got back, of at most 32 MiB. So such a block is given back here, of which nothing is used.
    Other allocators do not mind.
    """
    torch.empty(LARGEST, dtype=torch.uint8)
