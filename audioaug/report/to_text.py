"""The report for a terminal."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from audioaug.errors import printable
from audioaug.records import Report
from audioaug.report import charts, parts
from audioaug.report.page import page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console, OverflowMethod, RenderableType
    from rich.text import Text

LINE_STYLES: dict[parts.LineKind, str] = {"verdict": "bold", "plain": "", "warning": "bold yellow", "note": "dim"}
ROW_STYLES: dict[parts.RowKind, str] = {"plain": "", "best": "bold green", "guess": "dim"}
BAR_STYLES: dict[charts.Share, str] = {"model": "green", "augment": "yellow", "wait": "red", "contention": "magenta"}


LEAST_WORDS = 22
"""Narrowest column of text before minor columns are left out."""


def render(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Render the report in lines of at most ``width`` characters, with escape codes if ``colour`` is set."""
    console = page_console(width, colour)
    with console.capture() as capture:
        for number, section in enumerate(page(report)):
            if number:
                console.print()
            if section.title:
                console.print(text(section.title, "bold underline"))
            for part, before in zip(section.parts, (None, *section.parts)):
                console.print(*([""] if isinstance(before, parts.Table) else []), renderable(part, console), sep="\n")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def page_console(width: int, colour: bool) -> Console:
    """Return a console that ignores the terminal and the environment."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        force_jupyter=False,
        legacy_windows=False,
        _environ={},
    )


def text(content: str, style: str = "", overflow: OverflowMethod = "fold") -> Text:
    """Return a rich text without markup, emoji and control characters."""
    from rich.text import Text

    return Text(printable(content), style=style, overflow=overflow)


def renderable(part: parts.Part, console: Console) -> RenderableType:
    """Return one part of the page as a rich renderable."""
    match part:
        case parts.Line():
            return line(part)
        case parts.Table():
            return fitted(part, console)
        case parts.Facts():
            return facts(part, console.width)
        case parts.Bars():
            return bar_lines(part, console.width)
        case parts.Code():
            return text_lines([text(it, "cyan") for it in part.text.splitlines()])


def line(part: parts.Line) -> Text:
    """Return a paragraph with its aside dimmed at the end."""
    paragraph = text(part.text, LINE_STYLES[part.kind])
    if part.aside:
        paragraph.append_text(text(f"{' ' if part.text else ''}[{part.aside}]", "dim"))
    return paragraph


def fitted(part: parts.Table, console: Console) -> RenderableType:
    """Return the first layout of the table that fits the width, else its rows below each other."""
    unbounded = console.options.update(width=10_000)
    for left_out, gap in layouts(part):
        attempt = table(part.without(left_out), gap)
        size = console.measure(attempt, options=unbounded)
        if (size.maximum if gap == 2 else size.minimum) <= console.width:
            return attempt
    return stacked(part.without(left_out))


def stacked(part: parts.Table) -> Text:
    """Return each row as a line with its name, and its other known values as indented, labelled lines."""
    names = 1 + next(at for at, column in enumerate(part.columns) if column.header and not column.number)
    labels = [column.header.replace("\n", " ") for column in part.columns[names:]]
    longest = max(map(len, labels), default=0)
    lines = []
    for row in part.rows:
        lines.append(text(": ".join(filter(None, row.values[:names])), ROW_STYLES[row.kind]))
        known = [it for it in zip(labels, row.values[names:], strict=True) if it[1] not in ("", parts.NOTHING)]
        lines += [text(f"  {label:{longest}}  {value}", ROW_STYLES[row.kind]) for label, value in known]
    return text_lines(lines)


def layouts(part: parts.Table) -> Iterator[tuple[set[int], int]]:
    """Yield the columns to leave out and the gap between the others, from wide to narrow; only narrow layouts wrap."""
    places = range(len(part.columns))
    spare = [place for place in places if part.columns[place].use == "spare"]
    minor = [place for place in reversed(places) if part.columns[place].use == "minor"]
    yield from ((set(spare[:count]), 2) for count in range(len(spare) + 1))
    yield from ((set(spare + minor[:count]), 1) for count in range(len(minor) + 1))


def table(part: parts.Table, gap: int) -> RenderableType:
    """Return a table; numbers are right-aligned and never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="")
    for place, column in enumerate(part.columns):
        header = text_lines([text(it) for it in column.header.split("\n")])
        longest = max((len(row.values[place]) for row in part.rows), default=0)
        least = longest if column.number else min(LEAST_WORDS, longest)
        grid.add_column(
            header, justify="right" if column.number else "left", no_wrap=column.number, min_width=least or None
        )
    for row in part.rows:
        values = zip(row.values, part.columns, strict=True)
        cells = (text(value) for value, _ in values)
        grid.add_row(*cells, style=ROW_STYLES[row.kind])
    return grid


def facts(part: parts.Facts, width: int) -> RenderableType:
    """Return two columns: a dim label of at most a third of the width, and its text."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(max_width=max(8, width // 3))
    grid.add_column()
    for label, content in part.items:
        grid.add_row(text(label, "dim"), text(content))
    return grid


def bar_lines(part: parts.Bars, width: int) -> Text:
    """Return the legend, then each bar with its label, and its numbers below."""
    indent = max(len(label) for label, _ in part.items) + 2
    longest = charts.longest_ms(part)
    lines = [text(f"{'':{indent}}{it}", "dim") for it in filled(charts.LEGEND, "   ", width - indent)]
    for label, allocation in part.items:
        bar = text(f"{label:{indent}}")
        for share, characters in charts.runs(allocation, longest, width - indent):
            bar.append(characters, BAR_STYLES[share])
        numbers = filled(charts.caption(allocation).replace(" + ", "\n+ ").split("\n"), " ", width - indent)
        lines += [bar, *(text(f"{'':{indent}}{it}") for it in numbers)]
    return text_lines(lines)


def filled(items: Iterable[str], separator: str, width: int) -> list[str]:
    """Return the items, separated, in lines of at most ``width`` characters that break only between items."""
    lines: list[str] = []
    for item in items:
        longer = f"{lines[-1]}{separator}{item}" if lines else item
        if lines and len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(item)
    return lines


def text_lines(lines: list[Text]) -> Text:
    """Join lines with line feeds."""
    from rich.text import Text

    return Text("\n", overflow="fold").join(lines)
