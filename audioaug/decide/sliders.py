"""Sliders: every candidate's step time for other numbers of cores, other models and other batch sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from audioaug.decide.predict import mean_ms
from audioaug.decide.refine import refined
from audioaug.decide.stages import Stages
from audioaug.decide.what_if import best_of_each_placement, changed
from audioaug.records import Candidate, Report
from audioaug.units import format_ms

CORES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
STEP_FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def grid(report: Report) -> dict[str, Any] | None:
    """Predict every candidate for every combination of some numbers of cores and step times.

    On this machine a time is the candidate's own, measured if possible. Elsewhere it is multiplied by how much longer
    the formulas expect it to take there, and is at least the model's step; with other cores, the best candidate of each
    placement is added.

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
    machines = [
        changed(report, {"step_ms": step} if core == now else {"cores": core, "step_ms": step})
        for core, step in product(cores, steps)
    ]
    return {"axes": axes, **_times(report, machines)}


def _axis(name: str, label: str, values: Sequence[float], texts: list[str], start: float) -> dict[str, Any]:
    return {"name": name, "label": label, "values": texts, "start": values.index(start)}


def _times(report: Report, machines: Sequence[Report]) -> dict[str, Any]:
    """Return the names of all candidates, and their times on each machine."""
    own = {it.name: it for it in report.known_candidates if it.status != "infeasible" and it.known_ms is not None}
    best = [
        {} if machine.host == report.host else {it.name: it for _, it in best_of_each_placement(machine)}
        for machine in machines
    ]
    new = {name: it for found in best for name, it in found.items() if name not in own}
    corrected = refined(replace(report, candidates=(*report.candidates, *new.values())))
    candidates = own | {it.name: it for it in corrected if it.name in new}
    usual = _expected(report, candidates.values())
    times = []
    for machine, added in zip(machines, best, strict=True):
        expected, shown = _expected(machine, candidates.values()), own.keys() | added.keys()
        least = 0.0 if machine == report or machine.ceiling is None else machine.ceiling.step_ms
        scaled = [_scaled(*each, least) for each in zip(candidates.values(), usual, expected, strict=True)]
        times.append([ms if name in shown else None for name, ms in zip(candidates, scaled, strict=True)])
    return {"candidates": list(candidates), "times": times}


def _expected(report: Report, candidates: Iterable[Candidate]) -> list[float | None]:
    stages = Stages(report, replicates=1)
    return [mean_ms(stages, candidate) for candidate in candidates]


def _scaled(candidate: Candidate, usual: float | None, expected: float | None, least: float) -> float | None:
    """Return a candidate's own time, multiplied by the ratio of two predictions, and at least ``least``; 5 digits."""
    ms = candidate.known_ms
    return float(f"{max(least, ms * expected / usual):.5g}") if ms and usual and expected else None
