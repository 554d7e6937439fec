"""What was measured about placement, as plain values."""

from dataclasses import dataclass
from math import inf

from audioaug.records import Ceiling, Cell, Interval, Report
from experiments.claims import Claim


@dataclass(frozen=True)
class Size:
    """How much to measure: seconds for the stages in all, for each point of the map, and for convolution in all.

    ``models`` is how many of ``widths`` are trained, ``repeats`` how many times over each op of the chain is applied.
    """

    stage_seconds: float
    point_seconds: float
    models: int
    repeats: tuple[int, ...]
    response_seconds: tuple[float, ...]
    convolution_seconds: float


QUICK = Size(5, 2, 1, (1,), (0.1, 1.0), 1.5)
FULL = Size(32, 9, 3, (1, 4), (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), 12)


@dataclass(frozen=True)
class Point:
    """One point of the map: a model and a chain, and the cells that were trained with on it."""

    width: int
    parameters: int
    repeats: int
    ceiling: Ceiling
    cells: tuple[Cell, ...]

    def of(self, placement: str, workers: int | None = None) -> Cell:
        """Return the fastest measured cell of a placement, with so many workers or with any number."""
        found = [cell for cell in self.cells if cell.placement == placement and workers in (None, cell.num_workers)]
        return min(found, key=measured)

    def stall(self, cell: Cell) -> float:
        """Return the share of a step that the model alone would not need."""
        return max(0.0, 1 - self.ceiling.step_ms / measured(cell))


@dataclass(frozen=True)
class Convolution:
    """What convolving a batch costs on each side, by the length of the impulse response; intervals are of 95 %."""

    response_seconds: float
    worker_ms: float
    worker_ci_ms: Interval
    device_ms: float
    device_ci_ms: Interval


@dataclass(frozen=True)
class Experiment:
    """All that was measured."""

    report: Report
    points: tuple[Point, ...] = ()
    convolutions: tuple[Convolution, ...] = ()
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1


def measured(cell: Cell) -> float:
    """Return the measured step time in milliseconds; endless for a cell that was not measured."""
    return inf if cell.measured_ms is None else cell.measured_ms


def clearly_faster(cell: Cell, other: Cell) -> bool:
    """Return whether a measured cell is faster than another, and their intervals do not meet."""
    ours, theirs = cell.measured_ci_ms, other.measured_ci_ms
    return ours is not None and theirs is not None and ours[1] < theirs[0]
