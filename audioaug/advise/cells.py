"""Cells: as predicted, and as heats, the race or an earlier run have shown them: fields of the report that change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audioaug.advise.device_stages import pinning_wins
from audioaug.advise.racing import Racer
from audioaug.advise.worker_counts import WorkerCounts
from audioaug.core import Chain
from audioaug.decide.diagnose import stall
from audioaug.decide.predict import with_prediction
from audioaug.decide.shortlist import all_cells
from audioaug.errors import MeasurementError
from audioaug.records import Ceiling, Cell, Measurement, Report


def with_stall(report: Report, cell: Cell) -> Cell:
    """Return a cell that was measured with how long its steps wait for data."""
    return replace(cell, stall=stall(report, cell.measured_ms)) if cell.measured_ms else cell


def predicted(report: Report, chain: Chain, counts: WorkerCounts) -> dict[str, Any]:
    """Predict every cell there is, and today's; those that there is no room for have the reason instead."""
    cells = all_cells(report, counts.possible, pin_memory=pinning_wins(report))
    assert report.current is not None
    return {
        "cells": (*cells, *counts.impossible(chain, report.chain.cuts)),
        "current": with_prediction(report, report.current),
    }


def after_heat(
    report: Report, racer: Racer, heat: Sequence[Cell], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Replace the cells of a heat by what was measured of them; those that failed cannot be run."""
    found = {cell.name: _judged(report, racer, cell, measurements) for cell in heat}
    cells = tuple(found.get(cell.name, cell) for cell in report.cells)
    blocks = tuple(measurements[name] for name in found if name in measurements)
    return {"cells": cells, "measurements": (*report.measurements, *blocks)}


def after_race(
    report: Report, racer: Racer, arms: Sequence[Cell], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Put the cells that were raced before the others; raise ``MeasurementError`` if today's failed."""
    raced = {cell.name: racer.measured(cell, measurements) for cell in arms if cell.name in measurements}
    assert report.current is not None
    if report.current.name not in raced:
        failed = (notice.text for notice in report.notices if notice.id == "arm_failed")
        raise MeasurementError("What you do today failed in the race.", " ".join(failed))
    ceiling = _on_other_batches(report, raced[report.current.name]) if racer.target.pad else report.ceiling
    cells = tuple(with_stall(replace(report, ceiling=ceiling), cell) for cell in raced.values())
    rest = tuple(cell for cell in report.cells if cell.name not in raced)
    earlier = (one for one in report.measurements if one.cell not in measurements)
    return {
        "cells": (*cells, *rest),
        "ceiling": ceiling,
        "current": next(cell for cell in cells if cell.name == report.current.name),
        "measurements": (*measurements.values(), *earlier),
    }


def after_earlier_heats(report: Report, earlier: Report) -> dict[str, Any]:
    """Take over what the heats of an earlier run have shown of the cells, which are predicted anew."""
    known = {cell.name: cell for cell in earlier.cells if cell.status == "raced"}
    cells = tuple(_remeasured(report, cell, known.get(cell.name)) for cell in report.cells)
    names = {cell.name for cell in cells} & set(known)
    blocks = (it for it in earlier.measurements if it.cell in names)
    return {"cells": cells, "measurements": (*report.measurements, *blocks)}


def _judged(report: Report, racer: Racer, cell: Cell, measurements: Mapping[str, Measurement]) -> Cell:
    if cell.name in measurements:
        return with_stall(report, racer.measured(cell, measurements))
    return replace(cell, status="infeasible", reason=f"It failed when it was tried: {racer.failed[cell.name]}")


def _on_other_batches(report: Report, today: Cell) -> Ceiling:
    """Return the ceiling as it would be on the batches of the race, by what today's step takes there and took before.

    Batches of many lengths differ; those that lie on the device were the same for today's step and the ceiling.
    """
    before, ceiling = report.current, report.ceiling
    assert ceiling is not None and before is not None and before.measured_ms and today.measured_ms
    longer = today.measured_ms / before.measured_ms
    low, high = ceiling.ci_ms
    return replace(
        ceiling,
        step_ms=longer * ceiling.step_ms,
        ci_ms=(longer * low, longer * high),
        clips_per_second=ceiling.clips_per_second / longer,
        samples_ms=tuple(longer * ms for ms in ceiling.samples_ms),
    )


def _remeasured(report: Report, cell: Cell, known: Cell | None) -> Cell:
    """Return the cell with what an earlier run measured of it."""
    if known is None:
        return cell
    predicted = {name: getattr(cell, name) for name in ("predicted_ms", "predicted_ci_ms", "bound_by")}
    return with_stall(report, replace(known, **predicted))
