"""The geometry of the charts; templates draw them as SVG. Lengths are in pixels, x to the right, y down."""

from collections.abc import Sequence
from dataclasses import dataclass

from audioaug.records import Interval

WIDTH, HEIGHT = 480.0, 72.0


@dataclass(frozen=True)
class TimeChart:
    """A share of its full scale over time: lines (broken where nothing is known) and the band of its target."""

    name: str
    now: str
    target: str
    lines: tuple[str, ...]
    band: tuple[float, float] | None
    width: float = WIDTH
    height: float = HEIGHT


def time_chart(
    name: str, now: str, times: Sequence[float], shares: Sequence[float | None], target: Interval | None
) -> TimeChart:
    """Return the chart of shares at those times; what is outside 0 .. 1 is drawn at the edge."""
    band = None if target is None else (HEIGHT * (1 - target[1]), HEIGHT * (target[1] - target[0]))
    words = "" if target is None else f"{target[0]:.0%} to {target[1]:.0%}"
    runs: list[list[str]] = [[]]
    for place, share in zip(place_in_time(times), shares, strict=True):
        if share is None:
            runs.append([])
        else:
            runs[-1].append(f"{place:.1f},{HEIGHT * (1 - min(1.0, max(0.0, share))):.1f}")
    lines = tuple(" ".join(points if len(points) > 1 else points * 2) for points in runs if points)
    return TimeChart(name, now, words, lines, band)


def place_in_time(times: Sequence[float]) -> list[float]:
    """Return how far to the right each time is: from the first at the left edge to the last at the right."""
    if not times:
        return []
    begin, span = times[0], times[-1] - times[0]
    return [WIDTH * (time - begin) / span if span > 0 else 0.0 for time in times]
