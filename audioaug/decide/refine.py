"""Refine: predictions of what was not raced, by how far off those of raced cells were.

Stages are timed on their own, over and over, with warm caches; in training all takes turns. What that costs is much the
same for cells that are alike: the same number of workers, the same threads, the same engines, a cut nearby. So the
logarithm of measured over predicted is taken for a Gaussian process over the cells, whose covariance is their likeness
(Rasmussen and Williams, Gaussian Processes for Machine Learning, chapter 2): many raced cells that are like each other
say little more than one of them, and one that is like the cell in question outweighs them.

Shapes: K raced cells, W waiting ones.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audioaug.decide.predict import with_predictions
from audioaug.records import Cell, Report

OFF = 0.2
"""How far off the stages' predictions are in training: a standard deviation, as a share."""

NOISE = 0.08
"""How far off the measurement of a raced cell is."""

UNLIKE_WORKERS, UNLIKE_THREADS, UNLIKE_ENGINE = 0.6, 0.5, 0.9
"""What a raced cell counts that differs so."""

WITHIN = 1.645
"""Standard deviations to either side that hold 90 %."""


def refined(report: Report) -> tuple[Cell, ...]:
    """Return the report's cells: what was not raced is predicted anew, and corrected by what was."""
    fresh = with_predictions(report, [cell for cell in report.cells if cell.status != "infeasible"])
    known = [cell for cell in fresh if cell.measured_ms and cell.predicted_ms]
    waiting = [cell for cell in fresh if cell.status == "predicted" and cell.predicted_ms]
    corrected = {cell.name: cell for cell in _corrected(waiting, known, len(report.chain.ops))}
    return tuple(corrected.get(cell.name, cell) for cell in report.cells)


def likeness(one: Cell, other: Cell, ops: int) -> float:
    """Return how much of what is known of one cell holds for another: 1 for the same, towards 0 the less they share."""
    alike = 1.0
    if one.num_workers != other.num_workers:
        alike *= UNLIKE_WORKERS
    if one.threads != other.threads:
        alike *= UNLIKE_THREADS
    if one.worker_engine != other.worker_engine:
        alike *= UNLIKE_ENGINE
    if one.device_engine != other.device_engine:
        alike *= UNLIKE_ENGINE
    return alike * (1 - abs(one.cut - other.cut) / (ops + 1))


def _corrected(waiting: Sequence[Cell], known: Sequence[Cell], ops: int) -> list[Cell]:
    if not waiting or not known:
        return list(waiting)
    off_K = np.array([math.log((cell.measured_ms or 0.0) / (cell.predicted_ms or 1.0)) for cell in known])
    covariance_KK = OFF**2 * _likeness(known, known, ops) + NOISE**2 * np.eye(len(known))
    covariance_WK = OFF**2 * _likeness(waiting, known, ops)
    weights_WK = np.linalg.solve(covariance_KK, covariance_WK.T).T
    left_W = OFF**2 + NOISE**2 - (weights_WK * covariance_WK).sum(axis=1)
    surprise = max(1.0, float(off_K @ np.linalg.solve(covariance_KK, off_K)) / len(known))  # 1 if they are as supposed
    reach_W = WITHIN * np.sqrt(surprise * left_W)
    return [
        _shifted(cell, float(shift), float(reach))
        for cell, shift, reach in zip(waiting, weights_WK @ off_K, reach_W, strict=True)
    ]


def _likeness(some: Sequence[Cell], others: Sequence[Cell], ops: int) -> NDArray[np.float64]:
    return np.array([[likeness(one, other, ops) for other in others] for one in some])


def _shifted(cell: Cell, shift: float, reach: float) -> Cell:
    """Return the cell with its prediction times ``exp(shift)``, its interval as wide as before or as ``reach``."""
    assert cell.predicted_ms is not None and cell.predicted_ci_ms is not None
    factor, (low, high) = math.exp(shift), cell.predicted_ci_ms
    middle, reached = factor * cell.predicted_ms, math.exp(reach)
    interval = min(factor * low, middle / reached), max(factor * high, middle * reached)
    return replace(cell, predicted_ms=middle, predicted_ci_ms=interval)
