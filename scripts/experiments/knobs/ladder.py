"""From one plan to another, a knob at a time, and which share of the gain each knob has. Nothing here is measured."""

import math
from collections.abc import Sequence
from dataclasses import replace

from audioaug.decide.shortlist import placement_of
from audioaug.records import Cell
from audioaug.units import plural

KNOBS = {
    "num_workers": ("num_workers",),
    "prefetch_factor": ("prefetch_factor",),
    "worker engine": ("worker_engine",),
    "placement": ("cut", "device_engine"),
    "threads": ("threads",),
    "pin_memory": ("pin_memory",),
}
"""The knobs in the order in which they are turned, and the fields of a cell that each is."""


def ladder(default: Cell, plan: Cell, ops: int) -> list[tuple[str, Cell]]:
    """Return the knobs in which two cells of a chain of so many ops differ, each with all before it turned too."""
    rungs, cell = list[tuple[str, Cell]](), default
    for knob, fields in KNOBS.items():
        turned = replace(cell, **{name: getattr(plan, name) for name in fields})
        turned = replace(turned, placement=placement_of(turned.cut, ops))
        if turned != cell:
            rungs.append((knob, turned))
        cell = turned
    return rungs


def setting(knob: str, cell: Cell) -> str:
    """Say what a knob is turned to."""
    words = {
        "num_workers": plural(cell.num_workers, "worker"),
        "prefetch_factor": f"{cell.prefetch_factor} batches a worker",
        "worker engine": f"{cell.worker_engine} ops in the workers",
        "placement": {"cpu": "all in the loader", "gpu": "all on the device", "split": f"split at {cell.cut}"}[
            cell.placement
        ],
        "threads": f"{plural(cell.threads or 0, 'thread')} of torch beside the workers",
        "pin_memory": "page-locked" if cell.pin_memory else "pageable",
    }
    return words[knob]


def shares(times: Sequence[float]) -> list[float]:
    """Return each rung's share of the whole gain, which sum to 1: its factor's logarithm over that of them all.

    Args:
        times: throughput after each rung, over that before the first.
    """
    whole = math.log(times[-1])
    factors = [after / before for before, after in zip((1.0, *times[:-1]), times, strict=True)]
    return [math.log(factor) / whole if whole else 0.0 for factor in factors]
