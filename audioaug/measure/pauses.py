"""How long Python's garbage collector has this process stand still."""

import gc
from typing import Any

from audioaug.measure.clock import Clock
from audioaug.units import Seconds


class GcPauses:
    """While it is entered, ``seconds`` adds up what garbage collections of this process take."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: Seconds = 0.0
        self.seconds: Seconds = 0.0

    def __enter__(self) -> "GcPauses":
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        now = self._clock.now()
        if phase == "start":
            self._since = now
        else:
            self.seconds += now - self._since
