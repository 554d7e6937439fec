"""Sliders: every candidate's step time for other numbers of cores, other models and other batch sizes."""

from collections.abc import Sequence
from itertools import chain, product
from typing import Any

from audioaug.decide.what_if import best_of_each_placement, changed, times_elsewhere
from audioaug.records import Report
from audioaug.units import format_ms

CORES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
STEP_FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def grid(report: Report) -> dict[str, Any] | None:
    """Predict every candidate for every combination of some numbers of cores and step times.

    These are the ``times_elsewhere`` of the report's candidates and, with other cores, of the best of each placement.

    Returns: ``axes``, each with its name, label, values and the index for this machine: cores, the model's step, and
        the batch size, with which all times scale; ``candidates``: their names; ``times``: for each combination of
        cores and step, the step last, each candidate's step time in milliseconds, ``None`` if it is not shown.
        ``None`` if nothing can be predicted.
    """
    if report.ceiling is None or not best_of_each_placement(report):
        return None
    batch, step_ms, now = report.workload.batch_size, report.ceiling.step_ms, report.host.usable_cores
    cores, steps = sorted({*CORES, now}), [step_ms * factor for factor in STEP_FACTORS]
    batches = sorted({max(1, round(batch * factor)) for factor in BATCH_FACTORS})
    axes = (
        _axis("cores", "cores", cores, [f"{value:g}" for value in cores], now),
        _axis("step_ms", f"model step at batch size {batch}", steps, [format_ms(it) for it in steps], step_ms),
        _axis("batch_size", "batch size", batches, [str(value) for value in batches], batch),
    )
    machines = [changed(report, {"cores": core, "step_ms": step}) for core, step in product(cores, steps)]
    return {"axes": axes, **_times(report, machines)}


def _axis(name: str, label: str, values: Sequence[float], texts: list[str], start: float) -> dict[str, Any]:
    return {"name": name, "label": label, "values": texts, "start": values.index(start)}


def _times(report: Report, machines: Sequence[Report]) -> dict[str, Any]:
    """Return the names of all candidates, and their times on each machine."""
    best = [[] if machine.host == report.host else best_of_each_placement(machine) for machine in machines]
    times = times_elsewhere(report, machines, chain.from_iterable(best))
    names = list(dict.fromkeys(chain.from_iterable(times)))
    own, rows = {it.name for it in report.known_candidates}, []
    for added, found in zip(best, times, strict=True):
        shown = own | {it.name for it in added}
        rows.append([float(f"{found[name]:.5g}") if name in found and name in shown else None for name in names])
    return {"candidates": names, "times": rows}
