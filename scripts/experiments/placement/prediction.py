"""The map: step times that ``audioaug.decide.predict`` gives for other models, chains, workers and cores."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from audioaug.decide.predict import predict
from audioaug.records import Ceiling, Cell, LoaderCost, Report, StageCost
from experiments.placement.target import cell_at


def scaled(report: Report, chain_factor: float, step_ms: float) -> Report:
    """Return the report as if the chain were so many times as dear, and the model's own step took that long."""
    assert report.ceiling is not None
    first = report.chain.device_from
    bare = {cost.num_workers: cost for cost in report.loader_costs if cost.cut == first}

    def loader(cost: LoaderCost) -> LoaderCost:
        base = bare[cost.num_workers].ms_per_batch
        low, middle, high = (
            max(0.0, base + chain_factor * (ms - base)) for ms in (cost.ci_ms[0], cost.ms_per_batch, cost.ci_ms[1])
        )
        return cost if cost.cut == first else replace(cost, ms_per_batch=middle, ci_ms=(low, high))

    def stage(cost: StageCost) -> StageCost:
        if cost.op is None or cost.ms_per_batch is None or cost.ci_ms is None:
            return cost
        low, high = cost.ci_ms
        ci_ms = (low * chain_factor, high * chain_factor)
        return replace(cost, ms_per_batch=cost.ms_per_batch * chain_factor, ci_ms=ci_ms)

    share = step_ms / report.ceiling.step_ms
    low, high = report.ceiling.ci_ms
    return replace(
        report,
        ceiling=Ceiling(step_ms, (low * share, high * share), report.ceiling.clips_per_second / share),
        stages=tuple(map(stage, report.stages)),
        loader_costs=tuple(map(loader, report.loader_costs)),
    )


def best_ms(report: Report, workers: int) -> dict[str, float]:
    """Return the best predicted step time of each placement ("cpu", "split", "gpu") with so many workers."""
    best = dict.fromkeys(("cpu", "split", "gpu"), inf)
    for cell in cells_of(report, [workers]):
        found = predict(report, cell)
        if found is not None:
            best[cell.placement] = min(best[cell.placement], found.ms)
    return best


def predicted_map(
    report: Report, workers: int, steps_ms: Sequence[float], factors: Sequence[float], cores: float | None = None
) -> dict[str, np.ndarray]:
    """Return predicted step times in milliseconds by placement, one row a chain factor, one column a model step.

    With ``cores`` they are for a machine that has so many free ones.
    """
    if cores is not None:
        report = replace(report, host=replace(report.host, usable_cores=cores, effective_cores=None))
    grid = [[best_ms(scaled(report, factor, step_ms), workers) for step_ms in steps_ms] for factor in factors]
    return {name: np.array([[best[name] for best in row] for row in grid]) for name in ("cpu", "split", "gpu")}


def cells_of(report: Report, workers: Sequence[int]) -> list[Cell]:
    """Return every cut with each number of workers."""
    cuts = range(report.chain.device_from, len(report.chain.ops) + 1)
    return [cell_at(report, cut, count) for cut in cuts for count in workers]
