"""The bottleneck of a monitored training run: an id for each window, and a sentence when it changes."""

from collections import Counter

from audioaug.records import BOTTLENECKS, Window
from audioaug.units import format_ms, format_percent

WAITING = 0.05
"""Largest acceptable stall: the target for the GPU is 95 % of the time."""
READY = 1.0
FULL_PERCENT = 90.0
BUSY_PERCENT = 75.0
SETTLED = 3
"""Consecutive windows that establish a new bottleneck."""

ADVICE = {
    "model_bound": "Data arrives in time; only a faster step helps (mixed precision, a larger batch).",
    "main_thread_bound": "Load in workers (num_workers), and move the cut later, so that more of the chain runs in "
    "them.",
    "cores_full": "More workers do not help; run more of the chain on the device, or use more cores.",
    "too_few_workers": "All of them are busy while cores are free: increase num_workers.",
    "fetch_bound": "The workers wait for data, too: check the disk or network, or increase prefetch_factor.",
}


def bottleneck(window: Window) -> str:
    """Return the bottleneck of a window as a stable id, a key of ``records.BOTTLENECKS``."""
    workers = window.worker_percent
    if window.stall <= WAITING:
        return "model_bound"
    if not workers or (window.ready is not None and window.ready >= READY):
        return "main_thread_bound"
    if window.cpu_percent is not None and window.cpu_percent >= FULL_PERCENT:
        return "cores_full"
    return "too_few_workers" if sum(workers) / len(workers) >= BUSY_PERCENT else "fetch_bound"


class Bottlenecks:
    """Track the bottleneck over windows; report each change once."""

    def __init__(self) -> None:
        self._reported: Counter[tuple[str, str]] = Counter()
        self.restart()

    def restart(self) -> None:
        """Forget the bottleneck: the next one is the first of another configuration, and no change."""
        self.settled, self.moved = "", False
        self._pending, self._seen = "", 0

    def follow(self, window: Window) -> str:
        """Add the next window; return a sentence if the bottleneck has changed in a way not reported before.

        ``settled`` is then the bottleneck, and ``moved`` whether it has changed with this window.
        """
        found, self.moved = bottleneck(window), False
        self._seen = self._seen + 1 if found == self._pending else 1
        self._pending = found
        if found == self.settled or self._seen < SETTLED:
            return ""
        change, self.settled = (self.settled, found), found
        self.moved = bool(change[0])
        self._reported[change] += 1
        return _sentence(*change, window) if self.moved and self._reported[change] == 1 else ""


def _sentence(before: str, now: str, window: Window) -> str:
    waiting = f"{format_percent(window.stall)} of a {format_ms(window.step_ms)} step is spent waiting for data"
    return f"The bottleneck moved from {BOTTLENECKS[before]} to {BOTTLENECKS[now]}: {waiting}. {ADVICE[now]}"
