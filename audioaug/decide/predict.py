"""Predict the step time of any cell from what its stages cost alone.

The loader delivers a batch every L, the device finishes one every D, and the slower of the two sets the pace::

    C_k = decode + worker ops 1..k + collate          one worker's time for a batch, with its engine
    L   = loader rate for the workers, measured at both ends of the chain (with audiomentations), in proportion to C_k
    D   = model + device ops k+1..n + exposed copy    times what the model takes longer on fewer threads
    T   = max(L, D)                                   without workers: L + D

Without a GPU the model trains on the cores that the workers use, so the cores' total work is a third bound:
(C_k + threads * D) / cores. What threads lose that share cores with workers is only measured, not predicted. Every time
enters with its interval; all formulas rise with every input, so the low ends give the low end and the high ends the
high end.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from audioaug.records import Cell, Interval, LoaderCost, Report, StageCost, Where, WorkerEngine
from audioaug.units import plural

Triple = tuple[float, float, float]
"""Low, middle and high, in milliseconds."""

ZERO: Triple = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Prediction:
    """A step's predicted time in milliseconds, its interval, and what binds it: "loader", "device" or "cores"."""

    ms: float
    ci_ms: Interval
    binds: str


def predict(report: Report, cell: Cell) -> Prediction | None:
    """Predict a cell from the stages measured so far; ``None`` if a stage that it needs was not measured."""
    loader, device = loader_ms(report, cell), device_ms(report, cell)
    if loader is None or device is None:
        return None
    bounds = {"loader": loader, "device": device}
    if cell.num_workers == 0:
        total = _sum((loader, device))
        return Prediction(total[1], (total[0], total[2]), "loader" if loader[1] > device[1] else "device")
    if not report.host.has_gpu:
        threads = cell.threads or report.host.torch_threads
        work = _sum((worker_ms(report, cell.cut, cell.worker_engine), _scale(device, threads)))
        bounds["cores"] = _scale(work, 1 / report.host.cores)
    low, middle, high = (max(bound[end] for bound in bounds.values()) for end in range(3))
    binds = max(bounds, key=lambda name: bounds[name][1])
    return Prediction(middle, (low, high), binds)


def worker_ms(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> Triple:
    """Return one worker's time for a batch with the chain cut there: decode, ops and collate."""
    return _sum(_triple(stage) for stage in worker_stages(report, cut, engine))


def worker_stages(report: Report, cut: int, engine: WorkerEngine = "audiomentations") -> list[StageCost]:
    """Return what a worker does with the chain cut there; audiomentations where the other engine has no build."""
    rest = [stage for stage in report.stages if stage.where == "worker" and stage.op is None]
    found = (_stage(report.stages, "worker", op, engine, "audiomentations") for op in range(cut))
    return [*rest, *(stage for stage in found if stage is not None)]


def worker_engines(report: Report, cut: int) -> list[WorkerEngine]:
    """Return the engines that may run the chain up to there in workers: ours only where it takes less of their time."""
    theirs, ours = worker_ms(report, cut)[1], worker_ms(report, cut, "batched")[1]
    return ["audiomentations", "batched"] if ours < theirs else ["audiomentations"]


def threads_beside(report: Report, workers: int) -> int | None:
    """Return how many threads to leave the training process: one for each core that so many workers leave it.

    ``None``, as many as it has: with a GPU, without workers, or if they do not outnumber these cores.
    """
    left = max(1, int(report.host.usable_cores) - workers)
    return left if workers and not report.host.has_gpu and left < report.host.torch_threads else None


def device_ms(report: Report, cell: Cell) -> Triple | None:
    """Return the training process's time for a batch: model, device ops, and the copy that cannot hide."""
    if report.ceiling is None:
        return None
    ceiling = (report.ceiling.ci_ms[0], report.ceiling.step_ms, report.ceiling.ci_ms[1])
    parts = [ceiling]
    for op in range(cell.cut, len(report.chain.ops)):
        stage = _stage(report.stages, "device", op, cell.device_engine, "batched")
        if stage is None or stage.ms_per_batch is None:
            return None
        parts.append(_triple(stage))
    return _scale(_sum(parts), 1.0 if cell.threads is None else _slowdown(report, cell.threads))


def _slowdown(report: Report, threads: int) -> float:
    """Return how many times longer the model takes on so many threads; where that was not measured, the most."""
    usual = report.host.torch_threads
    steps = {stage.engine: stage.ms_per_batch for stage in report.stages if stage.where == "model"}
    ours, theirs = steps.get(plural(usual, "thread")), steps.get(plural(threads, "thread"))
    return theirs / ours if ours and theirs else usual / threads


def loader_ms(report: Report, cell: Cell) -> Triple | None:
    """Return the time between batches from the loader alone, at that cut, with these workers."""
    first, last = report.chain.cuts[0], report.chain.cuts[-1]
    ends = [_rate(report.loader_costs, cut, cell.num_workers) for cut in (first, last)]
    if ends[0] is None or ends[1] is None:
        return None
    cheap, dear = (worker_ms(report, cut)[1] for cut in (first, last))
    here = worker_ms(report, cell.cut, cell.worker_engine)[1]
    share = (here - cheap) / (dear - cheap) if dear > cheap else 0.0
    low, middle, high = (a + share * (b - a) for a, b in zip(ends[0], ends[1], strict=True))
    return low, middle, high


def with_prediction(report: Report, cell: Cell) -> Cell:
    """Return the cell with its predicted time, if there is one."""
    found = predict(report, cell)
    return cell if found is None else replace(cell, predicted_ms=found.ms, predicted_ci_ms=found.ci_ms)


def _stage(stages: Iterable[StageCost], where: Where, op: int, engine: str, otherwise: str) -> StageCost | None:
    """Return an op's cost there with an engine, or with the other one where that has nothing in its place."""
    found = {stage.engine: stage for stage in stages if stage.where == where and stage.op == op}
    return found.get(engine) or found.get(otherwise)


def _rate(rates: Iterable[LoaderCost], cut: int, workers: int) -> Triple | None:
    """Return the measured rate for that many workers, or one between (beyond) the nearest counts that were measured.

    Between two counts the time of one batch in one worker, w * L(w), is taken to change evenly; beyond, to stay.
    """
    known = {rate.num_workers: rate for rate in rates if rate.cut == cut}
    if workers in known:
        rate = known[workers]
        return rate.ci_ms[0], rate.ms_per_batch, rate.ci_ms[1]
    counts = sorted(count for count in known if count > 0)
    if not counts or workers == 0:
        return None
    below = max((count for count in counts if count < workers), default=counts[0])
    above = min((count for count in counts if count > workers), default=counts[-1])
    share = 0.0 if above == below else (workers - below) / (above - below)
    ends = [
        _scale((k.ci_ms[0], k.ms_per_batch, k.ci_ms[1]), k.num_workers / workers) for k in (known[below], known[above])
    ]
    low, middle, high = (a + share * (b - a) for a, b in zip(*ends, strict=True))
    return low, middle, high


def _triple(stage: StageCost) -> Triple:
    if stage.ms_per_batch is None:
        return ZERO
    low, high = stage.ci_ms or (stage.ms_per_batch, stage.ms_per_batch)
    return low, stage.ms_per_batch, high


def _sum(parts: Iterable[Triple]) -> Triple:
    columns = list(zip(*parts, strict=True)) or [(0.0,)] * 3
    return math.fsum(columns[0]), math.fsum(columns[1]), math.fsum(columns[2])


def _scale(part: Triple, factor: float) -> Triple:
    return part[0] * factor, part[1] * factor, part[2] * factor
