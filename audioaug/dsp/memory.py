"""Memory on a CPU that a batch gives back: kept for the next one."""

import functools

import torch

LARGEST = 2**25 - 2**14
"""Bytes: glibc takes blocks of up to 32 MiB from what it has kept."""


@functools.cache
def keep_freed() -> None:
    """Have up to 64 MiB of free memory kept in this process, where glibc would return it after each batch.

    What comes back from the system costs a page fault each 4 KiB, which may be half of a batch's time. glibc returns
    what lies free at the end of its heap if that is more than twice the largest block that was ever given back, of
    those that it takes as they are: so one is given back here. It is not written to. Other allocators don't mind.
    """
    torch.empty(LARGEST, dtype=torch.uint8)
