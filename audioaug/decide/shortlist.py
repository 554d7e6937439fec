"""Shortlist: all cells there are, and those worth racing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from audioaug.decide.predict import threads_beside, with_predictions, with_prefetch, worker_engines
from audioaug.records import KNOBS, Cell, DeviceEngine, Placement, Report

NOTICED = 0.005
"""Starting workers that takes a smaller share of an epoch than this may as well be done for each."""

SAME = 0.02
"""Predictions this close are not worth another worker."""

OTHER_COUNTS = 2
"""Numbers of workers that get a heat although no cut is best with them."""


def placement_of(cut: int, ops: int) -> Placement:
    """Name a cut: all of the chain in the workers is "cpu", none of it "gpu". An empty chain counts as "cpu"."""
    return "cpu" if cut == ops else "gpu" if cut == 0 else "split"


def all_cells(report: Report, workers: Sequence[int], *, pin_memory: bool | None) -> list[Cell]:
    """Return every combination of cut, worker engine and worker count, predicted; impossible ones with their reason.

    Our ops in the workers come only with our ops on the device, at least one worker, and where they take less of its
    time than audiomentations. Without a GPU the training process gets a thread for each core that workers leave it.
    Workers are started in Python's default way, prefetch as the simulation says, and live on between epochs where
    starting them anew would be noticed.

    Args:
        workers: the counts to consider.
        pin_memory: whether batches go through page-locked memory, as in ``Plan``.
    """
    ops, cuts = len(report.chain.ops), report.chain.cuts
    cells = [
        Cell(
            placement_of(cut, ops),
            cut,
            worker,
            num_workers=count,
            pin_memory=pin_memory,
            threads=threads_beside(report, count),
        )
        for cut in cuts
        for worker in worker_engines(report, cut)
        for count in workers
        if count or worker == "audiomentations"
    ]
    cells = with_predictions(report, with_prefetch(report, cells))
    cells = [replace(cell, persistent_workers=_is_worth_keeping_workers(report, cell)) for cell in cells]
    impossible = [
        Cell(placement_of(cut, ops), cut, status="infeasible", reason=reason)
        for reason, beyond in (
            (report.chain.device_from_reason, range(cuts.start)),
            (report.chain.worker_until_reason, range(cuts.stop, ops + 1)),
        )
        for cut in beyond
    ]
    return cells + impossible


def best_of_each(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell for every cut and its engines, fastest first; those that were measured before the others.

    It is the fastest that was measured, else the one with the fewest workers within 2 % of the best prediction.
    """
    best = (min(group, key=_known) if _is_measured(group) else _fewest(group) for group in _groups(cells).values())
    return sorted(best, key=_known)


def worth_a_heat(cells: Sequence[Cell]) -> list[Cell]:
    """Return the best of every cut and its engines, behind the first of them up to two with other numbers of workers.

    How far predictions are off is much the same for cells with as many workers, of which those then tell.
    """
    best = best_of_each(cells)
    known = {cell.num_workers for cell in cells if cell.measured_ms is not None} | {cell.num_workers for cell in best}
    unknown: dict[int, list[Cell]] = {}
    for cell in (cell for group in _groups(cells).values() for cell in group if cell.num_workers not in known):
        unknown.setdefault(cell.num_workers, []).append(cell)
    others = sorted((min(group, key=_predicted) for group in unknown.values()), key=_predicted)
    return [*best[:1], *others[:OTHER_COUNTS], *best[1:]]


def shortlist(cells: Sequence[Cell], current: Cell, at_most: int) -> list[Cell]:
    """Return the cells to race: today's, the favourite, the best with all and with none of the chain in the workers.

    Then follow the best of every cut and its engines; the favourite also brings itself with torch's threads left as
    they are, and its neighbour with other workers.
    """
    best = best_of_each(cells)
    controls = [next((cell for cell in best if cell.placement == kind), None) for kind in ("cpu", "gpu")]
    group = _groups(cells)[_way(best[0])] if best else []
    neighbours = sorted(group, key=_predicted)[:2]
    twins = [_unknown(cell, threads=None) for cell in best[:1] if cell.threads is not None]
    chosen = [current]
    for candidate in filter(None, [*best[:1], *controls, *twins, *best[1:2], *neighbours, *best[2:]]):
        if len(chosen) < at_most and candidate.name not in {cell.name for cell in chosen}:
            chosen.append(candidate)
    return chosen


def with_engines(cells: Sequence[Cell], engines: Sequence[DeviceEngine]) -> list[Cell]:
    """Return the best cell with our ops on the device, if there is one, and the same by each of these engines."""
    ours = (cell for cell in best_of_each(cells) if cell.placement != "cpu" and cell.device_engine == "batched")
    best = next(ours, None) if engines else None
    return [] if best is None else [best, *(_unknown(best, device_engine=engine) for engine in engines)]


def _is_worth_keeping_workers(report: Report, cell: Cell) -> bool:
    """Return whether starting the workers takes more than 0.5 % of an epoch, or that is unknown."""
    starts = [cost.first_batch_seconds for cost in report.loader_costs if cost.num_workers == cell.num_workers]
    clips = report.workload.clips
    if not starts or cell.predicted_ms is None or clips is None:
        return True
    epoch_seconds = clips / report.workload.batch_size * cell.predicted_ms / 1e3
    return max(starts) > NOTICED * epoch_seconds


def _unknown(cell: Cell, **other: Any) -> Cell:
    """Return a cell that differs in this alone, of which nothing is known."""
    return Cell(cell.placement, **{name: getattr(cell, name) for name in KNOBS} | other)


def _groups(cells: Iterable[Cell]) -> dict[tuple[int, str, str], list[Cell]]:
    """Sort the cells that can be raced by cut and engines."""
    groups: dict[tuple[int, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.status != "infeasible" and cell.predicted_ms is not None:
            groups.setdefault(_way(cell), []).append(cell)
    return groups


def _way(cell: Cell) -> tuple[int, str, str]:
    return cell.cut, cell.worker_engine, cell.device_engine


def _is_measured(group: Iterable[Cell]) -> bool:
    return any(cell.measured_ms is not None for cell in group)


def _fewest(group: Sequence[Cell]) -> Cell:
    limit = min(_predicted(cell) for cell in group) * (1 + SAME)
    return min((cell for cell in group if _predicted(cell) <= limit), key=lambda cell: cell.num_workers)


def _known(cell: Cell) -> tuple[bool, float]:
    """Order by measurement; what is only predicted comes behind, since predictions may be off all together."""
    return (False, cell.measured_ms) if cell.measured_ms is not None else (True, _predicted(cell))


def _predicted(cell: Cell) -> float:
    assert cell.predicted_ms is not None
    return cell.predicted_ms
