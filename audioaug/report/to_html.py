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
from audioaug.report.page import (
    cause_parts,
    date_words,
    headline_parts,
    setting_parts,
    trust_parts,
    what_if_parts,
)
from audioaug.report.parts import NOTHING, Bars, Column, Line, Row, Table
from audioaug.report.snippet import snippet_parts
from audioaug.report.sounds import NOT_SAVED, Listening
from audioaug.report.templating import explanations, page_from

BAR_WIDTH = 1000.0

SECTIONS = {
    "bars": "Time of one step",
    "cause": "Bottleneck",
    "code": "Code",
    "candidates": "Candidates",
    "chain": "Chain",
    "what_if": "What if",
    "listen": "Listen",
    "facts": "Facts",
}
"""The sections after the verdict, in the order of what a reader decides, as the contents name them."""

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
        what_if: predictions for the sliders, from ``decide.sliders.grid``; no panel if ``None``.
        listening: examples to listen to; ``None`` if there are none, which the page says.
    """
    candidates = sorted(
        runnable_candidates(report), key=lambda candidate: (candidate.measured_ms is None, best_known_ms(candidate))
    )
    axis, places = candidate_axis(report.ceiling, candidates), shown_places(report, candidates)
    rows = [axis_row(report, axis, places), *(chart_row(report, it, axis, places) for it in candidates)]
    sections = {
        "bars": [bar for part in bar_parts(report) if isinstance(part, Bars) for bar in step_bars(part, BAR_WIDTH)],
        "cause": cause_parts(report),
        "code": snippet_parts(report),
        "candidates": rows if candidates else infeasible_parts(report),
        "chain": (*op_parts(report), *stage_parts(report)),
        "what_if": what_if or what_if_parts(report),
        "listen": listening or Listening((Line(NOT_SAVED, "note"),)),
        "facts": trust_parts(report),
    }
    return page_from(
        "report.html",
        report=report,
        date=date_words(report),
        headline=headline_parts(report),
        contents={id: words for id, words in SECTIONS.items() if sections[id]},
        bar_width=BAR_WIDTH,
        words=WORDS,
        columns=with_chart([COLUMNS[place] for place in places], CHART),
        rows=rows if candidates else [],
        candidate_notes=legend(report, candidates, 0),
        infeasible=infeasible_parts(report),
        ops=chain_table(report),
        op_notes=[part for part in op_parts(report) if not isinstance(part, Table)],
        cut=report.recommendation.cut if report.recommendation else None,
        stages=stage_parts(report),
        sliders=None if what_if is None else {**what_if, "rest": rest_rows(report, candidates)},
        what_if_lines=what_if_parts(report),
        setting=setting_parts(report),
        explained=explanations((report.cause, *(notice.id for notice in report.notices))),
        **sections,
    )


def rest_rows(report: Report, candidates: Sequence[Candidate]) -> list[tuple[str, ...]]:
    """Return the table of candidates as the sliders show it at rest: mark, name, step time, and throughput."""
    rows = list[tuple[str, ...]]()
    for candidate in candidates:
        row = dict(zip((column.header for column in COLUMNS), candidate_row(report, candidate).values, strict=True))
        how = "predicted" if candidate.measured_ms is None else "measured"
        rows.append((row[""], row["candidate"], row[f"{how}\nms"], how, row["clips/s"]))
    return rows


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
