"""Ablation: what each single change from today's configuration to the recommended one gains by itself."""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from audioaug.decide.predict import with_predictions
from audioaug.decide.race import MARGIN
from audioaug.decide.refine import corrected_predictions
from audioaug.records import SHARED_FIELDS, Candidate, Report
from audioaug.units import format_ms, plural

MOST_OF = 0.4
"""Share of the gain that makes a single change its cause: half, of which 0.1 may be an error of measuring."""


def _threads(candidate: Candidate) -> str:
    return "torch's default threads" if candidate.threads is None else f"torch on {plural(candidate.threads, 'thread')}"


def _cut(candidate: Candidate) -> str:
    return {"cpu": "the whole chain in the loader", "gpu": "the whole chain on the device"}.get(
        candidate.placement, f"the cut at {candidate.cut}"
    )


KNOBS: dict[str, Callable[[Candidate], str]] = {
    "num_workers": lambda candidate: plural(candidate.num_workers, "worker"),
    "threads": _threads,
    "cut": _cut,
    "worker_engine": lambda candidate: plural(candidate.num_workers, f"{candidate.worker_engine} worker"),
    "device_engine": lambda candidate: f"the device engine {candidate.device_engine}",
    "pin_memory": lambda candidate: "pinned memory" if candidate.pin_memory else "pageable memory",
}
"""The settings that are changed one at a time, with the words for a candidate's value."""


@dataclass(frozen=True)
class Change:
    """Today's configuration with one setting of the recommended one.

    ``ms``: its step, measured or predicted; ``share``: of the gain, 1 if this change alone gains as much as all.
    """

    knob: str
    words: str
    ms: float
    measured: bool
    share: float


def single_changes(report: Report, current: Candidate, best: Candidate) -> list[Change]:
    """Return the known single changes, the largest gain first.

    There are none if the recommended candidate is not faster by the margin. Predictions are corrected by what was
    measured.
    """
    if not _is_faster(best, current):
        return []
    assert current.measured_ms and best.measured_ms
    variants = {knob: changed(current, best, knob) for knob in differing_knobs(report, current, best)}
    measured = {each.name: each.measured_ms for each in (*report.candidates, current, best) if each.measured_ms}
    others = {it.name: it.predicted_ms or 0.0 for it in corrected_predictions(report, list(variants.values()))}
    gain = current.measured_ms - best.measured_ms
    found = []
    for knob, candidate in variants.items():
        name = candidate.name
        if name in measured or name in others:
            ms = measured.get(name) or max(best.measured_ms, others[name])  # a faster one would be the best
            found.append(Change(knob, KNOBS[knob](best), ms, name in measured, (current.measured_ms - ms) / gain))
    return sorted(found, key=lambda change: change.ms)


def changes_to_time(report: Report, current: Candidate, best: Candidate, raced: Container[str]) -> list[Candidate]:
    """Return the candidates with a single change that are not among those ``raced``, the fastest by prediction first.

    There are none if only one setting differs: then the recommended candidate is the single change.
    """
    knobs = differing_knobs(report, current, best)
    if len(knobs) < 2 or not _is_faster(best, current):
        return []
    refused = {each.name for each in report.candidates if each.status == "infeasible"}
    variants = {each.name: each for each in (changed(current, best, knob) for knob in knobs)}
    waiting = [each for name, each in variants.items() if name not in refused and name not in raced]
    return sorted(with_predictions(report, waiting), key=lambda each: each.predicted_ms or math.inf)


def _is_faster(best: Candidate, current: Candidate) -> bool:
    """Return whether the recommended candidate is faster by the margin."""
    return bool(current.measured_ms and best.measured_ms and best.measured_ms * (1 + MARGIN) < current.measured_ms)


def differing_knobs(report: Report, current: Candidate, best: Candidate) -> list[str]:
    """Return the settings in which two candidates differ; torch's default counts as its number of threads."""
    usual = report.host.torch_threads
    same_threads = (current.threads or usual) == (best.threads or usual)
    knobs = [knob for knob in KNOBS if getattr(current, knob) != getattr(best, knob)]
    return [knob for knob in knobs if not (knob == "threads" and same_threads)]


def changed(current: Candidate, best: Candidate, knob: str) -> Candidate:
    """Return today's configuration with one setting of another candidate, without results.

    The engine of workers is changed together with their number if there are none today.
    """
    settings = {name: getattr(current, name) for name in SHARED_FIELDS} | {knob: getattr(best, knob)}
    if knob == "worker_engine" and not current.num_workers:
        settings["num_workers"] = best.num_workers
    return Candidate(best.placement if knob == "cut" else current.placement, **settings)


def evidence(current: Candidate, changes: Sequence[Change]) -> str:
    """Return the changes as a sentence; empty if there are fewer than two, which would explain nothing."""
    if len(changes) < 2 or current.measured_ms is None:
        return ""
    each = (f"{it.words}, {format_ms(it.ms)}{'' if it.measured else ' (predicted)'}" for it in changes)
    return f"One change at a time, instead of {format_ms(current.measured_ms)}: {'; '.join(each)}."
