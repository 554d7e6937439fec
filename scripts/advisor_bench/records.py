"""What a benchmark of the advisor found. Times are in milliseconds a step unless they are named otherwise."""

import math
from dataclasses import dataclass
from statistics import median

from audioaug.records import HostFacts, Interval


@dataclass(frozen=True)
class Predicted:
    """A cell that the advisor did not race: what it predicted, and the truth."""

    cell: str
    ms: float
    ci_ms: Interval
    true_ms: float

    @property
    def error(self) -> float:
        """How far off the prediction is, as a share of the truth."""
        return abs(self.ms / self.true_ms - 1)

    @property
    def covered(self) -> bool:
        """Whether the truth lies within the interval."""
        return self.ci_ms[0] <= self.true_ms <= self.ci_ms[1]


@dataclass(frozen=True)
class Regret:
    """How many times as long the advice takes as the best cell; 1 is no regret. The best was chosen on other rounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One workload: what the advisor said of it and, where all cells were raced, how that compares with the truth.

    ``cause`` is the first cause, ``said`` all that were told of. ``answers`` are the right ones, none if nobody knows;
    ``first``: whether one of them must come first, or be told of at all. ``drifts``: how many times as long the cells
    that the advisor had raced took in each heat of the truth, in the middle; ``true_ms`` is without it. ``again``: how
    far each of them is from the truth then, which was measured in the same way: as far as this machine is from itself.
    """

    name: str
    advisor_seconds: float
    verdict: str
    cause: str
    said: tuple[str, ...]
    sentence: str = ""
    answers: tuple[str, ...] = ()
    first: bool = True
    advice: str = ""
    best: str = ""
    today_ms: float | None = None
    advice_ms: float | None = None
    best_ms: float | None = None
    regret: Regret | None = None
    predicted: tuple[Predicted, ...] = ()
    again: tuple[float, ...] = ()
    drifts: tuple[float, ...] = ()
    true_ms: dict[str, float] | None = None
    failed: str = ""
    skipped: str = ""

    @property
    def right(self) -> bool | None:
        """Whether the right cause was named; ``None`` where nobody knows it, or it could not be planted here."""
        if not self.answers or self.skipped:
            return None
        return self.cause in self.answers if self.first else bool({*self.answers} & {self.cause, *self.said})


@dataclass(frozen=True)
class SelfRace:
    """A plan raced against itself: how many rounds, and whether one of the two was called faster."""

    rounds: int
    ratio: float
    won: bool


@dataclass(frozen=True)
class Result:
    """All that was found so far. ``load`` is the highest load average meanwhile, of everything on the machine."""

    host: HostFacts
    date: str
    seconds: float
    rows: tuple[Row, ...] = ()
    self_races: tuple[SelfRace, ...] = ()
    load: float = 0.0
    schema_version: int = 1

    @property
    def regrets(self) -> list[float]:
        """What following the advice loses, as shares of a step; never below 0."""
        return [max(0.0, row.regret.value - 1) for row in self.rows if row.regret is not None]

    @property
    def predictions(self) -> list[Predicted]:
        """All cells that were only predicted."""
        return [one for row in self.rows for one in row.predicted]

    @property
    def answered(self) -> list[Row]:
        """The rows whose cause is known."""
        return [row for row in self.rows if row.right is not None]


def percentile(values: list[float], share: float) -> float:
    """Return a percentile; NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def middle(values: list[float]) -> float:
    """Return the median; NaN of nothing."""
    return median(values) if values else math.nan
