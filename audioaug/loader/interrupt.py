"""Interrupt: a Ctrl-C that Python drops ends training at the next batch.

Python cannot raise ``KeyboardInterrupt`` while it deletes an object: it tells ``sys.unraisablehook`` and goes on. With
every batch that comes from a worker, such objects are deleted.
"""

import sys
import threading
from typing import Any

_dropped = threading.Event()
_listening = threading.Event()


def listen() -> None:
    """Hear, from now on, of every ``KeyboardInterrupt`` that Python drops."""
    if _listening.is_set():
        return
    _listening.set()
    before = sys.unraisablehook

    def hear(unraisable: Any) -> None:
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _dropped.set()
        else:
            before(unraisable)

    sys.unraisablehook = hear


def raise_if_dropped() -> None:
    """Raise the ``KeyboardInterrupt`` that Python has dropped, if it did, in the main thread."""
    if _dropped.is_set() and threading.current_thread() is threading.main_thread():
        _dropped.clear()
        raise KeyboardInterrupt
