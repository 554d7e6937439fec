"""Candidates: as predicted, and as screening, the race or an earlier run have shown them: fields of the report that change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audioaug.advise.device_stages import pinning_wins
from audioaug.advise.racing import Racer
from audioaug.advise.worker_counts import WorkerCounts
from audioaug.core import Chain
from audioaug.decide.diagnose import stall
from audioaug.decide.predict import with_prediction
from audioaug.decide.shortlist import all_candidates
from audioaug.errors import MeasurementError
from audioaug.records import Candidate, Ceiling, Measurement, Report


def with_stall(report: Report, candidate: Candidate) -> Candidate:
    """Return a candidate that was measured with how long its steps wait for data."""
    return replace(candidate, stall=stall(report, candidate.measured_ms)) if candidate.measured_ms else candidate


def predicted(report: Report, chain: Chain, counts: WorkerCounts) -> dict[str, Any]:
    """Predict every candidate there is, and today's; those that there is no room for have the reason instead."""
    candidates = all_candidates(report, counts.possible, pin_memory=pinning_wins(report))
    assert report.current is not None
    return {
        "candidates": (*candidates, *counts.impossible(chain, report.chain.cuts)),
        "current": with_prediction(report, report.current),
    }


def after_screening(
    report: Report, racer: Racer, screening: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Replace the candidates of a screening by what was measured of them; those that failed cannot be run."""
    found = {candidate.name: _judged(report, racer, candidate, measurements) for candidate in screening}
    candidates = tuple(found.get(candidate.name, candidate) for candidate in report.candidates)
    blocks = tuple(measurements[name] for name in found if name in measurements)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def after_race(
    report: Report, racer: Racer, candidates: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Put the candidates that were raced before the others; raise ``MeasurementError`` if today's failed."""
    raced = {
        candidate.name: racer.measured(candidate, measurements)
        for candidate in candidates
        if candidate.name in measurements
    }
    assert report.current is not None
    if report.current.name not in raced:
        failed = (notice.text for notice in report.notices if notice.id == "candidate_failed")
        raise MeasurementError("What you do today failed in the race.", " ".join(failed))
    ceiling = _on_other_batches(report, raced[report.current.name]) if racer.job.pad else report.ceiling
    candidates = tuple(with_stall(replace(report, ceiling=ceiling), candidate) for candidate in raced.values())
    others = tuple(candidate for candidate in report.candidates if candidate.name not in raced)
    earlier = (one for one in report.measurements if one.candidate not in measurements)
    return {
        "candidates": (*candidates, *others),
        "ceiling": ceiling,
        "current": next(candidate for candidate in candidates if candidate.name == report.current.name),
        "measurements": (*measurements.values(), *earlier),
    }


def after_earlier_screening(report: Report, earlier: Report) -> dict[str, Any]:
    """Take over what the screening of an earlier run have shown of the candidates, which are predicted anew."""
    known = {candidate.name: candidate for candidate in earlier.candidates if candidate.status == "raced"}
    candidates = tuple(_remeasured(report, candidate, known.get(candidate.name)) for candidate in report.candidates)
    names = {candidate.name for candidate in candidates} & set(known)
    blocks = (it for it in earlier.measurements if it.candidate in names)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def _judged(report: Report, racer: Racer, candidate: Candidate, measurements: Mapping[str, Measurement]) -> Candidate:
    if candidate.name in measurements:
        return with_stall(report, racer.measured(candidate, measurements))
    return replace(
        candidate, status="infeasible", reason=f"It failed when it was tried: {racer.failed[candidate.name]}"
    )


def _on_other_batches(report: Report, today: Candidate) -> Ceiling:
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


def _remeasured(report: Report, candidate: Candidate, known: Candidate | None) -> Candidate:
    """Return the candidate with what an earlier run measured of it."""
    if known is None:
        return candidate
    predicted = {name: getattr(candidate, name) for name in ("predicted_ms", "predicted_ci_ms", "bound_by")}
    return with_stall(report, replace(known, **predicted))
