"""A monitored run: its meters, one window of it for a terminal, all of it as a self-contained page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

from audioaug.records import (
    BOTTLENECKS,
    USAGE_TARGETS,
    Interval,
    MonitoredRun,
    Window,
    main_bottleneck,
    waiting_share,
)
from audioaug.report.charts import TimeChart, time_chart
from audioaug.report.page import host_words
from audioaug.report.parts import Column, Facts, Row, Table
from audioaug.report.templating import page_from
from audioaug.units import format_bytes, format_ms, format_percent, format_rate, format_seconds, plural

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.text import Text


@dataclass(frozen=True)
class Meter:
    """One number over time: ``share`` of its full scale, from 0 to 1, and ``text``. Both are ``None`` if unknown.

    ``full``: the full scale, with its unit.
    """

    name: str
    share: Callable[[Window], float | None]
    text: Callable[[Window], str | None]
    target: Interval | None = None
    full: str = "100 %"


def meters(run: MonitoredRun, workers: int, fastest: float | None) -> Iterator[Meter]:
    """Yield the meters of this run, the most important first; unavailable ones show nothing.

    Without a ceiling, the full scale of throughput is the fastest window.
    """
    yield Meter("waiting", lambda it: it.stall, lambda it: f"{format_percent(it.stall)} of a step", (0.0, 0.05))
    if run.ceiling_ms is not None:
        yield Meter("throughput", lambda it: it.ceiling_share, _throughput, (0.95, 1.0), "the ceiling")
    else:
        full = "" if fastest is None else format_rate(fastest)
        yield Meter("throughput", lambda it: _part(it.clips_per_second, fastest), _throughput, full=full)
    yield _use("GPU", "gpu_percent")
    yield _memory("GPU memory", "vram_bytes", run)
    yield _use("CPU", "cpu_percent")
    for place in range(workers):
        yield _worker(place)
    yield _use("RAM", "ram_percent", lambda it: _bytes(it.ram_bytes, " by this training"))
    yield _memory("shared memory", "shm_bytes", run)
    yield Meter(
        "batches ready",
        lambda it: _part(it.ready, run.capacity),
        lambda it: _ready(it, run.capacity),
        full=f"{run.capacity} ready",
    )


def known_meters(run: MonitoredRun, windows: list[Window]) -> list[Meter]:
    """Return the meters that are known in at least one window."""
    workers = max((len(window.worker_percent) for window in windows), default=0)
    rates = [window.clips_per_second for window in windows if window.clips_per_second is not None]
    fastest = max(rates) if len(rates) > 1 else None
    return [it for it in meters(run, workers, fastest) if any(it.share(window) is not None for window in windows)]


def pace(window: Window) -> str:
    """Return step and speed: ``step 1,234: 38.2 ms, 1,650 clips/s``."""
    clips = window.clips_per_second
    rate = "" if clips is None else f", {format_rate(clips)}"
    return f"step {window.step:,}: {format_ms(window.step_ms)}{rate}"


def share_on_target(meter: Meter, windows: list[Window]) -> float | None:
    """Return the share of steps in which a meter was within its target; ``None`` if unknown."""
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


def _memory(name: str, field: str, run: MonitoredRun) -> Meter:
    size = getattr(run.host, field)
    share, text = (lambda it: _part(getattr(it, field), size)), (lambda it: _bytes(getattr(it, field)))
    return Meter(name, share, text, full=_bytes(size) or "")


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


BAR_WIDTH, LEAST_BAR_WIDTH = 30, 10
USED, FREE, TARGET, BOTH = "#", ".", "=", "+"
WORKERS_SHOWN = 8


def renderable(run: MonitoredRun, window: Window) -> RenderableType:
    """Return pace, meters and bottleneck as a rich renderable."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    shown = Window(**{**vars(window), "worker_percent": window.worker_percent[:WORKERS_SHOWN]})
    for meter in known_meters(run, [shown]):
        grid.add_row(Text(meter.name), MeterBar(meter, window), Text(meter.text(window) or ""))
    verdict = f"bottleneck: {BOTTLENECKS.get(window.bottleneck, window.bottleneck)}"
    key = f"{USED} used   {TARGET} target   {BOTH} both"
    return Group(Text(pace(window), "bold"), grid, Text(verdict, "bold"), Text(key, "dim"))


@dataclass(frozen=True)
class MeterBar:
    """The bar of a meter as a rich renderable. Where there is little space it is drawn to a smaller scale."""

    meter: Meter
    window: Window

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the bar in the width that there is."""
        yield bar(self.meter, self.window, min(BAR_WIDTH, options.max_width))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the smallest and the largest width."""
        from rich.measure import Measurement

        return Measurement(LEAST_BAR_WIDTH, BAR_WIDTH)


def bar(meter: Meter, window: Window, width: int = BAR_WIDTH) -> Text:
    """Return the bar of a meter, ``width`` characters for the full scale; green within the target, else yellow."""
    from rich.text import Text

    share = min(1.0, meter.share(window) or 0.0)
    low, high = meter.target or (2.0, 2.0)
    place_of = [(place + 0.5) / width for place in range(width)]
    signs = {(True, False): USED, (False, True): TARGET, (True, True): BOTH, (False, False): FREE}
    text = "".join(signs[at <= share, low <= at <= high] for at in place_of)
    style = "" if meter.target is None else "green" if low <= share <= high else "yellow"
    return Text(text, style)


POINTS = 600
"""Most windows in a chart: more would be closer than pixels."""


def render(run: MonitoredRun, windows: Sequence[Window]) -> str:
    """Render the page."""
    windows = list(windows)
    return page_from(
        "monitor.html",
        headline=headline(windows),
        summary=Facts(summary(run, windows)),
        phases=phases(windows),
        charts=[chart(meter, windows) for meter in known_meters(run, windows)],
        moves=[(window.step, window.message) for window in windows if window.message],
        machine=Facts((("machine", host_words(run.host)),)),
    )


def headline(windows: list[Window]) -> str:
    """Return the main bottleneck of the run in one sentence."""
    if not windows:
        return "No training step was recorded."
    most = main_bottleneck(windows)
    words = BOTTLENECKS.get(most, most)
    held_up = f"the main bottleneck was {words}" if most else "it was too short to determine the bottleneck"
    return f"{format_percent(waiting_share(windows))} of the training was spent waiting for data; {held_up}."


def summary(run: MonitoredRun, windows: list[Window]) -> tuple[tuple[str, str], ...]:
    """Return the medians of the windows in a few numbers."""
    if not windows:
        return ()
    rates = [window.clips_per_second for window in windows if window.clips_per_second is not None]
    step_ms = median(window.step_ms for window in windows)
    ceiling = "" if run.ceiling_ms is None else f"{format_ms(run.ceiling_ms)} a step"
    items = {
        "seen": f"{plural(windows[-1].step, 'step')} in {format_seconds(windows[-1].seconds)}",
        "step": f"{format_ms(step_ms)}, of which waiting {format_ms(median(window.wait_ms for window in windows))}",
        "throughput": format_rate(median(rates)) if rates else "",
        "ceiling": ceiling,
    }
    return tuple((name, text) for name, text in items.items() if text)


def phases(windows: list[Window]) -> Table:
    """Return the phases of the run: a row for each span of windows with the same bottleneck."""
    columns = (Column("from", number=True), Column("to", number=True), Column("steps", number=True))
    rows: list[Row] = []
    for name, group in groupby(windows, key=lambda window: window.bottleneck):
        phase = list(group)
        steps = sum(window.steps for window in phase)
        begin = rows[-1].values[1] if rows else "start"
        times = (begin, format_seconds(phase[-1].seconds))
        rows.append(Row((*times, f"{steps:,}", format_percent(waiting_share(phase)), BOTTLENECKS.get(name, name))))
    return Table((*columns, Column("waiting", number=True), Column("bottleneck")), tuple(rows))


def chart(meter: Meter, windows: list[Window]) -> TimeChart:
    """Return the chart of one meter."""
    plotted = windows[:: -(-len(windows) // POINTS)]
    texts = [text for window in windows if (text := meter.text(window)) is not None]
    times = [window.seconds for window in plotted]
    moves = [window.seconds for window in windows if window.message]
    lines = [meter.share(it) for it in plotted]
    words, now = target_words(meter, windows), texts[-1] if texts else ""
    return time_chart(meter.name, now, times, lines, moves, words, meter.target, meter.full)


def target_words(meter: Meter, windows: list[Window]) -> str:
    """Return a meter's target and how often it was met: ``target 60 % to 80 %, met in 12 % of the steps``."""
    share = share_on_target(meter, windows)
    if meter.target is None or share is None:
        return ""
    low, high = (f"{bound:.0%}".replace("%", " %") for bound in meter.target)
    return f"target {low} to {high}, met in {format_percent(share)} of the steps"
