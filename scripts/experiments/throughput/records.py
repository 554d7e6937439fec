"""What was measured about throughput, as plain values."""

from dataclasses import dataclass

from audioaug.decide.race import Ratio, paired_ratio
from audioaug.records import HostFacts, Interval, Measurement, Timing
from experiments.claims import Claim

EPOCHS = 10
"""As many as the published example trains for."""


@dataclass(frozen=True)
class Size:
    """How much to measure: examples, batch sizes, and seconds for each part; ``rounds`` of each at least."""

    examples: int
    batches: tuple[int, ...]
    seconds: float
    rounds: int


QUICK = Size(256, (32, 256), 1, 3)
FULL = Size(10_000, (100, 1_000, 10_000), 15, 5)


@dataclass(frozen=True)
class Way:
    """One way to train: seconds an epoch of so many examples."""

    name: str
    examples: int
    epoch: Timing

    @property
    def examples_per_second(self) -> float:
        """The throughput."""
        return self.examples / self.epoch.median

    @property
    def time_to_train(self) -> float:
        """Seconds for all epochs."""
        return EPOCHS * self.epoch.median

    @property
    def time_to_train_ci(self) -> Interval:
        """The 95 % interval of that."""
        low, high = self.epoch.interval
        return EPOCHS * low, EPOCHS * high

    def over(self, other: "Way") -> Ratio:
        """Return how many times the other's throughput this has, by rounds that both ran in."""
        ours, theirs = (Measurement(way.name, way.epoch, Timing(()), 1) for way in (self, other))
        return paired_ratio(theirs, ours)


@dataclass(frozen=True)
class Operator:
    """An operator of torch and its share of the time of an epoch."""

    name: str
    calls: int
    share: float


@dataclass(frozen=True)
class Choice:
    """A kind of work, the device that it is said to belong on, and seconds on each device."""

    work: str
    said: str
    times: dict[str, Timing]

    @property
    def fastest(self) -> str:
        """The device whose interval lies below all others', or "either"; "" where there is only one."""
        if len(self.times) < 2:
            return ""
        first, second = sorted(self.times, key=lambda device: self.times[device].median)[:2]
        return first if self.times[first].interval[1] < self.times[second].interval[0] else "either"


@dataclass(frozen=True)
class Throughput:
    """All that was measured. Names of ways begin with the device: ``cpu fp32``."""

    host: HostFacts
    examples: int
    precisions: tuple[Way, ...] = ()
    batches: tuple[Way, ...] = ()
    loading: tuple[Way, ...] = ()
    operators: tuple[Operator, ...] = ()
    traced_seconds: float = 0.0
    processes: dict[int, Timing] | None = None
    processes_on: str = ""
    choices: tuple[Choice, ...] = ()
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1

    def way(self, name: str) -> Way | None:
        """Return what a way of that name costs, if it was tried."""
        ways = (*self.precisions, *self.batches, *self.loading)
        return next((way for way in ways if way.name == name), None)
