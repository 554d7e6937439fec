"""Start methods (``--also spawn,forkserver``): what it costs to start the workers of a plan in other ways."""

import multiprocessing
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from audioaug.advise.limits import why_unpicklable
from audioaug.advise.racing import Racer
from audioaug.advise.training_job import TrainingJob
from audioaug.advise.worker_probe import start_and_gap
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.records import Candidate, Variant
from audioaug.units import Seconds

StartMethod = Literal["fork", "spawn", "forkserver"]
METHODS: tuple[StartMethod, ...] = typing.get_args(StartMethod)


def race_starts(
    racer: Racer,
    candidate: Candidate,
    usual: str,
    methods: Sequence[StartMethod],
    seconds: Seconds,
    tick: Callable[..., None],
) -> tuple[Variant, ...]:
    """Race a measured plan against itself with its workers started in these ways; ``usual`` is how they are anyway."""
    assert candidate.measured_ms is not None
    size, now_ms = racer.job.batch_size, candidate.measured_ms
    reasons = {method: _why_not(racer.job, candidate, usual, method) for method in methods}
    twins = {method: replace(candidate, start_method=method) for method in methods if not reasons[method]}
    found = _race(racer, [candidate, *twins.values()], now_ms / 1e3, seconds, tick) if twins else {}

    def variant(method: StartMethod) -> Variant:
        known = Variant(f"workers by {method}", size, now_ms, size, reason=reasons[method], changes_training=False)
        if method not in twins:
            return known
        name = twins[method].name
        if name not in found:
            return replace(known, reason=racer.failed.get(name) or racer.failed[candidate.name])
        ratio, start_seconds = found[name]
        return replace(
            known,
            step_ms=now_ms * ratio.value,
            ci_ms=(now_ms * ratio.low, now_ms * ratio.high),
            start_seconds=start_seconds,
            now_start_seconds=found[candidate.name][1],
        )

    return tuple(variant(method) for method in methods)


def _race(
    racer: Racer, candidates: Sequence[Candidate], expected: Seconds, seconds: Seconds, tick: Callable[..., None]
) -> dict[str, tuple[Ratio, Seconds]]:
    """Return by name how an candidate compares with the first, and its seconds to the first batch; nothing if that failed."""
    found = racer.run(candidates, {candidate.name: expected for candidate in candidates}, seconds, tick)
    ran = [candidate for candidate in candidates if candidate.name in found] if candidates[0].name in found else []
    return {
        candidate.name: (
            paired_ratio(found[candidate.name], found[candidates[0].name]),
            start_and_gap(racer.job, candidate, racer.clock)[0],
        )
        for candidate in ran
    }


def _why_not(job: TrainingJob, candidate: Candidate, usual: str, method: StartMethod) -> str:
    if not candidate.num_workers:
        return "the plan has no workers."
    if method == (candidate.start_method or usual):
        return "that is how they are started anyway."
    if method not in multiprocessing.get_all_start_methods():
        return "this system has no such way."
    unpicklable = "" if method == "fork" else why_unpicklable(job)
    return f"{unpicklable}." if unpicklable else ""
