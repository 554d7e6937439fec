"""Parts of a page. They hold plain strings; each renderer escapes them."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from audioaug.records import Allocation, Interval
from audioaug.units import significant

NOTHING = "-"

LineKind = Literal["verdict", "plain", "warning", "note"]
RowKind = Literal["plain", "best", "guess"]


@dataclass(frozen=True)
class Line:
    """One paragraph, with an optional aside at the end."""

    text: str
    kind: LineKind = "plain"
    aside: str = ""


@dataclass(frozen=True)
class Column:
    """A column. A narrow page drops ``spare`` columns, which repeat others, then the ``minor`` ones."""

    header: str
    number: bool = False
    use: Literal["main", "minor", "spare"] = "main"


@dataclass(frozen=True)
class Row:
    """One string for each column."""

    values: tuple[str, ...]
    kind: RowKind = "plain"


@dataclass(frozen=True)
class Table:
    """Rows under columns."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def without(self, left_out: set[int]) -> "Table":
        """Return the table without the columns at these positions."""
        keep = [place for place in range(len(self.columns)) if place not in left_out]
        rows = tuple(Row(tuple(row.values[place] for place in keep), row.kind) for row in self.rows)
        return Table(tuple(self.columns[place] for place in keep), rows)

    def without_empty(self) -> "Table":
        """Return the table without columns that are empty in every row."""
        places = range(len(self.columns))
        return self.without({p for p in places if all(row.values[p] in ("", NOTHING) for row in self.rows)})


@dataclass(frozen=True)
class Facts:
    """Labels with texts."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Bars:
    """Labelled allocations of one step's time, drawn to one scale."""

    items: tuple[tuple[str, Allocation], ...]


@dataclass(frozen=True)
class Code:
    """Code to paste."""

    text: str


Part: TypeAlias = Line | Table | Facts | Bars | Code


@dataclass(frozen=True)
class Section:
    """Parts that belong together under one title; the first section of a page has none."""

    title: str
    parts: tuple[Part, ...]


def spread(value: float | None, interval: Interval | None) -> str:
    """Format a non-negative value with its interval: ``40.1 (39.8 .. 40.3)``.

    The decimals show the wider half of the interval with one significant digit (two if it starts with a 1). The
    interval is rounded outwards.
    """
    if value is None:
        return NOTHING
    low, high = interval or (value, value)
    reach = max(high - value, value - low)
    if reach <= 1e-6 * value or not math.isfinite(reach):  # no interval, but for rounding
        return significant(value, 3)
    exponent = math.floor(math.log10(reach))
    decimals = max(0, -exponent + (reach < 2 * 10.0**exponent))
    size = 10**decimals
    low, high = math.floor(max(0.0, low) * size + 1e-6) / size, math.ceil(high * size - 1e-6) / size
    return f"{value:,.{decimals}f} ({low:,.{decimals}f} .. {high:,.{decimals}f})"
