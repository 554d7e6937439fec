"""A monitored run as one self-contained page: what held it up and when, and every meter over time."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from audioaug.records import BOTTLENECKS, MonitoredRun, Window
from audioaug.report.charts import TimeChart, time_chart
from audioaug.report.meters import Meter, known_meters, share_on_target
from audioaug.report.parts import Column, Facts, Row, Table
from audioaug.report.sentences import host_words
from audioaug.report.templating import page_from
from audioaug.units import format_ms, format_percent, format_rate, format_seconds, plural

POINTS = 600
"""Windows that are drawn at most: more would be closer together than pixels."""


def render(run: MonitoredRun, windows: Sequence[Window]) -> str:
    """The page, with all it needs inside."""
    windows = list(windows)
    return page_from(
        "monitor.html",
        headline=headline(windows),
        summary=Facts(summary(run, windows)),
        phases=phases(windows),
        charts=[chart(meter, windows) for meter in known_meters(run, windows)],
        moves=[(window.step, window.message) for window in windows if window.message],
        lasted=format_seconds(windows[-1].seconds) if windows else "",
        machine=Facts((("machine", host_words(run.host)),)),
    )


def headline(windows: list[Window]) -> str:
    """What held the run up most of its time, in one sentence."""
    if not windows:
        return "No training step was seen."
    spent = defaultdict[str, float](float)
    for window in windows:
        spent[window.bottleneck] += window.steps * window.step_ms
    most = max((name for name in spent if name and spent[name]), default="", key=lambda name: spent[name])
    words = BOTTLENECKS.get(most, most)
    held_up = f"most of it was held up by {words}" if most else "it was too short to tell what held it up"
    return f"{format_percent(_waiting(windows))} of the training was spent waiting for data; {held_up}."


def _waiting(windows: list[Window]) -> float:
    """Return the share of the time that was spent waiting for data."""
    return sum(it.steps * it.wait_ms for it in windows) / max(1e-9, sum(it.steps * it.step_ms for it in windows))


def summary(run: MonitoredRun, windows: list[Window]) -> tuple[tuple[str, str], ...]:
    """The run in a few numbers; each the median of its windows."""
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
    """When which bottleneck held: one row for each stretch of windows with the same one."""
    columns = (Column("from", number=True), Column("to", number=True), Column("steps", number=True))
    rows: list[Row] = []
    for name, group in groupby(windows, key=lambda window: window.bottleneck):
        stretch = list(group)
        steps = sum(window.steps for window in stretch)
        begin = rows[-1].values[1] if rows else "start"
        times = (begin, format_seconds(stretch[-1].seconds))
        rows.append(Row((*times, f"{steps:,}", format_percent(_waiting(stretch)), BOTTLENECKS.get(name, name))))
    return Table((*columns, Column("waiting", number=True), Column("bottleneck")), tuple(rows))


def chart(meter: Meter, windows: list[Window]) -> TimeChart:
    """One meter over the whole run."""
    plotted = windows[:: -(-len(windows) // POINTS)]
    texts = [text for window in windows if (text := meter.text(window)) is not None]
    times = [window.seconds for window in plotted]
    moves = [window.seconds for window in windows if window.message]
    lines = [meter.share(it) for it in plotted]
    return time_chart(
        meter.name, texts[-1] if texts else "", times, lines, moves, target_words(meter, windows), meter.target
    )


def target_words(meter: Meter, windows: list[Window]) -> str:
    """Where a meter should be, and how often it was: ``target 60 % to 80 %, met in 12 % of the steps``."""
    share = share_on_target(meter, windows)
    if meter.target is None or share is None:
        return ""
    low, high = (f"{bound:.0%}".replace("%", " %") for bound in meter.target)
    return f"target {low} to {high}, met in {format_percent(share)} of the steps"
