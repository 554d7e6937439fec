"""What if: predictions for another machine or model, and what would change the advice, in words."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from audioaug.decide.predict import predict, threads_beside, worker_engines
from audioaug.decide.shortlist import placement_of
from audioaug.errors import UsageError, did_you_mean
from audioaug.records import Ceiling, Cell, LoaderCost, Report, StageCost
from audioaug.units import format_ms, format_rate, plural

KNOWN = ("cores", "step_ms", "batch_size")
CORES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
STEP_FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_WORKERS = 64
Cost = TypeVar("Cost", StageCost, LoaderCost)
CLOSE = 1.03


def parse(text: str) -> dict[str, float]:
    """Read ``cores=16,step_ms=12``; raise ``UsageError`` for what is unknown or no positive number."""
    values: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in KNOWN:
            raise UsageError(f"--what-if knows no {name!r}.", did_you_mean(name, KNOWN))
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = -1.0
        if not 0 < values[name] < math.inf:
            raise UsageError(f"--what-if {name}={value}: it must be a finite number above 0.")
    return values


def what_if(report: Report, values: dict[str, float]) -> tuple[str, ...]:
    """Predict the best cell of each placement where these facts were different."""
    asked = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    best = _best_of_each(_changed(report, values))
    if not best:
        return (f"With {asked}: nothing can be predicted, since not every stage was measured.",)
    return tuple(f"With {asked}, {cell.name} would take {format_ms(ms)} a step (predicted)." for ms, cell in best)


def grid(report: Report) -> dict[str, Any] | None:
    """Answer every combination of some cores, step times and batch sizes, for sliders to look up.

    Returns:
        ``axes``, each with its name, label, values and where it stands for this machine; and ``answers``: for each
        combination, the last axis fastest, a sentence for each placement. ``None`` where nothing can be predicted.
    """
    if report.ceiling is None or not _best_of_each(report):
        return None
    batch = report.workload.batch_size
    cores = sorted({*CORES, max(1, int(report.host.usable_cores))})
    steps = [report.ceiling.step_ms * factor for factor in STEP_FACTORS]
    batches = sorted({max(1, round(batch * factor)) for factor in BATCH_FACTORS})
    axes = (
        _axis("cores", "cores", cores, [str(value) for value in cores], max(1, int(report.host.usable_cores))),
        _axis(
            "step_ms",
            f"model step at batch size {batch}",
            steps,
            [format_ms(it) for it in steps],
            report.ceiling.step_ms,
        ),
        _axis("batch_size", "batch size", batches, [str(value) for value in batches], batch),
    )
    found = [_best_of_each(_changed(report, {"cores": core, "step_ms": step})) for core in cores for step in steps]
    answers = [_answers(best, size, size / batch) for best in found for size in batches]
    return {"axes": axes, "answers": answers}


def _axis(name: str, label: str, values: Sequence[float], texts: list[str], start: float) -> dict[str, Any]:
    return {"name": name, "label": label, "values": texts, "start": values.index(start)}


def _answers(best: list[tuple[float, Cell]], clips: int, factor: float) -> list[str]:
    """Return a sentence for each placement; all times grow in proportion, so each sum and bound of them does too."""
    times = [(ms * factor, cell) for ms, cell in best]
    return [f"{cell.name}: {format_ms(ms)} a step, {format_rate(clips / ms * 1e3)}" for ms, cell in times]


def _changed(report: Report, values: dict[str, float]) -> Report:
    """Return the report as it would be with these facts; a given step time is meant for the given batch."""
    if "batch_size" in values:
        report = _with_batch(report, values["batch_size"])
    if "cores" in values:
        report = _with_cores(report, values["cores"])
    if "step_ms" in values and report.ceiling is not None:
        report = replace(report, ceiling=_ceiling(report.ceiling, values["step_ms"]))
    return report


def _best_of_each(report: Report) -> list[tuple[float, Cell]]:
    """Return the best cell of each placement with its time, the fastest first."""
    if report.ceiling is None:
        return []
    workers = max(1, int(min(MOST_WORKERS, report.host.usable_cores)))
    best = [_best(report, kind, workers) for kind in ("cpu", "split", "gpu")]
    return sorted(filter(None, best), key=lambda pair: pair[0])


def _with_batch(report: Report, batch_size: float) -> Report:
    """Scale every time in proportion to the batch, as if nothing were shared between its examples."""
    factor = batch_size / report.workload.batch_size

    def scaled(cost: Cost) -> Cost:
        interval = None if cost.ci_ms is None else (cost.ci_ms[0] * factor, cost.ci_ms[1] * factor)
        ms = None if cost.ms_per_batch is None else cost.ms_per_batch * factor
        return replace(cost, ms_per_batch=ms, ci_ms=interval)

    return replace(
        report,
        stages=tuple(map(scaled, report.stages)),
        loader_costs=tuple(map(scaled, report.loader_costs)),
        ceiling=report.ceiling and _ceiling(report.ceiling, report.ceiling.step_ms * factor),
    )


def crossovers(report: Report) -> tuple[str, ...]:
    """Say from how many cores up running the whole chain in the workers would be as fast as anything (predicted)."""
    if report.ceiling is None or not report.host.has_gpu:
        return ()
    for cores in range(1, MOST_WORKERS + 1):
        machine = _with_cores(report, float(cores))
        ours, others = _best(machine, "cpu", cores), [_best(machine, kind, cores) for kind in ("split", "gpu")]
        rest = [found[0] for found in others if found]
        if ours and rest and ours[0] <= CLOSE * min(rest):
            return (f"All in the loader would be as fast as anything from {plural(cores, 'core')} up (predicted).",)
    return (f"All in the loader would be slower on any machine of up to {MOST_WORKERS} cores (predicted).",)


def _with_cores(report: Report, cores: float) -> Report:
    return replace(report, host=replace(report.host, usable_cores=cores, effective_cores=None))


def _best(report: Report, kind: str, most_workers: int) -> tuple[float, Cell] | None:
    ops = len(report.chain.ops)
    found = []
    for cut in report.chain.cuts:
        if placement_of(cut, ops) != kind:
            continue
        for engine, workers in product(worker_engines(report, cut), range(1, most_workers + 1)):
            threads = threads_beside(report, workers)
            cell = Cell(placement_of(cut, ops), cut, engine, num_workers=workers, threads=threads)
            prediction = predict(report, cell)
            if prediction is not None:
                found.append((prediction.ms, workers, cell))
    fastest = min(found, key=lambda item: (round(item[0], 2), item[1]), default=None)
    return None if fastest is None else (fastest[0], fastest[2])


def _ceiling(ceiling: Ceiling, step_ms: float) -> Ceiling:
    factor = step_ms / ceiling.step_ms
    return Ceiling(step_ms, (ceiling.ci_ms[0] * factor, ceiling.ci_ms[1] * factor), ceiling.clips_per_second / factor)
