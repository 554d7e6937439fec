"""Shortlist: all cells there are, and those worth racing."""

from collections.abc import Iterable, Sequence

from audioaug.decide.predict import with_prediction
from audioaug.records import Cell, DeviceEngine, Placement, Report

SAME = 0.02
"""Predictions this close are not worth another worker."""


def placement_of(cut: int, ops: int) -> Placement:
    """Name a cut: all of the chain in the workers is "cpu", none of it "gpu". An empty chain counts as "cpu"."""
    return "cpu" if cut == ops else "gpu" if cut == 0 else "split"


def all_cells(
    report: Report, workers: Sequence[int], stock_cuts: Iterable[int], *, pin_memory: bool, why_no_stock: str = ""
) -> list[Cell]:
    """Return every combination of cut, device engine and worker count, predicted; impossible ones with their reason.

    Args:
        workers: the counts to consider.
        stock_cuts: the cuts behind which torch-audiomentations has a counterpart for some op.
        pin_memory: whether batches go through page-locked memory.
        why_no_stock: the reason why torch-audiomentations cannot be used at all.
    """
    ops, first = len(report.chain.ops), report.chain.device_from
    engines: list[tuple[int, DeviceEngine]] = [(cut, "batched") for cut in range(first, ops + 1)]
    engines += [(cut, "torch-audiomentations") for cut in stock_cuts if first <= cut < ops and not why_no_stock]
    cells = [
        with_prediction(
            report, Cell(placement_of(cut, ops), cut, device_engine=engine, num_workers=count, pin_memory=pin_memory)
        )
        for cut, engine in engines
        for count in workers
    ]
    impossible = [
        Cell(placement_of(cut, ops), cut, status="infeasible", reason=report.chain.device_from_reason)
        for cut in range(first)
    ]
    if why_no_stock:
        impossible.append(
            Cell("gpu", first, device_engine="torch-audiomentations", status="infeasible", reason=why_no_stock)
        )
    return cells + impossible


def shortlist(cells: Sequence[Cell], current: Cell, at_most: int) -> list[Cell]:
    """Return the cells to race: today's, the best with none and with all of the chain on the device, and so on.

    Then follow the best of every cut and engine, fastest first. Of the worker counts of one cut and engine, the fewest
    within 2 % of the best prediction stands for all; the overall favourite also brings its neighbours.
    """
    feasible = [cell for cell in cells if cell.status != "infeasible" and cell.predicted_ms is not None]
    groups: dict[tuple[int, str], list[Cell]] = {}
    for cell in feasible:
        groups.setdefault((cell.cut, cell.device_engine), []).append(cell)
    best = sorted((_fewest(group) for group in groups.values()), key=_predicted)
    controls = [next((cell for cell in best if cell.placement == kind), None) for kind in ("cpu", "gpu")]
    neighbours = sorted(groups[best[0].cut, best[0].device_engine], key=_predicted)[:2] if best else []
    chosen = [current]
    for candidate in filter(None, [*controls, *best[:2], *neighbours, *best[2:]]):
        if len(chosen) < at_most and candidate.name not in {cell.name for cell in chosen}:
            chosen.append(candidate)
    return chosen


def _fewest(group: Sequence[Cell]) -> Cell:
    limit = min(_predicted(cell) for cell in group) * (1 + SAME)
    return min((cell for cell in group if _predicted(cell) <= limit), key=lambda cell: cell.num_workers)


def _predicted(cell: Cell) -> float:
    assert cell.predicted_ms is not None
    return cell.predicted_ms
