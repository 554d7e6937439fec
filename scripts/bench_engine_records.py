"""What a benchmark of the engine measured. Times are raw, in seconds for one batch, and paired by rounds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isnan
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from audioaug.records import DeviceEngine, HostFacts, Timing
from audioaug.units import format_bytes, plural, significant

# Records


OURS, DEVICE_PART = "audioaug", "audioaug, prepared"
LIBRARY_OUR_DRAWS, NATIVE = "torch-audiomentations, our draws", "torch-audiomentations"
REFERENCE = "audiomentations"
LEAST = "least"
"""What the ops ask of any engine, see ``bench_engine_work.least``."""
RECORDED: dict[DeviceEngine, str] = {"cuda_graph": "audioaug, cuda_graph", "torch_compile": "audioaug, torch_compile"}
"""Our ops on prepared batches, recorded by these device engines."""

WORKERS_GOAL = 2.0
"""In workers, audiomentations is to take so many times as long as our ops on the collated batch, or more."""

WRAPPER_GOAL = 60e-6
"""An op is to cost the host fewer seconds than that for a batch, whatever it does itself."""


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
    batches, of those that a recorded engine was timed with, that it had recorded the like of.
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
    """The speech chain in so many workers: seconds for a batch, an entry a turn, the median of the turn.

    In older records there are none: both ran in one process, on one core.
    """

    batched: Timing
    audiomentations: Timing
    workers: int = 0

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
    workers: WorkerEngines | None = None
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


# Text

COLUMNS = (
    ("ours ms", "right"),
    ("± %", "right"),
    ("device ms", "right"),
    ("us a clip", "right"),
    ("clips/s", "right"),
    ("t-a ms", "right"),
    ("± %", "right"),
    ("by", "left"),
    ("t-a/ours", "right"),
    ("am ms", "right"),
    ("am/ours", "right"),
    ("x least", "right"),
    ("x floor", "right"),
    ("kernels", "right"),
    ("waits", "right"),
    ("memory", "right"),
)
LEGEND = {
    "ours": "audioaug's module(x), draws and preparation included",
    "device": "ours without them, as it is in training with workers",
    "t-a": "torch-audiomentations, the faster of its own use ('itself') and of its transforms with our draws ('draws');"
    " noise and rooms in memory",
    "am": "audiomentations for one clip on one core, times the clips, over the threads",
    "±": "half the interquartile range",
    "x least": "over what it asks of any engine made of torch's operations: an FFT and back for a filter, normal"
    " numbers for noise, a short-time FFT and back for a vocoder, a copy for all else",
    "x floor": "over reading and writing the batch once",
    "kernels, waits": "of ours (as on a device that has no loops) / of t-a (waits: what makes the host wait for a GPU)",
    "memory": "extra, at most at once, in batches: of ours / of t-a",
}
"""What the columns mean."""


def show(result: Result, console: Console) -> None:
    """Print everything."""
    host = result.host
    console.print(
        f"{host.device_name}, torch {host.versions.get('torch')}, copies {format_bytes(result.copy_bytes_per_second)}/s"
    )
    for size in dict.fromkeys(row.size for row in result.rows):
        rows = [row for row in result.rows if row.size == size]
        for title, some in (("ops", [r for r in rows if not r.is_chain]), ("chains", [r for r in rows if r.is_chain])):
            if some:
                console.print(_table(f"{title}: {size}", sorted(some, key=order)))
    for line in (*(f"{name}: {meaning}." for name, meaning in LEGEND.items()), *summary(result)):
        console.print(line, markup=False, highlight=False)


def summary(result: Result) -> Iterable[str]:
    """Yield the sentences: means, losses, growth, the worker engines, the wrapper, and where time goes in the worst."""
    if result.disturbed:
        yield (
            f"Others used the cores too (load {result.load:.1f} on {result.host.usable_cores:g}): engines with several "
            "threads, which wait for each other, suffer more from that than audiomentations, which has one. Try again."
        )
    for engine in (NATIVE, REFERENCE):
        ratios = result.ratios(engine)
        if ratios:
            slower = sorted((name for name, ratio in ratios.items() if ratio < 1), key=ratios.__getitem__)
            mean = significant(geometric_mean(ratios), 3)
            yield f"{engine}: geometric mean {mean} x our time over the {plural(len(ratios), 'op')} that both have."
            yield f"  ours is slower in {len(slower)}: " + ", ".join(f"{n} ({ratios[n]:.2f} x)" for n in slower)
    if result.bounds and any(LEAST in row.times for row in result.rows):
        bound = significant(geometric_mean(result.bounds), 3)
        yield f"An engine that did nothing but the least would reach {bound} x over torch-audiomentations."
    for row in result.rows:
        if row.is_chain and DEVICE_PART in row.asked:
            asked = row.asked[DEVICE_PART]
            peak, times = format_bytes(asked.peak_bytes), asked.peak_bytes / row.batch_bytes
            yield f"{row.name} needs {peak} beside a batch of {row.size}: {times:.1f} batches."
        for engine, share in row.replayed.items():
            timing, ratio = row.times[engine], row.over_ours(engine, DEVICE_PART)
            yield (
                f"{engine}: {row.name}, {row.size}: {_ms(timing)} ms a batch (± {_percent(timing)} %), {ratio:.2f} x "
                f"the time without; {share:.0%} of the batches were like a recorded one."
            )
    for fit in result.exponents:
        yield f"{fit.chain} grows as batch ^ {fit.batch:.2f}, length ^ {fit.seconds:.2f}, ops ^ {fit.ops:.2f}."
    if result.workers:
        yield _workers(result.workers, result.rows[0].size.batch)
    if result.wrapper:
        yield from _wrapper(result.wrapper, result.rows[0].size.batch)
    for row in result.rows:
        if OURS in row.reasons:
            yield f"not measured: {row.reasons[OURS]}"
    worst = sorted((row for row in result.rows if row.hottest and not row.is_chain), key=order)[:8]
    for row in worst:
        shares = ", ".join(f"{name.removeprefix('aten::')} {share:.0%}" for name, share in row.hottest)
        yield f"time in {row.name}: {shares}"


def _workers(found: WorkerEngines, batch: int) -> str:
    def told(timing: Timing) -> str:
        return f"{_ms(timing)} ms a batch (± {_percent(timing)} %), {batch / timing.median:,.0f} clips/s"

    ratios = found.ratios
    verdict = f"; the goal of {WORKERS_GOAL:g} x is {'met' if found.ratio >= WORKERS_GOAL else 'missed'}"
    return (
        f"speech in {plural(found.workers, 'worker') if found.workers else 'a worker, one core'}: batched "
        f"{told(found.batched)}; audiomentations {told(found.audiomentations)}: {found.ratio:.2f} x, {min(ratios):.2f} "
        f"to {max(ratios):.2f} in {plural(len(ratios), 'turn')}{verdict if found.workers else ''}."
    )


def _wrapper(found: Wrapper, batch: int) -> Iterable[str]:
    def told(cost: OpCost) -> str:
        parts = (f"{name} {_us(getattr(cost, name).median)}" for name in ("draw", "prepare", "run"))
        return f"{_us(cost.whole.median)} us (± {_percent(cost.whole)} %; {', '.join(parts)})"

    yield (
        f"One more op costs the host, whatever it does itself, {told(found.all_examples)} a batch of {batch} where all "
        f"examples get it, {told(found.half_of_them)} where half do; the goal of less than {_us(WRAPPER_GOAL)} us is "
        f"{'met' if found.most_seconds < WRAPPER_GOAL else 'missed'}."
    )
    if found.prepare_seconds:
        dearest = sorted(found.prepare_seconds.items(), key=lambda item: -item[1])[:5]
        ops = ", ".join(f"{name} ({_us(seconds)} us)" for name, seconds in dearest)
        yield f"To prepare a batch by one op alone, its own work included, takes longest for {ops}."


def order(row: Row) -> tuple[float, float]:
    """Sort losses to the top, then what only we have by how it compares with audiomentations."""
    return row.over_ours(row.rival) or inf, row.over_ours(REFERENCE) or inf


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for name, justify in COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(row.name, *cells(row))
    return table


def cells(row: Row) -> list[str]:
    """Return what stands under ``COLUMNS``, losses in red; a dash where nothing was measured."""
    if OURS not in row.times:
        return ["-"]
    ours, rival = row.times[OURS], row.rival
    asked, theirs = row.asked[DEVICE_PART], row.asked.get(rival or "")
    return [
        _ms(ours),
        _percent(ours),
        _ms(row.times[DEVICE_PART]),
        significant(ours.median / row.size.batch * 1e6, 3),
        f"{row.size.batch / ours.median:,.0f}",
        _ms(row.times[rival]) if rival else "-",
        _percent(row.times[rival]) if rival else "",
        {LIBRARY_OUR_DRAWS: "draws", NATIVE: "itself"}.get(rival or "", ""),
        _ratio(row.over_ours(rival)),
        _ms(row.times[REFERENCE]) if REFERENCE in row.times else "-",
        _ratio(row.over_ours(REFERENCE)),
        significant(ours.median / row.times[LEAST].median, 3) if LEAST in row.times else "-",
        significant(ours.median / row.floor_seconds, 3),
        str(asked.kernels) + (f" / {theirs.kernels}" if theirs else ""),
        str(len(asked.waits)) + (f" / {len(theirs.waits)}" if theirs else ""),
        f"{asked.peak_bytes / row.batch_bytes:.1f}"
        + (f" / {theirs.peak_bytes / row.batch_bytes:.1f}" if theirs else ""),
    ]


def _ms(timing: Timing) -> str:
    return significant(timing.ms, 3)


def _us(seconds: float) -> str:
    return significant(seconds * 1e6, 3)


def _percent(timing: Timing) -> str:
    return "-" if isnan(spread(timing)) else f"{100 * spread(timing):.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"[red]{value:.2f}[/red]" if value < 1 else f"{value:.2f}"
