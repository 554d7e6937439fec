"""The report as one self-contained HTML page.

The page is complete without a script; the script sorts, filters, copies and runs the sliders of the what-if panel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audioaug.records import Candidate, Report
from audioaug.report.candidates import (
    COLUMNS,
    best_known_ms,
    candidate_row,
    ceiling_rows,
    infeasible_parts,
    legend,
    runnable_candidates,
)
from audioaug.report.charts import WORDS, CandidateAxis, bar_parts, candidate_axis, op_bars, step_bars
from audioaug.report.costs import op_costs, op_parts, stage_parts
from audioaug.report.page import headline_parts, setting_parts, trust_parts, what_if_parts
from audioaug.report.parts import NOTHING, Bars, Column, Row, Table
from audioaug.report.snippet import snippet_parts
from audioaug.report.sounds import Listening
from audioaug.report.templating import page_from

BAR_WIDTH = 1000.0

REPEATED = ("engines", "status")
"""Columns that the page leaves out: a candidate's name includes its engines, and its measured time shows its status.
"""

CHART = Column("step time, ms\n(logarithmic)")
CHART_AT = 2


@dataclass(frozen=True)
class ChartRow:
    """A row with a chart among its texts, and sort keys; a row without keys is not sorted."""

    values: tuple[Any, ...]
    kind: str = "plain"
    keys: tuple[str | float, ...] = ()
    measured: bool = True


def render(report: Report, what_if: Mapping[str, Any] | None = None, listening: Listening | None = None) -> str:
    """Render the page.

    Args:
        report: the report.
        what_if: predictions for the sliders, from ``decide.what_if.grid``; no panel if ``None``.
        listening: examples to listen to.
    """
    candidates = sorted(
        runnable_candidates(report), key=lambda candidate: (candidate.measured_ms is None, best_known_ms(candidate))
    )
    axis, places = candidate_axis(report.ceiling, candidates), shown_places(report, candidates)
    return page_from(
        "report.html",
        report=report,
        headline=headline_parts(report),
        bars=[bar for part in bar_parts(report) if isinstance(part, Bars) for bar in step_bars(part, BAR_WIDTH)],
        bar_width=BAR_WIDTH,
        words=WORDS,
        columns=with_chart([COLUMNS[place] for place in places], CHART),
        candidates=[axis_row(report, axis, places), *(chart_row(report, it, axis, places) for it in candidates)]
        if candidates
        else [],
        candidate_notes=legend(report, candidates, 0),
        infeasible=infeasible_parts(report),
        chain=chain_table(report),
        chain_notes=[part for part in op_parts(report) if not isinstance(part, Table)],
        cut=report.recommendation.cut if report.recommendation else None,
        stages=stage_parts(report),
        code=snippet_parts(report),
        listening=listening,
        what_if=what_if,
        what_if_lines=what_if_parts(report),
        trust=trust_parts(report),
        setting=setting_parts(report),
    )


def with_chart(values: Sequence[Any], drawing: Any) -> tuple[Any, ...]:
    """Insert the chart, or its column, into the values."""
    return (*values[:CHART_AT], drawing, *values[CHART_AT:])


def shown_places(report: Report, candidates: Sequence[Candidate]) -> list[int]:
    """Return the indices of the columns to show: no repeated ones, no numbers that are unknown for every candidate."""
    rows = [candidate_row(report, candidate).values for candidate in candidates]
    known = [not column.number or any(row[at] != NOTHING for row in rows) for at, column in enumerate(COLUMNS)]
    return [at for at, column in enumerate(COLUMNS) if known[at] and column.header not in REPEATED]


def axis_row(report: Report, axis: CandidateAxis, places: Sequence[int]) -> ChartRow:
    """Return the row of the axis, with the ceiling if known."""
    (row,) = ceiling_rows(report) or [Row(("",) * len(COLUMNS))]
    return ChartRow(with_chart([row.values[place] for place in places], axis))


def chart_row(report: Report, candidate: Candidate, axis: CandidateAxis, places: Sequence[int]) -> ChartRow:
    """Return the row of a candidate; unknown numbers sort last."""
    row, unknown = candidate_row(report, candidate), float("inf")
    numbers = {
        "cut": candidate.cut,
        "workers": candidate.num_workers,
        "predicted\nms": candidate.predicted_ms,
        "measured\nms": candidate.measured_ms,
        "clips/s": candidate.clips_per_second,
        "stall": candidate.stall,
        "CPU s\n/step": candidate.cpu_seconds_per_step,
        "VRAM": candidate.vram_bytes,
    }
    keys: list[str | float] = []
    for place in places:
        number = numbers.get(COLUMNS[place].header)
        keys.append(row.values[place] if not COLUMNS[place].number else unknown if number is None else number)
    return ChartRow(
        with_chart([row.values[place] for place in places], axis.marks(candidate)),
        row.kind,
        with_chart(keys, best_known_ms(candidate)),
        candidate.measured_ms is not None,
    )


def chain_table(report: Report) -> Table | None:
    """Return the chain's transforms with their costs on both sides, as numbers and bars."""
    found = next((part for part in op_parts(report) if isinstance(part, Table)), None)
    if found is None:
        return None
    columns = with_chart(found.columns, Column("worker | device"))
    bars = op_bars(op_costs(report))
    return Table(columns, tuple(Row(with_chart(row.values, bar)) for row, bar in zip(found.rows, bars)))
