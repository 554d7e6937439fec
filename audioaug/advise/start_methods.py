"""Start methods (``--also spawn,forkserver``): what it costs to start the workers of a plan in other ways."""

import multiprocessing
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from audioaug.advise.limits import why_unpicklable
from audioaug.advise.racing import Racer
from audioaug.advise.target import Target
from audioaug.advise.worker_probe import start_and_gap
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.records import Cell, Variant
from audioaug.units import Seconds

StartMethod = Literal["fork", "spawn", "forkserver"]
METHODS: tuple[StartMethod, ...] = typing.get_args(StartMethod)


def race_starts(
    racer: Racer, cell: Cell, usual: str, methods: Sequence[StartMethod], seconds: Seconds, tick: Callable[..., None]
) -> tuple[Variant, ...]:
    """Race a measured plan against itself with its workers started in these ways; ``usual`` is how they are anyway."""
    assert cell.measured_ms is not None
    size, now_ms = racer.target.batch_size, cell.measured_ms
    reasons = {method: _why_not(racer.target, cell, usual, method) for method in methods}
    twins = {method: replace(cell, start_method=method) for method in methods if not reasons[method]}
    found = _race(racer, [cell, *twins.values()], now_ms / 1e3, seconds, tick) if twins else {}

    def variant(method: StartMethod) -> Variant:
        known = Variant(f"workers by {method}", size, now_ms, size, reason=reasons[method], changes_training=False)
        if method not in twins:
            return known
        name = twins[method].name
        if name not in found:
            return replace(known, reason=racer.failed.get(name) or racer.failed[cell.name])
        ratio, start_seconds = found[name]
        return replace(
            known,
            step_ms=now_ms * ratio.value,
            ci_ms=(now_ms * ratio.low, now_ms * ratio.high),
            start_seconds=start_seconds,
            now_start_seconds=found[cell.name][1],
        )

    return tuple(variant(method) for method in methods)


def _race(
    racer: Racer, arms: Sequence[Cell], expected: Seconds, seconds: Seconds, tick: Callable[..., None]
) -> dict[str, tuple[Ratio, Seconds]]:
    """Return by name how an arm compares with the first, and its seconds to the first batch; nothing if that failed."""
    found = racer.run(arms, {arm.name: expected for arm in arms}, seconds, tick)
    ran = [arm for arm in arms if arm.name in found] if arms[0].name in found else []
    return {
        arm.name: (
            paired_ratio(found[arm.name], found[arms[0].name]),
            start_and_gap(racer.target, arm, racer.clock)[0],
        )
        for arm in ran
    }


def _why_not(target: Target, cell: Cell, usual: str, method: StartMethod) -> str:
    if not cell.num_workers:
        return "the plan has no workers."
    if method == (cell.start_method or usual):
        return "that is how they are started anyway."
    if method not in multiprocessing.get_all_start_methods():
        return "this system has no such way."
    unpicklable = "" if method == "fork" else why_unpicklable(target)
    return f"{unpicklable}." if unpicklable else ""
