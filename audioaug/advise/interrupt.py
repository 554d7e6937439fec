"""Interrupt: a Ctrl-C that is never lost, and that only the advisor itself hears."""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While it is entered, Ctrl-C raises ``KeyboardInterrupt``, and ``check`` raises it again.

    Python drops what is raised while it forks a process or deletes an object, which happens often where workers come
    and go. And workers that were only just forked would each print a traceback.
    """

    def __init__(self) -> None:
        self._pid, self._pressed = os.getpid(), False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self._pressed:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._pressed = True
            raise KeyboardInterrupt
