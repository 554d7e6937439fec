"""Locks of a process, which a copy of it has of its own."""

import os
import threading

_locks: dict[tuple[str, int], threading.Lock] = {}


def lock_of_process(name: str) -> threading.Lock:
    """Return the lock of that name that the threads of this process share.

    A copy of the process has its own: the thread that holds the original's is not there to release it.
    """
    return _locks.setdefault((name, os.getpid()), threading.Lock())
