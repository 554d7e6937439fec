"""Refine: predictions of what was not raced, by how far off those of raced cells were.

Stages are timed on their own, over and over, with warm caches; in training all takes turns. What that costs is much the
same for cells that are alike: the same number of workers, the same threads, the same engines, a cut nearby. So each
prediction is multiplied by a weighted mean of measured over predicted (of their logarithms); few and unlike cells move
it little. How much those ratios differ among themselves widens the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from audioaug.decide.predict import with_predictions
from audioaug.records import Cell, Report

DOUBT = 0.2
"""How many raced cells just like it the stages themselves count for."""

UNLIKE_WORKERS, UNLIKE_THREADS, UNLIKE_ENGINE = 0.4, 0.5, 0.7
"""What a raced cell counts that differs so; without workers where there are some, it counts a quarter of that."""

WITHIN = 1.645
"""Standard deviations to either side that hold 90 %."""


def refined(report: Report) -> tuple[Cell, ...]:
    """Return the report's cells: what was not raced is predicted anew, and corrected by what was."""
    cells = report.cells
    known = [
        (cell, math.log(cell.measured_ms / cell.predicted_ms))
        for cell in cells
        if cell.measured_ms and cell.predicted_ms
    ]
    waiting = {cell.name: cell for cell in with_predictions(report, [it for it in cells if it.status == "predicted"])}
    return tuple(
        _corrected(waiting[cell.name], known, len(report.chain.ops)) if cell.name in waiting else cell for cell in cells
    )


def likeness(one: Cell, other: Cell, ops: int) -> float:
    """Return how much of what is known of one cell holds for another: 1 for the same, towards 0 the less they share."""
    alike = 1.0
    if one.num_workers != other.num_workers:
        alike *= UNLIKE_WORKERS if one.num_workers and other.num_workers else UNLIKE_WORKERS / 4
    if one.threads != other.threads:
        alike *= UNLIKE_THREADS
    if one.worker_engine != other.worker_engine:
        alike *= UNLIKE_ENGINE
    if one.device_engine != other.device_engine:
        alike *= UNLIKE_ENGINE
    return alike * (1 - abs(one.cut - other.cut) / (ops + 1))


def _corrected(cell: Cell, known: Sequence[tuple[Cell, float]], ops: int) -> Cell:
    if cell.predicted_ms is None or cell.predicted_ci_ms is None:
        return cell
    weights = [likeness(cell, other, ops) for other, _ in known]
    total = math.fsum(weights) + DOUBT
    shift = math.fsum(weight * off for weight, (_, off) in zip(weights, known)) / total
    spread = math.sqrt(math.fsum(weight * (off - shift) ** 2 for weight, (_, off) in zip(weights, known)) / total)
    factor, reach = math.exp(shift), math.exp(WITHIN * spread)
    middle, (low, high) = cell.predicted_ms * factor, cell.predicted_ci_ms
    interval = min(factor * low, middle / reach), max(factor * high, middle * reach)
    return replace(cell, predicted_ms=middle, predicted_ci_ms=interval)
