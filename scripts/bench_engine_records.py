"""What a benchmark of the engine measured. Times are raw, in seconds for one batch, and paired by rounds."""

import math
from dataclasses import dataclass, field
from statistics import median, quantiles

from audioaug.records import DeviceEngine, HostFacts, Timing
from audioaug.units import plural

# Records


OURS, DEVICE_PART = "audioaug", "audioaug, prepared"
LIBRARY_OUR_DRAWS, NATIVE = "torch-audiomentations, our draws", "torch-audiomentations"
REFERENCE = "audiomentations"
TORCHAUDIO = "torchaudio"
"""Its transforms clip by clip, for ops that neither of the other libraries has."""
LEAST = "least"
"""What the ops ask of any engine, see ``bench_engine_work.least``."""
RECORDED: dict[DeviceEngine, str] = {"cuda_graph": "audioaug, cuda_graph", "torch_compile": "audioaug, torch_compile"}
"""Our ops on prepared batches, by the device engines that replay graphs."""

WORKERS_GOALS = {"light": 2.0, "speech": 8.0, "music": 3.0, "demo": 4.0}
"""The goals in workers: our ops on the collated batch are this many times faster than audiomentations, by chain."""

WRAPPER_GOAL = 60e-6
"""The goal for what an op costs the host for a batch, besides its own work, in seconds."""


@dataclass(frozen=True)
class Size:
    """What every engine gets: a batch of clips, and threads."""

    batch: int
    seconds: float
    sample_rate: int
    threads: int

    @property
    def samples(self) -> int:
        """Samples of one clip."""
        return round(self.seconds * self.sample_rate)

    def __str__(self) -> str:
        return f"{self.batch} x {self.seconds:g} s x {self.sample_rate / 1000:g} kHz, {plural(self.threads, 'thread')}"


@dataclass(frozen=True)
class Asked:
    """What an engine asks of the device for one batch; waits are those of the host for the device, by name."""

    kernels: int
    waits: tuple[str, ...]
    peak_bytes: int


@dataclass(frozen=True)
class Row:
    """One op or chain of one size: times by engine, what is asked of the device, and where our time goes.

    ``reasons`` says why an engine has no time. The reference's times are those of one clip on one core, times the
    clips, over the threads: as if it ran in as many processes, and these cost nothing. ``replayed`` is the share of
    batches, of those that an engine with a graph was timed with, that replayed a graph.
    """

    name: str
    is_chain: bool
    size: Size
    times: dict[str, Timing] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    floor_seconds: float = 0.0
    hottest: tuple[tuple[str, float], ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)
    replayed: dict[str, float] = field(default_factory=dict)

    @property
    def rival(self) -> str | None:
        """The faster way to use torch-audiomentations, if there is one."""
        ways = [way for way in (LIBRARY_OUR_DRAWS, NATIVE) if way in self.times]
        return min(ways, key=lambda way: self.times[way].median, default=None)

    def over_ours(self, engine: str | None, ours: str = OURS) -> float | None:
        """Return how many times as long another engine takes: the median over rounds of their ratios."""
        if engine not in self.times or ours not in self.times:
            return None
        return median(a / b for a, b in zip(self.times[engine].seconds, self.times[ours].seconds))

    @property
    def batch_bytes(self) -> int:
        """Bytes of the batch that goes in."""
        return self.size.batch * self.size.samples * 4


@dataclass(frozen=True)
class Exponents:
    """How a chain's time grows: the slopes of log time over log batch, clip length and number of ops."""

    chain: str
    batch: float
    seconds: float
    ops: float


@dataclass(frozen=True)
class WorkerEngines:
    """A chain in ``workers`` workers: seconds for a batch, an entry a turn, the median of the turn."""

    chain: str
    batched: Timing
    audiomentations: Timing
    workers: int

    @property
    def ratios(self) -> list[float]:
        """How many times as long audiomentations takes, turn by turn."""
        return [a / b for a, b in zip(self.audiomentations.seconds, self.batched.seconds)]

    @property
    def ratio(self) -> float:
        """How many times as long audiomentations takes."""
        return median(self.ratios)


@dataclass(frozen=True)
class OpCost:
    """What one more op costs the host for a batch: seconds, an entry a round."""

    draw: Timing
    prepare: Timing
    run: Timing

    @property
    def whole(self) -> Timing:
        """All of it."""
        return Timing(tuple(map(sum, zip(self.draw.seconds, self.prepare.seconds, self.run.seconds))))


@dataclass(frozen=True)
class Wrapper:
    """What an op that does nothing costs the host, where all examples of a batch get it and where half do.

    ``prepare_seconds``: of a batch by each op alone, its own work included.
    """

    all_examples: OpCost
    half_of_them: OpCost
    prepare_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def most_seconds(self) -> float:
        """The larger of the two."""
        return max(cost.whole.median for cost in (self.all_examples, self.half_of_them))


@dataclass(frozen=True)
class Result:
    """All that was measured. ``load`` is the highest load average meanwhile, of everything that ran on the machine."""

    host: HostFacts
    date: str
    copy_bytes_per_second: float
    load: float = 0.0
    rows: tuple[Row, ...] = ()
    exponents: tuple[Exponents, ...] = ()
    workers: tuple[WorkerEngines, ...] = ()
    wrapper: Wrapper | None = None
    schema_version: int = 1

    @property
    def disturbed(self) -> bool:
        """Whether other programs wanted the cores too."""
        return self.load > self.host.usable_cores + 1

    @property
    def asked_for(self) -> list[Row]:
        """The rows of the size that was asked for, not those of a sweep."""
        return [row for row in self.rows if row.size == self.rows[0].size]

    def ratios(self, engine: str) -> dict[str, float]:
        """Return by op how many times as long an engine takes (the better of two for torch-audiomentations).

        At the size that was asked for, not those of a sweep.
        """
        found = {}
        for row in self.asked_for:
            ratio = row.over_ours(row.rival if engine == NATIVE else engine)
            if ratio is not None and not row.is_chain:
                found[row.name] = ratio
        return found

    @property
    def bounds(self) -> dict[str, float]:
        """How many times as long torch-audiomentations takes as an engine could at best, by the ops of ``ratios``."""
        ratios = self.ratios(NATIVE)
        return {
            row.name: row.over_ours(row.rival, LEAST) or ratios[row.name]
            for row in self.asked_for
            if row.name in ratios
        }


def geometric_mean(ratios: dict[str, float]) -> float:
    """Return the geometric mean; NaN of none."""
    return math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else math.nan


def spread(timing: Timing) -> float:
    """Return half the interquartile range over the median."""
    if len(timing.seconds) < 2:
        return math.nan
    low, _, high = quantiles(timing.seconds, n=4, method="inclusive")
    return (high - low) / 2 / timing.median
