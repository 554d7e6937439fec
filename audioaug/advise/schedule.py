"""Schedule: which cells are raced, as many as there is time and room for, and how long each takes."""

from collections.abc import Sequence

from audioaug.advise.arms import stock_of
from audioaug.advise.racing import HEAT_BLOCK, HEAT_ROUNDS, RACE_BLOCK, ROUNDS, Racer
from audioaug.decide.shortlist import shortlist, with_engines
from audioaug.records import Cell, DeviceEngine, Report
from audioaug.units import Seconds

FEWEST_RACED, MOST_RACED = 3, 9
"""Cells in the race, today's and the favourite among them."""

PLANNED_ROUNDS = 6
"""Of a race, which has no more cells than get so many; what is done today often leaves after ``ROUNDS``."""

MOST_IN_HEAT = 16
"""All there are of most chains: what one heat shows of its cells, the machine has drifted from by the next."""

MOST_HEAT_ROUNDS = 3

STARTING = 0.5
"""Seconds that a loader takes to start, about."""


class Schedule:
    """The choice of cells for a racer, once today's configuration was measured.

    Args:
        report: what is known, of which today's configuration is part.
        racer: says how long its blocks are.
        most_workers: that can be alive at once, those of all cells of a heat or race together.
    """

    def __init__(self, report: Report, racer: Racer, most_workers: int) -> None:
        assert report.current is not None
        self.report, self.racer, self.most_workers = report, racer, most_workers
        self.today = report.current

    def expected(self, cells: Sequence[Cell]) -> dict[str, Seconds]:
        """Return by name how many seconds a step takes, as well as it is known.

        Predictions are taken to be as far below the truth as that of today's configuration is.
        """
        measured = self.today.measured_ms or 0.0
        factor = max(1.0, measured / (self.today.predicted_ms or measured or 1.0))
        return {cell.name: (cell.measured_ms or factor * (cell.predicted_ms or measured)) / 1e3 for cell in cells}

    def heat(self, waiting: Sequence[Cell], seconds: Seconds) -> list[Cell]:
        """Return the first of the cells that a heat beside today's configuration has time and processes for."""
        seconds -= self._arm_seconds(self.today, HEAT_ROUNDS, HEAT_BLOCK)
        processes, heat = self.most_workers, list[Cell]()
        for cell in waiting[:MOST_IN_HEAT]:
            seconds -= self._arm_seconds(cell, HEAT_ROUNDS, HEAT_BLOCK)
            processes -= cell.num_workers
            if seconds < 0 or (heat and processes < 0):
                break
            heat.append(cell)
        return heat

    def heat_rounds(self, arms: Sequence[Cell], seconds: Seconds) -> int:
        """Return how many rounds a heat of these arms has time for."""
        for rounds in range(MOST_HEAT_ROUNDS, HEAT_ROUNDS, -1):
            if sum(self._arm_seconds(arm, rounds, HEAT_BLOCK) for arm in arms) <= seconds:
                return rounds
        return HEAT_ROUNDS

    def race(self, seconds: Seconds, engines: Sequence[DeviceEngine] = ()) -> list[Cell]:
        """Return the cells to race: as many as get ``PLANNED_ROUNDS`` rounds in the time.

        Behind the fewest come, where there is room, these engines with what they are to be compared with; then the
        favourite once more: how far a plan may be from itself tells what differences mean.
        """
        left, processes = seconds, self.most_workers
        cells = shortlist(self.report.cells, self.today, MOST_RACED)
        first, others = cells[:FEWEST_RACED], cells[FEWEST_RACED:]
        asked = _not_among(first, with_engines(self.report.cells, engines))
        chosen: list[Cell] = []
        for cell in [*first, *asked, *first[1:2], *_not_among(asked, others)]:
            left -= self._arm_seconds(cell, PLANNED_ROUNDS if chosen else ROUNDS, RACE_BLOCK)
            processes -= cell.num_workers
            if len(chosen) < FEWEST_RACED or (processes > 0 and (left > 0 or cell in asked)):
                chosen.append(cell)
        return chosen

    def _arm_seconds(self, cell: Cell, rounds: int, block: float) -> Seconds:
        """Return about how long an arm takes."""
        step = self.expected([cell])[cell.name]
        steps = stock_of(cell) + self.racer.block_steps(step, cell.num_workers, block) + cell.queue  # to refill it
        return STARTING + rounds * step * steps


def _not_among(known: Sequence[Cell], cells: Sequence[Cell]) -> list[Cell]:
    names = {cell.name for cell in known}
    return [cell for cell in cells if cell.name not in names]
