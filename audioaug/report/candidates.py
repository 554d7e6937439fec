"""The table of candidates, measured or predicted, fastest first.

The measured column holds only measured numbers. Other numbers of a predicted candidate (throughput, stall, CPU, VRAM)
are predictions, too, and marked with ``~``.
"""

import math

from audioaug.records import Candidate, Report
from audioaug.report.parts import NOTHING, Column, Facts, Line, Part, Row, Table, spread
from audioaug.units import format_bytes, format_percent, plural, rounded, significant

ROWS_SHOWN = 12

COLUMNS = (
    Column(""),
    Column("candidate"),
    Column("cut", number=True, use="spare"),
    Column("engines", use="spare"),
    Column("workers", number=True, use="spare"),
    Column("predicted\nms", number=True),
    Column("measured\nms", number=True),
    Column("clips/s", number=True, use="minor"),
    Column("stall", number=True),
    Column("CPU s\n/step", number=True, use="minor"),
    Column("VRAM", number=True, use="minor"),
    Column("status", use="spare"),
)


def candidate_parts(report: Report) -> tuple[Part, ...]:
    """Return the table, its legend, and the infeasible candidates with their reasons."""
    runnable = runnable_candidates(report)
    shown = shown_candidates(report, runnable)
    rows = [*ceiling_rows(report), *(candidate_row(report, candidate) for candidate in shown)]
    if not rows:
        return infeasible_parts(report)
    table = Table(COLUMNS, tuple(rows)).without_empty()
    return table, *legend(report, shown, len(runnable) - len(shown)), *infeasible_parts(report)


def runnable_candidates(report: Report) -> list[Candidate]:
    """Return the feasible candidates, sorted by measured, else predicted step time."""
    return sorted(
        (candidate for candidate in report.known_candidates if candidate.status != "infeasible"), key=best_known_ms
    )


def shown_candidates(report: Report, runnable: list[Candidate]) -> list[Candidate]:
    """Return every measured or marked candidate, and the fastest of the others while there is room."""
    must = [candidate for candidate in runnable if candidate.measured_ms is not None or marks(report, candidate)]
    others = [candidate for candidate in runnable if candidate not in must]
    chosen = must + others[: max(0, ROWS_SHOWN - len(must))]
    return sorted(chosen, key=best_known_ms)


def best_known_ms(candidate: Candidate) -> float:
    """Return the measured step time, else the predicted one, else infinity."""
    return math.inf if candidate.known_ms is None else candidate.known_ms


def marks(report: Report, candidate: Candidate) -> tuple[str, ...]:
    """Return the marks: ``use`` for the recommended candidate, ``tie`` for its ties, ``today`` for the current one."""
    advice, today = report.recommendation, report.current
    use = advice is not None and candidate.name == advice.name
    tie = advice is not None and not use and candidate.name in advice.tie_with
    now = today is not None and candidate.name == today.name
    return tuple(word for word, holds in (("use", use), ("tie", tie), ("today", now)) if holds)


def candidate_row(report: Report, candidate: Candidate) -> Row:
    """Return one candidate as a row of ``COLUMNS``."""
    measured = candidate.measured_ms is not None
    marked = marks(report, candidate)
    values = (
        ", ".join(marked),
        candidate.name,
        str(candidate.cut),
        engines(candidate),
        str(candidate.num_workers),
        spread(candidate.predicted_ms, candidate.predicted_ci_ms),
        spread(candidate.measured_ms, candidate.measured_ci_ms),
        *(NOTHING if text is None else text if measured else f"~{text}" for text in quantities(candidate)),
        "measured" if measured and candidate.status == "predicted" else candidate.status,
    )
    return Row(values, "best" if "use" in marked else "plain" if measured else "guess")


def quantities(candidate: Candidate) -> tuple[str | None, ...]:
    """Return throughput, stall, CPU and VRAM as text, ``None`` if unknown."""
    return (
        None if candidate.clips_per_second is None else rounded(candidate.clips_per_second),
        None if candidate.stall is None else format_percent(candidate.stall),
        None if candidate.cpu_seconds_per_step is None else significant(candidate.cpu_seconds_per_step, 2),
        None if candidate.vram_bytes is None else format_bytes(candidate.vram_bytes),
    )


def engines(candidate: Candidate) -> str:
    """Return the engines of a candidate: that of the workers, then that of the device."""
    used = {
        "cpu": (candidate.worker_engine,),
        "gpu": (candidate.device_engine,),
        "split": (candidate.worker_engine, candidate.device_engine),
    }
    return " + ".join(used[candidate.placement])


def ceiling_rows(report: Report) -> list[Row]:
    """Return the ceiling as a row of the table."""
    if report.ceiling is None:
        return []
    measured, clips = spread(report.ceiling.step_ms, report.ceiling.ci_ms), rounded(report.ceiling.clips_per_second)
    return [Row(("", "(ceiling)", "", "", "", "", measured, clips, "", "", "", "measured"))]


def legend(report: Report, shown: list[Candidate], hidden: int) -> tuple[Line, ...]:
    """Return the meaning of the marks in the table, and the number of rows left out."""
    advice = report.recommendation
    sentences = {
        "In brackets: 95 % intervals of measurements, 90 % intervals of predictions.": any(
            c.measured_ci_ms or c.predicted_ci_ms for c in shown
        ),
        "~ marks predictions.": any(c.measured_ms is None and any(quantities(c)) for c in shown),
        f"(ceiling) is the model alone, on batches that are already on the device{ceiling_threads(report)}.": (
            report.ceiling is not None
        ),
        f"Not shown: {plural(hidden, 'candidate')}, only predicted; the JSON report lists all.": hidden > 0,
    }
    lines = [Line(" ".join(text for text, holds in sentences.items() if holds), "note")]
    if advice is not None and advice.tie_with:
        lines.insert(
            0, Line(f"A tie: {advice.name} does not differ significantly from {' and '.join(advice.tie_with)}.")
        )
    return tuple(line for line in lines if line.text)


def ceiling_threads(report: Report) -> str:
    """Return the ceiling's number of threads if it is not torch's default: ``, on 1 thread``."""
    threads = report.ceiling.threads if report.ceiling else 0
    return f", on {plural(threads, 'thread')}" if threads not in (0, report.host.torch_threads) else ""


def infeasible_parts(report: Report) -> tuple[Part, ...]:
    """Return the infeasible candidates, grouped by reason."""
    names: dict[str, list[str]] = {}
    for candidate in report.known_candidates:
        if candidate.status == "infeasible":
            names.setdefault(candidate.reason or "no reason was recorded", []).append(candidate.name)
    items = tuple(("infeasible", f"{'; '.join(candidates)}: {reason}") for reason, candidates in names.items())
    return (Facts(items),) if items else ()
