"""Refine: correct the predictions of candidates that were not raced by the errors of those that were.

Stages are timed alone, with warm caches; in training they alternate. The resulting error is similar for similar
candidates: the same number of workers and threads, the same engines, a nearby cut. So the logarithm of measured over
predicted is modelled as a Gaussian process whose covariance is the similarity of candidates (Rasmussen and Williams,
Gaussian Processes for Machine Learning, chapter 2): many raced candidates that resemble each other count little more
than one, and less than one that resembles the candidate in question.

Shapes: K raced candidates, W predicted ones.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audioaug.decide.predict import with_predictions
from audioaug.records import Candidate, Report

OFF = 0.2
"""Relative error of predictions in training (standard deviation)."""

NOISE = 0.08
"""Relative error of the measurement of a raced candidate."""

UNLIKE_WORKERS, UNLIKE_THREADS, UNLIKE_ENGINE = 0.6, 0.5, 0.9
"""Factors on the similarity of candidates that differ in this."""

WITHIN = 1.645
"""Standard deviations of a two-sided 90 % interval."""


def refined(report: Report) -> tuple[Candidate, ...]:
    """Return the report's candidates, with new and corrected predictions for those that were not raced."""
    waiting = [candidate for candidate in report.candidates if candidate.status == "predicted"]
    corrected = {candidate.name: candidate for candidate in corrected_predictions(report, waiting)}
    return tuple(corrected.get(candidate.name, candidate) for candidate in report.candidates)


def corrected_predictions(report: Report, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that can be predicted, with new predictions, corrected by what was measured."""
    fresh = with_predictions(report, [*candidates, *(it for it in report.candidates if it.measured_ms)])
    waiting, known = (
        [candidate for candidate in group if candidate.predicted_ms]
        for group in (fresh[: len(candidates)], fresh[len(candidates) :])
    )
    return _corrected(waiting, known, len(report.chain.ops))


def similarity(one: Candidate, other: Candidate, ops: int) -> float:
    """Return the similarity of two candidates: 1 if equal, towards 0 the less they share."""
    shared = 1.0
    if one.num_workers != other.num_workers:
        shared *= UNLIKE_WORKERS
    if one.threads != other.threads:
        shared *= UNLIKE_THREADS
    if one.worker_engine != other.worker_engine:
        shared *= UNLIKE_ENGINE
    if one.device_engine != other.device_engine:
        shared *= UNLIKE_ENGINE
    return shared * (1 - abs(one.cut - other.cut) / (ops + 1))


def _corrected(waiting: Sequence[Candidate], known: Sequence[Candidate], ops: int) -> list[Candidate]:
    if not waiting or not known:
        return list(waiting)
    off_K = np.array(
        [math.log((candidate.measured_ms or 0.0) / (candidate.predicted_ms or 1.0)) for candidate in known]
    )
    covariance_KK = OFF**2 * _similarity(known, known, ops) + NOISE**2 * np.eye(len(known))
    covariance_WK = OFF**2 * _similarity(waiting, known, ops)
    weights_WK = np.linalg.solve(covariance_KK, covariance_WK.T).T
    left_W = OFF**2 + NOISE**2 - (weights_WK * covariance_WK).sum(axis=1)
    # 1 if the errors are as expected
    surprise = max(1.0, float(off_K @ np.linalg.solve(covariance_KK, off_K)) / len(known))
    reach_W = WITHIN * np.sqrt(surprise * left_W)
    return [
        _shifted(candidate, float(shift), float(reach))
        for candidate, shift, reach in zip(waiting, weights_WK @ off_K, reach_W, strict=True)
    ]


def _similarity(some: Sequence[Candidate], others: Sequence[Candidate], ops: int) -> NDArray[np.float64]:
    return np.array([[similarity(one, other, ops) for other in others] for one in some])


def _shifted(candidate: Candidate, shift: float, reach: float) -> Candidate:
    """Return the candidate with its prediction times ``exp(shift)``, and an interval at least as wide as ``reach``."""
    assert candidate.predicted_ms is not None and candidate.predicted_ci_ms is not None
    factor, (low, high) = math.exp(shift), candidate.predicted_ci_ms
    middle, reached = factor * candidate.predicted_ms, math.exp(reach)
    interval = min(factor * low, middle / reached), max(factor * high, middle * reached)
    return replace(candidate, predicted_ms=middle, predicted_ci_ms=interval)
