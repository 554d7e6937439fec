"""What was measured about the knobs, as plain values."""

from dataclasses import dataclass

from audioaug.records import Allocation, Cell, HostFacts, Interval, Window
from audioaug.units import format_percent
from experiments.claims import Claim
from experiments.races import Speed


@dataclass(frozen=True)
class Size:
    """How much to measure, in seconds, rounds, examples of a batch, and bytes."""

    batch: int
    advise_seconds: float
    race_seconds: float
    rounds: int
    block_seconds: float
    watch_seconds: float
    step_seconds: float
    file_bytes: int
    workers: tuple[int, int]


QUICK = Size(4, 2, 1, 3, 0.1, 1.0, 0.5, 2**24, (1, 2))
FULL = Size(32, 30, 60, 5, 0.4, 6, 4, 2**29, (4, 8))


@dataclass(frozen=True)
class Rung:
    """The ladder from the default to the plan so far: its speed beside the default, and this knob's share of it all."""

    knob: str
    setting: str
    speed: Speed
    share: float
    allocation: Allocation


@dataclass(frozen=True)
class StepCost:
    """The model's own step, one way: its time, and the most memory that it needs at once."""

    name: str
    ms: float
    ci_ms: Interval
    peak_bytes: int


@dataclass(frozen=True)
class Level:
    """One level of the memory hierarchy: bytes a second that were read there; ``None`` where it is not here."""

    name: str
    claimed: str
    bytes_per_second: float | None
    how: str


@dataclass(frozen=True)
class Knobs:
    """All that was measured.

    ``starts_seconds`` are those of an epoch, by whether its workers are persistent; ``copies_ms`` and ``reads_ms`` are
    for a batch; ``overlap`` is one worker beside none, ``more_workers`` eight beside four (quick: two beside one).
    """

    host: HostFacts
    chain: tuple[str, ...]
    model: str
    batch: int
    plan: Cell
    ceiling_ms: float
    default: Allocation
    ladder: tuple[Rung, ...] = ()
    alone: tuple[Speed, ...] = ()
    steps: tuple[StepCost, ...] = ()
    starts_seconds: dict[str, float] | None = None
    steps_per_epoch: int = 0
    copies_ms: dict[str, float] | None = None
    levels: tuple[Level, ...] = ()
    reads_ms: dict[str, float] | None = None
    overlap: Speed | None = None
    more_workers: Speed | None = None
    windows: dict[str, tuple[Window, ...]] | None = None
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1

    @property
    def together(self) -> Speed:
        """The recommended plan beside the default, which is also what is left where no knob is to be turned."""
        if self.ladder:
            return self.ladder[-1].speed
        ms = self.default.total_ms
        return Speed("default DataLoader", ms, (ms, ms), self.batch / ms * 1e3)

    def share_words(self, rung: Rung) -> str:
        """Write a knob's share; where the whole is not clearly a gain, there is nothing to share."""
        return format_percent(rung.share) if self.together.clearly_faster else "-"

    def knob(self, name: str) -> Speed:
        """Return what a knob does alone."""
        return next(speed for speed in self.alone if speed.name == name)

    def step(self, name: str) -> StepCost:
        """Return what a way to take the step costs."""
        return next(cost for cost in self.steps if cost.name == name)
