"""Predict the step time of any candidate from what its stages cost alone, and beside each other.

The loader delivers a batch every L, the training process is done with one every D::

    C_k = decode + worker ops 1..k + collate          one worker's time for a batch, with its engine
    L   = loader rate for the workers, measured at both ends of the chain, in proportion to C_k
    D   = model + device ops k+1..n as they are built, on the candidate's threads, times what sharing the device costs, and
          the taking of a batch from workers, which on a GPU is done meanwhile
    T   = L + D without workers

Neither has the machine for itself. Where that was measured, D is kappa times longer while workers work, L lambda
times longer while the model trains, and both change places as the one waits for the other::

    workers wait   (lambda L <= kappa D):  T = lambda L + (1 - lambda L / kappa D) D
    training waits (lambda L >  kappa D):  T = kappa D + (1 - kappa D / lambda L) L

Where it was not, T = max(L, D), and without a GPU also (C_k + threads * D) / cores, the cores' total work.

These are averages; ``simulate`` adds the stalls that come of variance. Every stage enters as replicates, so each
prediction has an interval. All of this rises with every input.
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
"""Low, middle and high, in milliseconds."""

LEVEL = 0.9
"""Of the intervals."""

MODEL_ERROR = 0.08
"""How far off these formulas are where nothing disturbs: a standard deviation, as a share."""

LEAST_PREFETCH = 2
"""Torch's default: less would only save memory."""

PREFETCHES = (LEAST_PREFETCH, 4, 8)
SAME_STALL = 0.005
PREFETCH_REPLICATES = 9


@dataclass(frozen=True)
class Prediction:
    """A step's predicted time in milliseconds, its 90 % interval, and what bound_by it: "loader", "device" or "cores"."""

    ms: float
    ci_ms: Interval
    bound_by: str


@dataclass(frozen=True)
class Pace:
    """What the training process needs for a batch, and the time between two batches of the workers: averages (R,)."""

    step: Array
    batch: Array
    bound_by: str


def predict(report: Report, candidate: Candidate) -> Prediction | None:
    """Predict a candidate from the stages measured so far; ``None`` if a stage that it needs was not measured."""
    return predict_all(report, [candidate])[0]


def predict_all(report: Report, candidates: Sequence[Candidate]) -> list[Prediction | None]:
    """Predict candidates, those with workers by simulation."""
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
        _prediction(stages, times[place], paces[place].bound_by) if place in paces else None
        for place in range(len(candidates))
    ]


def _prediction(stages: Stages, times: Array, bound_by: str) -> Prediction:
    """Return the measured stages' prediction with the interval of all replicates, the formulas' own error included."""
    spread = math.hypot(MODEL_ERROR, stages.unsteadiness)
    others = times[1:] * np.exp(spread * stages.normal_R[:0:-1])  # backwards: not the order of the stages' replicates
    low, high = np.quantile(others, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    middle = float(times[0])
    return Prediction(middle, (min(middle, float(low)), max(middle, float(high))), bound_by)


def mean_ms(stages: Stages, candidate: Candidate) -> float | None:
    """Return a candidate's step time without what variance adds: quick, for comparing very many candidates."""
    found = pace(stages, candidate)
    if found is None:
        return None
    return float(found.step[0] + found.batch[0] if not candidate.num_workers else max(found.step[0], found.batch[0]))


def pace(stages: Stages, candidate: Candidate) -> Pace | None:
    """Return how fast both ends of a candidate are beside each other; without workers they take turns instead."""
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
    """Return the pace of both where it was measured how they slow each other down."""
    busy_step, busy_batch = kappa * step, slower * batch
    training_waits = busy_batch > busy_step
    shared = np.minimum(busy_step, busy_batch)
    remainder = 1 - shared / np.maximum(busy_step, busy_batch)
    total = shared + remainder * np.where(training_waits, batch, step)
    bound_by = "loader" if training_waits[0] else "device"
    return Pace(np.where(training_waits, busy_step, total), np.where(training_waits, total, busy_batch), bound_by)


def _without_contention(stages: Stages, candidate: Candidate, step: Array, batch: Array) -> Pace:
    """Return the pace of both as if they met only where there are too few cores."""
    host = stages.report.host
    bounds = {"loader": batch, "device": step}
    if not host.has_gpu:
        threads = candidate.threads or host.torch_threads
        bounds["cores"] = (stages.worker(candidate.cut, candidate.worker_engine) + threads * step) / host.cores
        batch = np.maximum(batch, bounds["cores"])
    return Pace(step, batch, max(bounds, key=lambda name: bounds[name][0]))


def _simulated(candidates: Sequence[Candidate], paces: Sequence[Pace], noise: Noise) -> Array:
    """Return the step times (K, R) of candidates with workers.

    Loaders were timed with the variance of their batches in them: what it costs a loader alone is taken out first.
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
    """Give each candidate with workers the least ``prefetch_factor`` whose stalls are within 0.5 % of the least."""
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
    """Return the candidates with their predicted times, where there are any."""
    return [
        candidate
        if found is None
        else replace(candidate, predicted_ms=found.ms, predicted_ci_ms=found.ci_ms, bound_by=found.bound_by)
        for candidate, found in zip(candidates, predict_all(report, candidates), strict=True)
    ]


def with_prediction(report: Report, candidate: Candidate) -> Candidate:
    """Return the candidate with its predicted time, if there is one."""
    return with_predictions(report, [candidate])[0]


def worker_ms(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> Triple:
    """Return what one worker takes for a batch with the chain cut there, piece by piece: decode, each op, collate."""
    parts = [_triple(stage) for stage in worker_stages(report, cut, engine)] or [(0.0, 0.0, 0.0)]
    low, middle, high = (math.fsum(column) for column in zip(*parts, strict=True))
    return low, middle, high


def worker_stages(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> list[StageCost]:
    """Return what a worker does with the chain cut there; audiomentations where the other engine has no build."""
    others = [stage for stage in report.stages if stage.where == "worker" and stage.op is None]
    found = (_stage(report.stages, op, engine) for op in range(cut))
    return [*others, *(stage for stage in found if stage is not None)]


def worker_engines(report: Report, cut: int, stages: Stages | None = None) -> list[WorkerEngine]:
    """Return the engines that may run the chain up to there in workers: ours only where it takes less of their time."""
    stages = stages or Stages(report, replicates=1)
    theirs, ours = stages.worker(cut, "audiomentations")[0], stages.worker(cut, "batched")[0]
    return ["audiomentations", "batched"] if ours < theirs else ["audiomentations"]


def threads_beside(report: Report, workers: int) -> int | None:
    """Return how many threads to leave the training process: one for each core that so many workers leave it.

    But no more than the ceiling was measured on, since more only made it slower. ``None``, as many as it has: with a
    GPU, or if there are cores for all.
    """
    usual = report.host.torch_threads
    if report.host.has_gpu:
        return None
    left = max(1, int(report.host.usable_cores) - workers) if workers else usual
    best = report.ceiling.threads if report.ceiling is not None else 0
    count = min(left, best or usual)
    return count if count < usual else None


def best_threads(report: Report) -> int:
    """Return on how many threads the step is fastest; as many as torch has unless fewer are faster beyond doubt."""
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
    """Return the training process's time for a batch with nothing beside it, with its interval."""
    return _interval(
        Stages(report).device(candidate.cut, candidate.device_engine, candidate.threads or report.host.torch_threads)
    )


def loader_ms(report: Report, candidate: Candidate) -> Triple | None:
    """Return the time between batches from the loader alone, at that cut, with these workers, with its interval."""
    return _interval(Stages(report).loader(candidate.cut, candidate.worker_engine, candidate.num_workers))


def _interval(times: Array | None) -> Triple | None:
    if times is None:
        return None
    low, high = np.quantile(times, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(times[0]), float(high)


def _stage(stages: Iterable[StageCost], op: int, engine: str) -> StageCost | None:
    """Return an op's cost in a worker with an engine, or with audiomentations where that has nothing in its place."""
    found = {stage.engine: stage for stage in stages if stage.where == "worker" and stage.op == op}
    return found.get(engine) or found.get("audiomentations")


def _triple(stage: StageCost) -> Triple:
    if stage.ms_per_batch is None:
        return 0.0, 0.0, 0.0
    low, high = stage.ci_ms or (stage.ms_per_batch, stage.ms_per_batch)
    return low, stage.ms_per_batch, high
