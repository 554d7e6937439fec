"""The charts of the documentation, as SVG: text and axes in the page's own colour, series differ in shape too.

A chart has a title and a description for those who do not see it; the numbers are in a table beside it. Lengths are in
pixels, x to the right, y down.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, LABELS, RIGHT, ROW, TOP = 720, 190, 20, 17, 34
LINES_HEIGHT = 240
TICKS = tuple(factor * 10.0**power for power in range(-3, 6) for factor in (1, 2, 5))


def dots(title: str, unit: str, rows: Mapping[str, Mapping[str, float]], line: float | None = 1.0) -> str:
    """Return a chart with a row for each name and a mark for each of its series, on a logarithmic axis.

    Args:
        title: what is shown.
        unit: of the axis.
        rows: values above 0, by name and series.
        line: a value that a line is drawn at.
    """
    series = list(dict.fromkeys(name for values in rows.values() for name in values))
    values = [value for row in rows.values() for value in row.values()] + ([line] if line else [])
    place, ticks = _log_axis(values, LABELS, WIDTH - RIGHT)
    bottom = TOP + ROW * len(rows)
    parts = [*_grid(ticks, place, TOP, bottom), _text(WIDTH - RIGHT, bottom + 30, unit, "end")]
    if line:
        parts.append(f'<line class="limit" x1="{place(line):.1f}" x2="{place(line):.1f}" y1="{TOP}" y2="{bottom}"/>')
    for number, (name, row) in enumerate(rows.items()):
        y = TOP + ROW * (number + 0.5)
        parts.append(_text(LABELS - 8, y + 4, name, "end"))
        parts += [_mark(series.index(which), place(value), y) for which, value in row.items()]
    said = "; ".join(f"{name} {', '.join(f'{v:.2g}' for v in row.values())}" for name, row in rows.items())
    return _svg(title, f"{unit}, {' and '.join(series)}: {said}.", bottom + 38, [*_legend(series), *parts])


def lines(title: str, across: str, up: str, series: Mapping[str, Mapping[float, float]]) -> str:
    """Return a line for each series over the same axis, both axes logarithmic.

    Args:
        title: what is shown.
        across: the name of the horizontal axis.
        up: the name of the vertical axis.
        series: what is up by what is across, by name.
    """
    xs = sorted({x for points in series.values() for x in points})
    x_place, _ = _log_axis(xs, 70, WIDTH - 90)
    y_place, y_ticks = _log_axis([y for points in series.values() for y in points.values()], LINES_HEIGHT, TOP)
    parts = [*_grid(xs, x_place, TOP, LINES_HEIGHT), _text(WIDTH - 90, LINES_HEIGHT + 32, across, "end")]
    parts += [_text(62, y_place(tick) + 4, f"{tick:g}", "end") for tick in y_ticks] + [_text(62, TOP - 12, up, "end")]
    for number, (name, points) in enumerate(series.items()):
        ends = [(x_place(x), y_place(y)) for x, y in sorted(points.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        parts += [f'<polyline class="series{number}" points="{path}"/>', *(_mark(number, x, y) for x, y in ends)]
        parts.append(_text(ends[-1][0] + 10, ends[-1][1] + 4, name, "start"))
    said = "; ".join(f"{n}: {', '.join(f'{x:g} {y:.3g}' for x, y in sorted(p.items()))}" for n, p in series.items())
    return _svg(title, f"{up} by {across}. {said}.", LINES_HEIGHT + 40, parts)


def _log_axis(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[float]]:
    """Return where a value is on an axis, and round numbers to write at it."""
    low, high = math.log(min(values) / 1.1), math.log(max(values) * 1.1)
    inside = [tick for tick in TICKS if low <= math.log(tick) <= high]
    few = [tick for tick in inside if len(inside) <= 8 or math.log10(tick) % 1 == 0]
    return lambda value: start + (end - start) * (math.log(value) - low) / (high - low), few


def _grid(ticks: Sequence[float], place: Callable[[float], float], top: float, bottom: float) -> list[str]:
    drawn = [f'<line class="grid" x1="{place(t):.1f}" x2="{place(t):.1f}" y1="{top}" y2="{bottom}"/>' for t in ticks]
    return drawn + [_text(place(tick), bottom + 15, f"{tick:g}", "middle") for tick in ticks]


def _legend(series: Sequence[str]) -> list[str]:
    places = [LABELS + 8 + 240 * number for number in range(len(series))]
    marks = [_mark(number, x, 14) for number, x in enumerate(places)]
    return marks + [_text(x + 10, 18, name, "start") for x, name in zip(places, series, strict=True)]


def _mark(series: int, x: float, y: float) -> str:
    kind = f'class="mark series{series}"'
    if series == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    if series == 1:
        return f'<rect {kind} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<polygon {kind} points="{x - 5:.1f},{y + 4:.1f} {x + 5:.1f},{y + 4:.1f} {x:.1f},{y - 5:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(title: str, description: str, height: float, parts: Sequence[str]) -> str:
    """Return the chart as one block of HTML, which Markdown leaves alone."""
    size = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    named = f'<svg role="img" aria-label="{escape(title)}" {size}>'
    said = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return f'<figure class="chart">{named}{said}{"".join(parts)}</svg></figure>\n'
