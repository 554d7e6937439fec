"""The report as one self-contained page: what a person reads in a minute, with everything behind it to sort and filter.

Without a script the page says the same; the script sorts, filters, copies and moves the sliders of the what-if panel.
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
"""Columns that the page leaves out: a candidate's name tells its engines, and its measured time whether it was raced."""

CHART = Column("step time, ms\n(logarithmic)")
CHART_AT = 2


@dataclass(frozen=True)
class ChartRow:
    """A row with a drawing among its texts, and a key for each to sort by; one without keys stays where it is."""

    values: tuple[Any, ...]
    kind: str = "plain"
    keys: tuple[str | float, ...] = ()
    measured: bool = True


def render(report: Report, what_if: Mapping[str, Any] | None = None, listening: Listening | None = None) -> str:
    """The page, with all it needs inside.

    Args:
        report: what the advisor found.
        what_if: what the panel's sliders look up, as ``decide.what_if.grid`` makes it; no panel without one.
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
    """The values with the drawing, or its column, in its place."""
    return (*values[:CHART_AT], drawing, *values[CHART_AT:])


def shown_places(report: Report, candidates: Sequence[Candidate]) -> list[int]:
    """The places of the columns to show: none that repeats others, no number that is unknown of every candidate."""
    rows = [candidate_row(report, candidate).values for candidate in candidates]
    known = [not column.number or any(row[at] != NOTHING for row in rows) for at, column in enumerate(COLUMNS)]
    return [at for at, column in enumerate(COLUMNS) if known[at] and column.header not in REPEATED]


def axis_row(report: Report, axis: CandidateAxis, places: Sequence[int]) -> ChartRow:
    """The axis of the drawings, beside the ceiling if that is known."""
    (row,) = ceiling_rows(report) or [Row(("",) * len(COLUMNS))]
    return ChartRow(with_chart([row.values[place] for place in places], axis))


def chart_row(report: Report, candidate: Candidate, axis: CandidateAxis, places: Sequence[int]) -> ChartRow:
    """One candidate; what is unknown sorts behind all that is known."""
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
    """The chain's transforms with what they cost on both sides, as numbers and drawn."""
    found = next((part for part in op_parts(report) if isinstance(part, Table)), None)
    if found is None:
        return None
    columns = with_chart(found.columns, Column("worker | device"))
    bars = op_bars(op_costs(report))
    return Table(columns, tuple(Row(with_chart(row.values, bar)) for row, bar in zip(found.rows, bars)))
