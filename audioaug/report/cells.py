"""The table of cells: every way to run the chain that was measured or predicted, fastest first.

A number stands in the measured column only if it was measured. What else is known of a cell that was not measured
(throughput, stall, CPU, VRAM) is a prediction too, and carries a ``~``.
"""

import math

from audioaug.records import Cell, Report
from audioaug.report.parts import NOTHING, Column, Facts, Line, Part, Row, Table, spread
from audioaug.units import format_bytes, format_percent, plural, significant

ROWS_SHOWN = 12

COLUMNS = (
    Column(""),
    Column("cell"),
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


def cell_parts(report: Report) -> tuple[Part, ...]:
    """The table, what its marks mean, and the cells that cannot be run with their reasons."""
    runnable = runnable_cells(report)
    shown = shown_cells(report, runnable)
    rows = [*ceiling_rows(report), *(cell_row(report, cell) for cell in shown)]
    if not rows:
        return infeasible_parts(report)
    table = Table(COLUMNS, tuple(rows)).without_empty()
    return table, *legend(report, shown, len(runnable) - len(shown)), *infeasible_parts(report)


def all_cells(report: Report) -> list[Cell]:
    """The cells of the report, the recommended and the user's own included; of equal ones, that which was measured."""
    cells: dict[str, Cell] = {}
    for cell in (*report.cells, report.recommendation, report.current):
        if cell is not None:
            known = cells.setdefault(cell.name, cell)
            if known.measured_ms is None and cell.measured_ms is not None:
                cells[cell.name] = cell
    return list(cells.values())


def runnable_cells(report: Report) -> list[Cell]:
    """The cells that can be run, by the best that is known of their step time."""
    return sorted((cell for cell in all_cells(report) if cell.status != "infeasible"), key=best_known_ms)


def shown_cells(report: Report, runnable: list[Cell]) -> list[Cell]:
    """Every cell that was measured or is marked, and the fastest of the others while there is room."""
    must = [cell for cell in runnable if cell.measured_ms is not None or marks(report, cell)]
    others = [cell for cell in runnable if cell not in must]
    chosen = must + others[: max(0, ROWS_SHOWN - len(must))]
    return sorted(chosen, key=best_known_ms)


def best_known_ms(cell: Cell) -> float:
    """The measured step time, else the predicted one."""
    known = (cell.measured_ms, cell.predicted_ms, math.inf)
    return next(value for value in known if value is not None)


def marks(report: Report, cell: Cell) -> tuple[str, ...]:
    """``use`` for the recommended cell, ``tie`` for its equals, ``today`` for what the user runs now."""
    advice, today = report.recommendation, report.current
    use = advice is not None and cell.name == advice.name
    tie = advice is not None and not use and cell.name in advice.tie_with
    now = today is not None and cell.name == today.name
    return tuple(word for word, holds in (("use", use), ("tie", tie), ("today", now)) if holds)


def cell_row(report: Report, cell: Cell) -> Row:
    """One cell as a row of ``COLUMNS``."""
    measured = cell.measured_ms is not None
    marked = marks(report, cell)
    values = (
        ", ".join(marked),
        cell.name,
        str(cell.cut),
        engines(cell),
        str(cell.num_workers),
        spread(cell.predicted_ms, cell.predicted_ci_ms),
        spread(cell.measured_ms, cell.measured_ci_ms),
        *(NOTHING if text is None else text if measured else f"~{text}" for text in quantities(cell)),
        "measured" if measured and cell.status == "predicted" else cell.status,
    )
    return Row(values, "best" if "use" in marked else "plain" if measured else "guess")


def quantities(cell: Cell) -> tuple[str | None, ...]:
    """Throughput, stall, CPU and VRAM as text, ``None`` where unknown."""
    return (
        None if cell.clips_per_second is None else f"{cell.clips_per_second:,.0f}",
        None if cell.stall is None else format_percent(cell.stall),
        None if cell.cpu_seconds_per_step is None else significant(cell.cpu_seconds_per_step, 2),
        None if cell.vram_bytes is None else format_bytes(cell.vram_bytes),
    )


def engines(cell: Cell) -> str:
    """Which engines run the chain in this cell: those of the workers, then that of the device."""
    used = {
        "cpu": (cell.worker_engine,),
        "gpu": (cell.device_engine,),
        "split": (cell.worker_engine, cell.device_engine),
    }
    return " + ".join(used[cell.placement])


def ceiling_rows(report: Report) -> list[Row]:
    """The ceiling as a row of the table, so that it can be compared."""
    if report.ceiling is None:
        return []
    measured, clips = spread(report.ceiling.step_ms, report.ceiling.ci_ms), f"{report.ceiling.clips_per_second:,.0f}"
    return [Row(("", "(ceiling)", "", "", "", "", measured, clips, "", "", "", "measured"))]


def legend(report: Report, shown: list[Cell], hidden: int) -> tuple[Line, ...]:
    """What the marks in the table mean, and how many rows it leaves out."""
    advice = report.recommendation
    sentences = {
        "In brackets: the interval, 95 % where it was measured, 90 % where it is predicted.": any(
            c.measured_ci_ms or c.predicted_ci_ms for c in shown
        ),
        "~ is predicted, not measured.": any(c.measured_ms is None and any(quantities(c)) for c in shown),
        f"(ceiling) is the model alone, on batches that are already on the device{ceiling_threads(report)}.": (
            report.ceiling is not None
        ),
        f"Left out: {plural(hidden, 'cell')}, only predicted; the JSON report has all.": hidden > 0,
    }
    lines = [Line(" ".join(text for text, holds in sentences.items() if holds), "note")]
    if advice is not None and advice.tie_with:
        lines.insert(0, Line(f"A tie: {advice.name} cannot be told apart from {' and '.join(advice.tie_with)}."))
    return tuple(line for line in lines if line.text)


def ceiling_threads(report: Report) -> str:
    """Where the ceiling is not on the threads that torch has anyway, on how many: ``, on 1 thread``."""
    threads = report.ceiling.threads if report.ceiling else 0
    return f", on {plural(threads, 'thread')}" if threads not in (0, report.host.torch_threads) else ""


def infeasible_parts(report: Report) -> tuple[Part, ...]:
    """The cells that cannot be run, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for cell in all_cells(report):
        if cell.status == "infeasible":
            names.setdefault(cell.reason or "no reason was recorded", []).append(cell.name)
    items = tuple(("infeasible", f"{'; '.join(cells)}: {reason}") for reason, cells in names.items())
    return (Facts(items),) if items else ()
