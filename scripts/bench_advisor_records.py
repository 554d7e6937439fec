"""What a benchmark of the advisor found. Times are in milliseconds a step unless they are named otherwise."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from audioaug.records import HostFacts, Interval
from audioaug.units import format_ms, format_percent, format_seconds, plural, significant

# Records


@dataclass(frozen=True)
class Predicted:
    """A candidate that the advisor did not race: its prediction, and the truth."""

    candidate: str
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
    """The step time of the advice relative to the best candidate; 1 is no regret. The best is from other rounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One workload: what the advisor said of it and, where all candidates were raced, how that compares with the truth.

    ``cause`` is the first cause, ``said`` all that were reported. ``answers`` are the right ones, none if unknown;
    ``first``: whether one of them must come first, or be reported at all. ``drifts``: the drift of the candidates
    that the advisor had raced, in each screening of the truth (median); ``true_ms`` is without it. ``again``: how far
    each of them is from the truth then, which was measured in the same way: as far as this machine is from itself.
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
        """Whether the right cause was named; ``None`` if it is unknown, or could not be planted here."""
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
        """All candidates that were only predicted."""
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


# Text

COLUMNS = ("workload", "today", "advice", "best", "regret %", "interval", "candidates", "error %", "s", "first cause")


def show(result: Result, console: Console) -> None:
    """Print everything."""
    host = result.host
    console.print(f"{host.device_name}, {host.usable_cores:g} cores, torch {host.versions.get('torch')}")
    real, planted = ([row for row in result.rows if bool(row.answers) is kind] for kind in (False, True))
    if real:
        console.print(_regrets(real))
    if planted:
        console.print(_causes(planted))
    for line in summary(result):
        console.print(line, markup=False, highlight=False)


def summary(result: Result) -> Iterable[str]:
    """Yield the sentences, losses included."""
    regrets, errors = result.regrets, [one.error for one in result.predictions]
    if regrets:
        yield (
            f"Regret over {plural(len(regrets), 'workload')}: median {format_percent(middle(regrets))}, worst "
            f"{format_percent(max(regrets))}."
        )
    if errors:
        covered = sum(one.covered for one in result.predictions) / len(errors)
        yield (
            f"Prediction error over {plural(len(errors), 'candidate')} that the advisor did not race: median "
            f"{format_percent(middle(errors))}, 90th percentile {format_percent(percentile(errors, 0.9))}; "
            f"{format_percent(covered)} lie within their interval."
        )
        again = [share for row in result.rows for share in row.again]
        yield (
            f"What it raced, measured again for the truth: median {format_percent(middle(again))}, 90th percentile "
            f"{format_percent(percentile(again, 0.9))} off. No prediction can be nearer than that."
        )
        drifts = [drift for row in result.rows for drift in row.drifts]
        if drifts:
            yield (
                f"Between advice and truth the machine drifted: steps took {min(drifts):.2f} to {max(drifts):.2f} "
                f"times as long (median {middle(drifts):.2f}). That is corrected for, by what both measured."
            )
    answered = result.answered
    if answered:
        right = sum(bool(row.right) for row in answered)
        yield f"First cause: {right} of {len(answered)} planted faults right ({format_percent(right / len(answered))})."
        for row in answered:
            if not row.right:
                yield f"  wrong: {row.name}: {row.failed or row.cause}, not {' or '.join(row.answers)}. {row.sentence}"
    if result.self_races:
        won = sum(race.won for race in result.self_races)
        races = plural(len(result.self_races), "race")
        yield f"A plan against itself: {won} false winners in {races} ({format_percent(won / len(result.self_races))})."
    times = [row.advisor_seconds for row in result.rows if row.advisor_seconds]
    if times:
        yield f"The advisor took {format_seconds(middle(times))} (median), at most {format_seconds(max(times))}."
    yield from (f"skipped: {row.name}: {row.skipped}" for row in result.rows if row.skipped)
    if result.load > result.host.usable_cores + 1:
        yield f"Others used the cores too (load {result.load:.1f}): run this alone."


def _regrets(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("workload", "first cause") else "right")
    for row in rows:
        table.add_row(*regret_cells(row))
    return table


def regret_cells(row: Row) -> list[str]:
    """Return a real workload as the columns show it: times of a step in ms, the regret with its interval."""
    if row.failed:
        return [row.name, "failed", *[""] * 7, row.failed]
    regret, errors = row.regret, [one.error for one in row.predicted]
    return [
        row.name,
        *(format_ms(ms) if ms else "-" for ms in (row.today_ms, row.advice_ms, row.best_ms)),
        "-" if regret is None else f"{100 * (regret.value - 1):.1f}",
        "" if regret is None else f"{100 * (regret.low - 1):.0f}..{100 * (regret.high - 1):.0f}",
        str(len(row.true_ms or ())),
        f"{100 * middle(errors):.0f}" if errors else "-",
        significant(row.advisor_seconds, 2),
        row.cause,
    ]


def _causes(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("fault", "planted", "found", "", "s"):
        table.add_column(name, justify="right" if name == "s" else "left")
    for row in rows:
        mark = "-" if row.right is None else "right" if row.right else "[red]WRONG[/red]"
        answer = " or ".join(row.answers) + ("" if row.first else " (reported beside)")
        found = row.skipped or row.failed or row.cause
        table.add_row(row.name.removeprefix("planted: "), answer, found, mark, significant(row.advisor_seconds, 2))
    return table
