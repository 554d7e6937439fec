"""Shortlist: all candidates, and those worth racing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from audioaug.decide.predict import threads_beside, with_predictions, with_prefetch, worker_engines
from audioaug.records import SHARED_FIELDS, Candidate, DeviceEngine, Placement, Report

NOTICED = 0.005
"""Share of an epoch below which the start of workers is negligible."""

SAME = 0.02
"""Predictions within this share are equal; the one with fewer workers is preferred."""

OTHER_COUNTS = 2
"""Other worker counts that are screened, although no cut is best with them."""


def placement_of(cut: int, ops: int) -> Placement:
    """Return the placement of a cut: "cpu" for the whole chain in the workers, "gpu" for none of it, else "split"."""
    return "cpu" if cut == ops else "gpu" if cut == 0 else "split"


def all_candidates(report: Report, workers: Sequence[int], *, pin_memory: bool | None) -> list[Candidate]:
    """Return every combination of cut, worker engine and worker count, predicted; infeasible ones with their reason.

    Our ops run in workers only with our ops on the device, with at least one worker, and if they are faster than
    audiomentations. Without a GPU the training process gets a thread for each core that workers leave. Workers use
    Python's default start method, prefetch as simulated, and persist between epochs unless their start is negligible.

    Args:
        workers: worker counts to consider.
        pin_memory: as in ``Plan``.
    """
    ops, cuts = len(report.chain.ops), report.chain.cuts
    candidates = [
        Candidate(
            placement_of(cut, ops),
            cut,
            worker,
            num_workers=count,
            pin_memory=pin_memory,
            threads=threads_beside(report, count),
        )
        for cut in cuts
        for worker in worker_engines(report, cut)
        for count in workers
        if count or worker == "audiomentations"
    ]
    candidates = with_predictions(report, with_prefetch(report, candidates))
    candidates = [
        replace(candidate, persistent_workers=_is_worth_keeping_workers(report, candidate)) for candidate in candidates
    ]
    impossible = [
        Candidate(placement_of(cut, ops), cut, status="infeasible", reason=reason)
        for reason, beyond in (
            (report.chain.device_from_reason, range(cuts.start)),
            (report.chain.worker_until_reason, range(cuts.stop, ops + 1)),
        )
        for cut in beyond
    ]
    return candidates + impossible


def pinning_wins(report: Report) -> bool | None:
    """Return whether copies from pinned memory are faster; ``None`` if they were not measured."""
    times = {stage.name: stage.ms_per_batch or 0.0 for stage in report.stages if stage.where == "transfer"}
    if "copy, pinned" not in times or "copy, pageable" not in times:
        return None
    return times["copy, pinned"] < times["copy, pageable"]


def best_of_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the best candidate for every cut and engines, fastest first, measured ones before predicted ones.

    It is the fastest measured one, else the one with the fewest workers within 2 % of the best prediction.
    """
    best = (min(group, key=_known) if _is_measured(group) else _fewest(group) for group in _groups(candidates).values())
    return sorted(best, key=_known)


def worth_screening(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best candidate of every cut and engines and, after the first, up to two with other worker counts.

    Prediction errors are similar for candidates with the same worker count, so these improve the predictions.
    """
    best = best_of_each(candidates)
    known = {candidate.num_workers for candidate in candidates if candidate.measured_ms is not None} | {
        candidate.num_workers for candidate in best
    }
    unknown: dict[int, list[Candidate]] = {}
    for candidate in (
        candidate for group in _groups(candidates).values() for candidate in group if candidate.num_workers not in known
    ):
        unknown.setdefault(candidate.num_workers, []).append(candidate)
    others = sorted((min(group, key=_predicted) for group in unknown.values()), key=_predicted)
    return [*best[:1], *others[:OTHER_COUNTS], *best[1:]]


def shortlist(candidates: Sequence[Candidate], current: Candidate, at_most: int) -> list[Candidate]:
    """Return the candidates to race: today's, the favourite, the best with all and with none of the chain in the
    workers.

    Then follow the best of every cut and engines, the favourite with torch's default threads, and its neighbour with
    another worker count.
    """
    best = best_of_each(candidates)
    controls = [next((candidate for candidate in best if candidate.placement == kind), None) for kind in ("cpu", "gpu")]
    group = _groups(candidates)[_way(best[0])] if best else []
    neighbours = sorted(group, key=_predicted)[:2]
    twins = [_unknown(candidate, threads=None) for candidate in best[:1] if candidate.threads is not None]
    chosen = [current]
    for candidate in filter(None, [*best[:1], *controls, *twins, *best[1:2], *neighbours, *best[2:]]):
        if len(chosen) < at_most and candidate.name not in {candidate.name for candidate in chosen}:
            chosen.append(candidate)
    return chosen


def with_engines(candidates: Sequence[Candidate], engines: Sequence[DeviceEngine]) -> list[Candidate]:
    """Return the best candidate with our ops on the device, if any, and the same with each of these engines."""
    ours = (
        candidate
        for candidate in best_of_each(candidates)
        if candidate.placement != "cpu" and candidate.device_engine == "batched"
    )
    best = next(ours, None) if engines else None
    return [] if best is None else [best, *(_unknown(best, device_engine=engine) for engine in engines)]


def _is_worth_keeping_workers(report: Report, candidate: Candidate) -> bool:
    """Return whether starting the workers takes more than 0.5 % of an epoch, or is unknown."""
    starts = [cost.first_batch_seconds for cost in report.loader_costs if cost.num_workers == candidate.num_workers]
    clips = report.workload.clips
    if not starts or candidate.predicted_ms is None or clips is None:
        return True
    epoch_seconds = clips / report.workload.batch_size * candidate.predicted_ms / 1e3
    return max(starts) > NOTICED * epoch_seconds


def _unknown(candidate: Candidate, **other: Any) -> Candidate:
    """Return a copy of the candidate's settings with some changed, without results."""
    return Candidate(candidate.placement, **{name: getattr(candidate, name) for name in SHARED_FIELDS} | other)


def _groups(candidates: Iterable[Candidate]) -> dict[tuple[int, str, str], list[Candidate]]:
    """Group the feasible candidates by cut and engines."""
    groups: dict[tuple[int, str, str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.status != "infeasible" and candidate.predicted_ms is not None:
            groups.setdefault(_way(candidate), []).append(candidate)
    return groups


def _way(candidate: Candidate) -> tuple[int, str, str]:
    return candidate.cut, candidate.worker_engine, candidate.device_engine


def _is_measured(group: Iterable[Candidate]) -> bool:
    return any(candidate.measured_ms is not None for candidate in group)


def _fewest(group: Sequence[Candidate]) -> Candidate:
    limit = min(_predicted(candidate) for candidate in group) * (1 + SAME)
    return min(
        (candidate for candidate in group if _predicted(candidate) <= limit),
        key=lambda candidate: candidate.num_workers,
    )


def _known(candidate: Candidate) -> tuple[bool, float]:
    """Sort key: measured times before predicted ones, which may all be off."""
    return (False, candidate.measured_ms) if candidate.measured_ms is not None else (True, _predicted(candidate))


def _predicted(candidate: Candidate) -> float:
    assert candidate.predicted_ms is not None
    return candidate.predicted_ms
