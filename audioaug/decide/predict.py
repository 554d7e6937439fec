"""Predict the step time of any candidate from the costs of its stages, alone and together.

The loader delivers a batch every L, the training process finishes one every D::

    C_k = decode + worker ops 1..k + collate          one worker's time for a batch, with its engine
    L   = loader rate for the workers, measured at both ends of the chain, in proportion to C_k
    D   = model + device ops k+1..n as built, with the candidate's threads, plus the cost of sharing the device, and
          receiving a batch from workers (hidden on a GPU)
    T   = L + D without workers

They share the machine. If contention was measured, D is kappa times longer while workers run, and L is lambda times
longer while the model trains; which one waits for the other decides::

    workers wait   (lambda L <= kappa D):  T = lambda L + (1 - lambda L / kappa D) D
    training waits (lambda L >  kappa D):  T = kappa D + (1 - kappa D / lambda L) L

Otherwise T = max(L, D), and without a GPU at least (C_k + threads * D) / cores, the total work of the cores.

These are averages; ``simulate`` adds stalls due to variance. Every stage enters as replicates, so each prediction has
an interval. Predictions are monotonic in every input.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audioaug.decide.simulate import Noise, simulate
from audioaug.decide.stages import REPLICATES, Array, Stages
from audioaug.records import Candidate, Interval, Report, StageCost, WorkerEngine
from audioaug.units import plural

Triple = tuple[float, float, float]
"""Low, median and high, in milliseconds."""

LEVEL = 0.9
"""Level of the intervals."""

MODEL_ERROR = 0.08
"""Relative error of these formulas without disturbance (standard deviation)."""

LEAST_PREFETCH = 2
"""Torch's default; a smaller value would only save memory."""

PREFETCHES = (LEAST_PREFETCH, 4, 8)
SAME_STALL = 0.005
PREFETCH_REPLICATES = 9


@dataclass(frozen=True)
class Prediction:
    """A predicted step time in milliseconds, its 90 % interval, and what bounds it: "loader", "device" or "cores"."""

    ms: float
    ci_ms: Interval
    bound_by: str


@dataclass(frozen=True)
class Pace:
    """The training process's time for a batch, and the time between two batches of the workers: averages (R,)."""

    step: Array
    batch: Array
    bound_by: str


def predict(report: Report, candidate: Candidate) -> Prediction | None:
    """Predict a candidate from the measured stages; ``None`` if a required stage was not measured."""
    return predict_all(report, [candidate])[0]


def predict_all(report: Report, candidates: Sequence[Candidate]) -> list[Prediction | None]:
    """Predict several candidates; those with workers by simulation."""
    stages = Stages(report)
    noise = Noise(*stages.noise_samples, REPLICATES)
    paces = {
        place: found for place, candidate in enumerate(candidates) if (found := pace(stages, candidate)) is not None
    }
    times = {place: found.step + found.batch for place, found in paces.items()}
    fed = [place for place in paces if candidates[place].num_workers]
    if fed:
        times |= dict(
            zip(fed, _simulated([candidates[it] for it in fed], [paces[it] for it in fed], noise), strict=True)
        )
    return [
        as_prediction(stages, times[place], paces[place].bound_by) if place in paces else None
        for place in range(len(candidates))
    ]


def as_prediction(stages: Stages, times: Array, bound_by: str) -> Prediction:
    """Return the prediction with its interval over all replicates, including the error of the formulas."""
    spread = math.hypot(MODEL_ERROR, stages.unsteadiness)
    others = times[1:] * np.exp(spread * stages.normal_R[:0:-1])  # reversed: independent of the stages' replicates
    low, high = np.quantile(others, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    middle = float(times[0])
    return Prediction(middle, (min(middle, float(low)), max(middle, float(high))), bound_by)


def mean_ms(stages: Stages, candidate: Candidate) -> float | None:
    """Return a candidate's step time without the effect of variance; fast enough for many candidates."""
    found = pace(stages, candidate)
    if found is None:
        return None
    return float(found.step[0] + found.batch[0] if not candidate.num_workers else max(found.step[0], found.batch[0]))


def pace(stages: Stages, candidate: Candidate) -> Pace | None:
    """Return the pace of loader and training process; without workers they alternate."""
    threads = candidate.threads or stages.report.host.torch_threads
    batch = stages.loader(candidate.cut, candidate.worker_engine, candidate.num_workers)
    step = stages.device(candidate.cut, candidate.device_engine, threads)
    if batch is None or step is None:
        return None
    if candidate.num_workers == 0:
        return Pace(step, batch, "loader" if batch[0] > step[0] else "device")
    receive = stages.receive(candidate.cut, candidate.worker_engine, candidate.num_workers)
    step = np.maximum(step, receive) if stages.report.host.has_gpu else step + receive
    contention = stages.contention(candidate.worker_engine, candidate.num_workers, threads)
    return (
        _without_contention(stages, candidate, step, batch)
        if contention is None
        else _with_contention(step, batch, *contention)
    )


def _with_contention(step: Array, batch: Array, kappa: Array, slower: Array) -> Pace:
    """Return the pace of both with measured contention."""
    busy_step, busy_batch = kappa * step, slower * batch
    training_waits = busy_batch > busy_step
    shared = np.minimum(busy_step, busy_batch)
    remainder = 1 - shared / np.maximum(busy_step, busy_batch)
    total = shared + remainder * np.where(training_waits, batch, step)
    bound_by = "loader" if training_waits[0] else "device"
    return Pace(np.where(training_waits, busy_step, total), np.where(training_waits, total, busy_batch), bound_by)


def _without_contention(stages: Stages, candidate: Candidate, step: Array, batch: Array) -> Pace:
    """Return the pace of both without measured contention: they share only the cores."""
    host = stages.report.host
    bounds = {"loader": batch, "device": step}
    if not host.has_gpu:
        threads = candidate.threads or host.torch_threads
        bounds["cores"] = (stages.worker(candidate.cut, candidate.worker_engine) + threads * step) / host.cores
        batch = np.maximum(batch, bounds["cores"])
    return Pace(step, batch, max(bounds, key=lambda name: bounds[name][0]))


def _simulated(candidates: Sequence[Candidate], paces: Sequence[Pace], noise: Noise) -> Array:
    """Return the step times (K, R) of candidates with workers.

    Loader timings already include the variance of batches, so its effect on a loader alone is divided out first.
    """
    workers_K = np.array([candidate.num_workers for candidate in candidates])
    counts, place_K = np.unique(workers_K, return_inverse=True)
    ones = np.ones((len(counts), noise.step_NR.shape[1]))
    alone = simulate(0 * ones, ones, counts, np.full(len(counts), LEAST_PREFETCH), noise)
    return simulate(
        np.stack([it.step for it in paces]),
        np.stack([it.batch for it in paces]) / alone[place_K],
        workers_K,
        np.array([candidate.prefetch_factor or LEAST_PREFETCH for candidate in candidates]),
        noise,
    )


def with_prefetch(report: Report, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Set the smallest ``prefetch_factor`` whose step time is within 0.5 % of the best, for candidates with workers."""
    stages = Stages(report, replicates=1)
    noise = Noise(*stages.noise_samples, PREFETCH_REPLICATES)
    paces = [pace(stages, candidate) if candidate.num_workers else None for candidate in candidates]
    fed = [(candidate, found) for candidate, found in zip(candidates, paces, strict=True) if found is not None]
    if not fed:
        return list(candidates)
    wide = [_repeated(found, PREFETCH_REPLICATES) for _, found in fed]
    tried = [[replace(candidate, prefetch_factor=count) for candidate, _ in fed] for count in PREFETCHES]
    times_PK = np.stack([_simulated(them, wide, noise).mean(axis=1) for them in tried])
    chosen: NDArray[np.int64] = np.argmax(times_PK <= (1 + SAME_STALL) * times_PK.min(axis=0), axis=0)
    better = iter(PREFETCHES[place] if place else None for place in chosen)
    return [
        candidate if it is None else replace(candidate, prefetch_factor=next(better))
        for candidate, it in zip(candidates, paces, strict=True)
    ]


def _repeated(found: Pace, times: int) -> Pace:
    return Pace(np.repeat(found.step, times), np.repeat(found.batch, times), found.bound_by)


def with_predictions(report: Report, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with their predicted times, if available."""
    return [
        candidate
        if found is None
        else replace(candidate, predicted_ms=found.ms, predicted_ci_ms=found.ci_ms, bound_by=found.bound_by)
        for candidate, found in zip(candidates, predict_all(report, candidates), strict=True)
    ]


def with_prediction(report: Report, candidate: Candidate) -> Candidate:
    """Return the candidate with its predicted time, if available."""
    return with_predictions(report, [candidate])[0]


def worker_ms(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> Triple:
    """Return one worker's time for a batch at a cut: the sum of decode, ops and collate."""
    parts = [_triple(stage) for stage in worker_stages(report, cut, engine)] or [(0.0, 0.0, 0.0)]
    low, middle, high = (math.fsum(column) for column in zip(*parts, strict=True))
    return low, middle, high


def worker_stages(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> list[StageCost]:
    """Return the stages of a worker at a cut; audiomentations where the other engine has no build."""
    others = [stage for stage in report.stages if stage.where == "worker" and stage.op is None]
    found = (_stage(report.stages, op, engine) for op in range(cut))
    return [*others, *(stage for stage in found if stage is not None)]


def worker_engines(report: Report, cut: int, stages: Stages | None = None) -> list[WorkerEngine]:
    """Return the worker engines to consider at a cut: ours only if it is faster."""
    stages = stages or Stages(report, replicates=1)
    theirs, ours = stages.worker(cut, "audiomentations")[0], stages.worker(cut, "batched")[0]
    return ["audiomentations", "batched"] if ours < theirs else ["audiomentations"]


def threads_beside(report: Report, workers: int) -> int | None:
    """Return the number of threads of the training process beside workers, if any: one for each remaining core.

    At most as many as the ceiling was measured with, since more were slower. ``None`` (unchanged) with a GPU, or if
    there are enough cores.
    """
    usual = report.host.torch_threads
    if report.host.has_gpu:
        return None
    left = max(1, int(report.host.usable_cores) - workers)
    best = report.ceiling.threads if report.ceiling is not None else 0
    count = min(left, best or usual)
    return count if count < usual else None


def best_threads(report: Report) -> int:
    """Return the fastest number of threads for the step; torch's default unless fewer are significantly faster."""
    steps = {stage.engine: stage for stage in report.stages if stage.where == "model" and stage.ci_ms}
    usual = report.host.torch_threads
    counts = [count for count in range(1, usual) if plural(count, "thread") in steps]
    best = min(counts, key=lambda count: steps[plural(count, "thread")].ms_per_batch or math.inf, default=usual)
    if best == usual or plural(usual, "thread") not in steps:
        return usual
    few, all_ = steps[plural(best, "thread")].ci_ms, steps[plural(usual, "thread")].ci_ms
    assert few is not None and all_ is not None
    return best if few[1] < all_[0] else usual


def device_ms(report: Report, candidate: Candidate) -> Triple | None:
    """Return the training process's time for a batch alone, with its interval."""
    return _interval(
        Stages(report).device(candidate.cut, candidate.device_engine, candidate.threads or report.host.torch_threads)
    )


def loader_ms(report: Report, candidate: Candidate) -> Triple | None:
    """Return the time between batches of the candidate's loader alone, with its interval."""
    return _interval(Stages(report).loader(candidate.cut, candidate.worker_engine, candidate.num_workers))


def _interval(times: Array | None) -> Triple | None:
    if times is None:
        return None
    low, high = np.quantile(times, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(times[0]), float(high)


def _stage(stages: Iterable[StageCost], op: int, engine: str) -> StageCost | None:
    """Return an op's cost in a worker with an engine, else with audiomentations."""
    found = {stage.engine: stage for stage in stages if stage.where == "worker" and stage.op == op}
    return found.get(engine) or found.get("audiomentations")


def _triple(stage: StageCost) -> Triple:
    if stage.ms_per_batch is None:
        return 0.0, 0.0, 0.0
    low, high = stage.ci_ms or (stage.ms_per_batch, stage.ms_per_batch)
    return low, stage.ms_per_batch, high
