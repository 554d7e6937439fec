"""The meters of a monitored run: each a number of a window with its words, its target and its full scale."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from audioaug.records import USAGE_TARGETS, Interval, MonitoredRun, Window
from audioaug.units import format_bytes, format_ms, format_percent, format_rate


@dataclass(frozen=True)
class Meter:
    """One number over time: ``share`` of its full scale, from 0 to 1, and in words. Both are ``None`` where unknown."""

    name: str
    share: Callable[[Window], float | None]
    text: Callable[[Window], str | None]
    target: Interval | None = None


def meters(run: MonitoredRun, workers: int, fastest: float | None) -> Iterator[Meter]:
    """Yield the meters of this run, the most telling first; those of what it has not got show nothing.

    Without a ceiling, the full scale of throughput is the fastest window's.
    """
    yield Meter("waiting", lambda it: it.stall, lambda it: f"{format_percent(it.stall)} of a step", (0.0, 0.05))
    if run.ceiling_ms is not None:
        yield Meter("throughput", lambda it: it.ceiling_share, _throughput, (0.95, 1.0))
    else:
        yield Meter("throughput", lambda it: _part(it.clips_per_second, fastest), _throughput)
    yield _use("GPU", "gpu_percent")
    yield Meter("GPU memory", lambda it: _part(it.vram_bytes, run.host.vram_bytes), lambda it: _bytes(it.vram_bytes))
    yield _use("CPU", "cpu_percent")
    for place in range(workers):
        yield _worker(place)
    yield _use("RAM", "ram_percent", lambda it: _bytes(it.ram_bytes, " by this training"))
    yield Meter("shared memory", lambda it: _part(it.shm_bytes, run.host.shm_bytes), lambda it: _bytes(it.shm_bytes))
    yield Meter("batches ready", lambda it: _part(it.ready, run.capacity), lambda it: _ready(it, run.capacity))


def known_meters(run: MonitoredRun, windows: list[Window]) -> list[Meter]:
    """The meters that show something in at least one window."""
    workers = max((len(window.worker_percent) for window in windows), default=0)
    rates = [window.clips_per_second for window in windows if window.clips_per_second is not None]
    fastest = max(rates) if len(rates) > 1 else None
    return [it for it in meters(run, workers, fastest) if any(it.share(window) is not None for window in windows)]


def pace(window: Window) -> str:
    """How fast it goes: ``step 1,234: 38.2 ms, 1,650 clips/s``."""
    clips = window.clips_per_second
    rate = "" if clips is None else f", {format_rate(clips)}"
    return f"step {window.step:,}: {format_ms(window.step_ms)}{rate}"


def share_on_target(meter: Meter, windows: list[Window]) -> float | None:
    """The share of the steps in which a meter was where it should be; ``None`` without a target or a number."""
    if meter.target is None:
        return None
    low, high = meter.target
    known = [(share, window.steps) for window in windows if (share := meter.share(window)) is not None]
    steps = sum(count for _, count in known)
    return sum(count for share, count in known if low <= min(1.0, share) <= high) / steps if steps else None


def _throughput(window: Window) -> str | None:
    rate = None if window.clips_per_second is None else format_rate(window.clips_per_second)
    return ", ".join(filter(None, (rate, _percent(window.ceiling_share, 1, " of the ceiling")))) or None


def _use(name: str, field: str, more: Callable[[Window], str | None] = lambda _: None) -> Meter:
    low, high = USAGE_TARGETS[field]

    def text(window: Window) -> str | None:
        return ", ".join(filter(None, (_percent(getattr(window, field), 100), more(window)))) or None

    return Meter(name, lambda it: _part(getattr(it, field), 100), text, (low / 100, high / 100))


def _worker(place: int) -> Meter:
    def share(window: Window) -> float | None:
        return window.worker_percent[place] / 100 if place < len(window.worker_percent) else None

    return Meter(f"worker {place + 1}", share, lambda it: _percent(share(it), 1, " of a core"))


def _part(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


def _percent(value: float | None, whole: float, more: str = "") -> str | None:
    return None if value is None else f"{format_percent(value / whole)}{more}"


def _bytes(value: int | None, more: str = "") -> str | None:
    return None if value is None else f"{format_bytes(value)}{more}"


def _ready(window: Window, capacity: int | None) -> str | None:
    return None if window.ready is None else f"{window.ready:.1f} of at most {capacity}"
