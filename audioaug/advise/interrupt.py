"""Interrupt: a Ctrl-C that is never lost, and that only the advisor itself hears."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While it is entered, Ctrl-C raises ``KeyboardInterrupt``, and ``check`` raises it again.

    Python drops what is raised while it forks a process or deletes an object, and prints a traceback instead; where
    workers come and go that is often the case. And workers that were only just forked would each print one, too.
    """

    def __init__(self) -> None:
        self._pid, self._pressed = os.getpid(), False
        self._handler: Any = None
        self._hook = sys.unraisablehook

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._on_signal)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._on_dropped
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self._pressed:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._pressed = True
            raise KeyboardInterrupt

    def _on_dropped(self, dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            self._hook(dropped)
