"""One window of a monitored run for a terminal: a line a meter, with its target drawn into the bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audioaug.records import BOTTLENECKS, MonitoredRun, Window
from audioaug.report.meters import Meter, known_meters, pace

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WIDTH = 30
USED, FREE, TARGET, BOTH = "#", ".", "=", "+"
WORKERS_SHOWN = 8


def renderable(run: MonitoredRun, window: Window) -> RenderableType:
    """The pace, the meters and the bottleneck as something that rich prints."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    shown = Window(**{**vars(window), "worker_percent": window.worker_percent[:WORKERS_SHOWN]})
    for meter in known_meters(run, [shown]):
        grid.add_row(Text(meter.name), bar(meter, window), Text(meter.text(window) or ""))
    verdict = f"bottleneck: {BOTTLENECKS.get(window.bottleneck, window.bottleneck)}"
    key = f"{USED} used   {TARGET} where it should end   {BOTH} both"
    return Group(Text(pace(window), "bold"), grid, Text(verdict, "bold"), Text(key, "dim"))


def bar(meter: Meter, window: Window) -> Text:
    """``WIDTH`` characters for the full scale; green where the target is reached, else yellow."""
    from rich.text import Text

    share = min(1.0, meter.share(window) or 0.0)
    low, high = meter.target or (2.0, 2.0)
    place_of = [(place + 0.5) / WIDTH for place in range(WIDTH)]
    signs = {(True, False): USED, (False, True): TARGET, (True, True): BOTH, (False, False): FREE}
    text = "".join(signs[at <= share, low <= at <= high] for at in place_of)
    style = "" if meter.target is None else "green" if low <= share <= high else "yellow"
    return Text(text, style)
