"""Shortlist: all candidates there are, and those worth racing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from audioaug.decide.predict import threads_beside, with_predictions, with_prefetch, worker_engines
from audioaug.records import SHARED_FIELDS, Candidate, DeviceEngine, Placement, Report

NOTICED = 0.005
"""Starting workers that takes a smaller share of an epoch than this may as well be done for each."""

SAME = 0.02
"""Predictions this close are not worth another worker."""

OTHER_COUNTS = 2
"""Numbers of workers that get a screening although no cut is best with them."""


def placement_of(cut: int, ops: int) -> Placement:
    """Name a cut: all of the chain in the workers is "cpu", none of it "gpu". An empty chain counts as "cpu"."""
    return "cpu" if cut == ops else "gpu" if cut == 0 else "split"


def all_candidates(report: Report, workers: Sequence[int], *, pin_memory: bool | None) -> list[Candidate]:
    """Return every combination of cut, worker engine and worker count, predicted; impossible ones with their reason.

    Our ops in the workers come only with our ops on the device, at least one worker, and where they take less of its
    time than audiomentations. Without a GPU the training process gets a thread for each core that workers leave it.
    Workers are started in Python's default way, prefetch as the simulation says, and live on between epochs where
    starting them anew would be noticed.

    Args:
        workers: the counts to consider.
        pin_memory: whether batches go through page-locked memory, as in ``Plan``.
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
    """Return whether page-locked memory won where copies were measured; ``None`` where they were not."""
    times = {stage.name: stage.ms_per_batch or 0.0 for stage in report.stages if stage.where == "transfer"}
    if "copy, pinned" not in times or "copy, pageable" not in times:
        return None
    return times["copy, pinned"] < times["copy, pageable"]


def best_of_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return one candidate for every cut and its engines, fastest first; those that were measured before the others.

    It is the fastest that was measured, else the one with the fewest workers within 2 % of the best prediction.
    """
    best = (min(group, key=_known) if _is_measured(group) else _fewest(group) for group in _groups(candidates).values())
    return sorted(best, key=_known)


def worth_screening(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best of every cut and its engines, behind the first of them up to two with other numbers of workers.

    How far predictions are off is much the same for candidates with as many workers, of which those then tell.
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
    """Return the candidates to race: today's, the favourite, the best with all and with none of the chain in the workers.

    Then follow the best of every cut and its engines; the favourite also brings itself with torch's threads left as
    they are, and its neighbour with other workers.
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
    """Return the best candidate with our ops on the device, if there is one, and the same by each of these engines."""
    ours = (
        candidate
        for candidate in best_of_each(candidates)
        if candidate.placement != "cpu" and candidate.device_engine == "batched"
    )
    best = next(ours, None) if engines else None
    return [] if best is None else [best, *(_unknown(best, device_engine=engine) for engine in engines)]


def _is_worth_keeping_workers(report: Report, candidate: Candidate) -> bool:
    """Return whether starting the workers takes more than 0.5 % of an epoch, or that is unknown."""
    starts = [cost.first_batch_seconds for cost in report.loader_costs if cost.num_workers == candidate.num_workers]
    clips = report.workload.clips
    if not starts or candidate.predicted_ms is None or clips is None:
        return True
    epoch_seconds = clips / report.workload.batch_size * candidate.predicted_ms / 1e3
    return max(starts) > NOTICED * epoch_seconds


def _unknown(candidate: Candidate, **other: Any) -> Candidate:
    """Return a candidate that differs in this alone, of which nothing is known."""
    return Candidate(candidate.placement, **{name: getattr(candidate, name) for name in SHARED_FIELDS} | other)


def _groups(candidates: Iterable[Candidate]) -> dict[tuple[int, str, str], list[Candidate]]:
    """Sort the candidates that can be raced by cut and engines."""
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
    """Order by measurement; what is only predicted comes behind, since predictions may be off all together."""
    return (False, candidate.measured_ms) if candidate.measured_ms is not None else (True, _predicted(candidate))


def _predicted(candidate: Candidate) -> float:
    assert candidate.predicted_ms is not None
    return candidate.predicted_ms
