"""Diagnose: the first cause of today's step time, as a stable id and a sentence with a number."""

from audioaug.decide.predict import worker_ms, worker_stages
from audioaug.records import Cell, Notice, Report, StageCost
from audioaug.units import format_ms, format_percent, plural

NOT_THE_BOTTLENECK = 0.02
"""A stall of at most this share is not worth anybody's time."""


def stall(report: Report, step_ms: float) -> float:
    """Return the share of a step that the model alone would not need."""
    assert report.ceiling is not None
    return max(0.0, 1.0 - report.ceiling.step_ms / step_ms)


def diagnose(report: Report, current: Cell, best: Cell | None = None) -> Notice:
    """Say what bounds the user's own configuration; ``best`` is the fastest cell that was raced."""
    assert report.ceiling is not None and current.measured_ms is not None
    waiting = stall(report, current.measured_ms)
    if waiting <= NOT_THE_BOTTLENECK:
        return Notice(
            "model_bound",
            f"The model's own step takes {format_ms(report.ceiling.step_ms)} of {format_ms(current.measured_ms)}: "
            f"the most that any placement could gain is {format_percent(waiting)}.",
        )
    same = best is not None and (best.cut, best.worker_engine) == (current.cut, current.worker_engine)
    if best is not None and same and current.num_workers and best.threads != current.threads:
        return _too_many_threads(report, current, best)
    if best is not None and same and best.num_workers > current.num_workers:
        return _too_few_workers(report, current, best)
    return _where_workers_spend(report, current, best)


def _too_many_threads(report: Report, current: Cell, best: Cell) -> Notice:
    assert current.measured_ms is not None and best.measured_ms is not None
    count = current.threads or report.host.torch_threads
    return Notice(
        "thread_oversubscription",
        f"{plural(current.num_workers, 'worker')} and {plural(count, 'thread')} of torch share "
        f"{plural(int(report.host.usable_cores), 'core')} and wait for each other: a step takes "
        f"{format_ms(current.measured_ms)}, with {best.name} {format_ms(best.measured_ms)}.",
    )


def _too_few_workers(report: Report, current: Cell, best: Cell) -> Notice:
    assert report.ceiling is not None
    costs = {cost.num_workers: cost.ms_per_batch for cost in report.loader_costs if cost.cut == current.cut}
    ours, theirs = costs.get(current.num_workers), costs.get(best.num_workers)
    today = plural(current.num_workers, "worker") if current.num_workers else "The training process itself"
    rates = ""
    if ours is not None and theirs is not None:
        verb = "take" if current.num_workers > 1 else "takes"
        then = f"{plural(best.num_workers, 'worker')} {'take' if best.num_workers > 1 else 'takes'} {format_ms(theirs)}"
        rates = f" {verb} {format_ms(ours)} to load a batch, {then};"
    return Notice("too_few_workers", f"{today}{rates} the model needs one every {format_ms(report.ceiling.step_ms)}.")


def _where_workers_spend(report: Report, current: Cell, best: Cell | None) -> Notice:
    """Name the dearest stage of one worker's batch."""
    total = worker_ms(report, current.cut, current.worker_engine)[1]
    stages = worker_stages(report, current.cut, current.worker_engine)
    dearest = max(stages, key=lambda stage: stage.ms_per_batch or 0.0, default=None)
    if dearest is None or not dearest.ms_per_batch:
        assert current.measured_ms is not None
        waiting = format_percent(stall(report, current.measured_ms))
        return Notice("unverified", f"{waiting} of a step is more than the model alone needs; why was not measured.")
    share = format_percent(dearest.ms_per_batch / total)
    if dearest.op is None:
        cause = {"decode": "decode_bound", "collate": "transport_bound"}.get(dearest.name, "decode_bound")
        return Notice(
            cause, f"{share} of a worker's time goes into {dearest.name} ({format_ms(dearest.ms_per_batch)} a batch)."
        )
    return Notice(
        "augment_cpu_bound", f"{share} of a worker's time goes into {dearest.name}{_elsewhere(report, dearest, best)}."
    )


def _elsewhere(report: Report, stage: StageCost, best: Cell | None) -> str:
    """Say what the same op costs where the best cell runs it: on whole batches in the worker, or on the device."""
    assert report.ceiling is not None
    there = worker_stages(report, best.cut, best.worker_engine) if best is not None else []
    ours = next((other.ms_per_batch for other in there if (other.op, other.engine) == (stage.op, "batched")), None)
    if ours and stage.engine != "batched":
        return f" ({format_ms(stage.ms_per_batch or 0.0)} a batch); batched, it takes {format_ms(ours)} there"
    twins = [
        other
        for other in report.stages
        if other.where == "device" and other.op == stage.op and other.engine == "batched" and other.ms_per_batch
    ]
    if not twins or twins[0].ms_per_batch is None or stage.ms_per_batch is None:
        return f" ({format_ms(stage.ms_per_batch or 0.0)} a batch), which has no device build" if not twins else ""
    where = "the GPU" if report.host.has_gpu else "whole batches in the training process"
    return (
        f" ({format_ms(stage.ms_per_batch)} a batch); on {where} it costs {format_ms(twins[0].ms_per_batch)} of a "
        f"{format_ms(report.ceiling.step_ms + twins[0].ms_per_batch)} step"
    )
