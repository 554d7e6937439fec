"""The report as one self-contained page: what a person reads in a minute, with everything behind it to sort and filter.

Without a script the page says the same; the script sorts, filters, copies and moves the sliders of the what-if panel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audioaug.records import Cell, Report
from audioaug.report.bars import WORDS, bar_parts
from audioaug.report.cells import (
    COLUMNS,
    best_known_ms,
    ceiling_rows,
    cell_row,
    infeasible_parts,
    legend,
    runnable_cells,
)
from audioaug.report.charts import CellMarks, cell_axis, step_bars
from audioaug.report.costs import op_parts, stage_parts
from audioaug.report.parts import Bars, Row, Table
from audioaug.report.sentences import headline_parts, setting_parts, trust_parts, what_if_parts
from audioaug.report.snippet import snippet_parts
from audioaug.report.templating import page_from

BAR_WIDTH = 1000.0


@dataclass(frozen=True)
class CellRow:
    """A row of the table of cells: its texts, a key for each to sort by, and its place on the axis."""

    row: Row
    keys: tuple[str | float, ...]
    best_ms: float
    marks: CellMarks
    measured: bool


def render(report: Report, what_if: Mapping[str, Any] | None = None) -> str:
    """The page, with all it needs inside.

    Args:
        report: what the advisor found.
        what_if: what the panel's sliders look up, as ``decide.what_if.grid`` makes it; no panel without one.
    """
    cells = runnable_cells(report)
    axis = cell_axis(report.ceiling, cells)
    op_table = [part for part in op_parts(report) if isinstance(part, Table)]
    return page_from(
        "report.html",
        report=report,
        headline=headline_parts(report),
        bars=[bar for part in bar_parts(report) if isinstance(part, Bars) for bar in step_bars(part, BAR_WIDTH)],
        bar_width=BAR_WIDTH,
        words=WORDS,
        columns=COLUMNS,
        axis=axis,
        ceiling=ceiling_rows(report),
        cells=[cell_of(report, cell, axis.marks(cell)) for cell in cells],
        cell_notes=legend(report, cells, 0),
        infeasible=infeasible_parts(report),
        chain=op_table[0] if op_table else None,
        chain_notes=[part for part in op_parts(report) if not isinstance(part, Table)],
        cut=report.recommendation.cut if report.recommendation else None,
        stages=stage_parts(report),
        code=snippet_parts(report),
        what_if=what_if,
        what_if_lines=what_if_parts(report),
        trust=trust_parts(report),
        setting=setting_parts(report),
    )


def cell_of(report: Report, cell: Cell, marks: CellMarks) -> CellRow:
    """One cell, ready to be drawn; what is unknown sorts behind all that is known."""
    row, unknown = cell_row(report, cell), float("inf")
    numbers = {
        "cut": cell.cut,
        "workers": cell.num_workers,
        "predicted\nms": cell.predicted_ms,
        "measured\nms": cell.measured_ms,
        "clips/s": cell.clips_per_second,
        "stall": cell.stall,
        "CPU s\n/step": cell.cpu_seconds_per_step,
        "VRAM": cell.vram_bytes,
    }
    keys: list[str | float] = []
    for column, text in zip(COLUMNS, row.values, strict=True):
        number = numbers.get(column.header)
        keys.append(text if not column.number else unknown if number is None else number)
    return CellRow(row, tuple(keys), best_known_ms(cell), marks, cell.measured_ms is not None)
