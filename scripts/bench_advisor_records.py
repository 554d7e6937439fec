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
class Repeat:
    """A further run of the advisor on the same workload."""

    advice: str
    verdict: str


CHANGES = {
    "too_few_workers": ("num_workers",),
    "too_many_workers": ("num_workers",),
    "thread_oversubscription": ("threads",),
    "augment_cpu_bound": ("cut", "worker_engine", "device_engine"),
    "order_blocks_split": ("cut", "worker_engine", "device_engine"),
    "main_thread_bound": ("cut", "worker_engine", "device_engine"),
    "sandbagged_wait": ("threads", "num_workers", "cut"),
}
"""The settings that a cause names. It is right if the change of one of them alone gives at least half of the gain.

Any other cause names no setting, and is right if no single change gives half of the gain, or there is no gain.
"""

ALSO_WORKERS = ("decode_bound", "fetch_bound", "cpu_only_transform")
"""Causes that are right as well if that change is the number of workers."""

SMALLEST_GAIN, MOST_OF, FALSE_LEAVE, SAME = 0.03, 0.5, 1.15, 1.05

TOO_BUSY = "The machine was too busy to tell"
WHY_NOT = (TOO_BUSY, "It is a tie", "are too short to compare", "Too few steps to tell")
"""What a verdict says where another run may recommend another candidate."""


@dataclass(frozen=True)
class Row:
    """One workload: what the advisor said of it and, where that was judged, what training says.

    ``cause`` is the first cause, ``said`` all that were reported. ``answers`` are the right ones, none if unknown;
    ``first``: whether one of them must come first, or be reported at all. ``budget``: seconds for the advice.
    ``true_ms``: the judge's step times by candidate (``today_ms``, ``advice_ms`` and ``best_ms`` too); ``shares``:
    the share of the measured gain that each single change gives, by setting. ``impossible``: candidates that were
    recommended, or printed without a notice, although measured below the ceiling. ``repeats``: further runs.
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
    true_ms: dict[str, float] | None = None
    failed: str = ""
    skipped: str = ""
    condition: str = "quiet"
    budget: float = 0.0
    shares: dict[str, float] | None = None
    impossible: tuple[str, ...] = ()
    repeats: tuple[Repeat, ...] = ()

    @property
    def right(self) -> bool | None:
        """Whether the right cause was named; ``None`` if it is unknown, or could not be planted here."""
        if not self.answers or self.skipped:
            return None
        return self.cause in self.answers if self.first else bool({*self.answers} & {self.cause, *self.said})

    @property
    def is_too_busy(self) -> bool:
        """Whether the verdict is that the machine was too busy to tell, which is no advice."""
        return self.verdict.startswith(TOO_BUSY)

    @property
    def is_cause_right(self) -> bool | None:
        """Whether the judge agrees with the first cause (see ``CHANGES``); ``None`` if that is unknown."""
        if self.shares is None or self.is_too_busy or not self.today_ms or not self.advice_ms:
            return None
        gains = self.today_ms / self.advice_ms > 1 + SMALLEST_GAIN
        explain = {knob for knob, share in self.shares.items() if share >= MOST_OF} if gains else set()
        if self.cause in CHANGES:
            return bool(explain & {*CHANGES[self.cause]}) if gains else None
        # Without workers today, the change of their engine includes that of their number.
        more_workers = {"num_workers", "worker_engine"} if "num_workers" in explain else set()
        return explain <= (more_workers if self.cause in ALSO_WORKERS else set())

    @property
    def is_wrongly_left(self) -> bool:
        """Whether the verdict is to leave it, but a judged candidate is more than 15 % faster, in other rounds too."""
        left = self.verdict.startswith("Leave it as it is")
        return left and self.regret is not None and self.regret.value > FALSE_LEAVE

    @property
    def agrees(self) -> bool | None:
        """Whether every further run recommends an equally fast candidate or says why not; ``None`` without them."""
        if not self.repeats or self.true_ms is None:
            return None
        times, runs = self.true_ms, [Repeat(self.advice, self.verdict), *self.repeats]
        fastest = min(times[run.advice] for run in runs)
        return all(times[run.advice] <= SAME * fastest or any(why in run.verdict for why in WHY_NOT) for run in runs)


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
    quick: bool = False

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

COLUMNS = (
    "workload",
    "today",
    "advice",
    "best",
    "regret %",
    "interval",
    "candidates",
    "error %",
    "s",
    "first cause",
    "right",
)


def show(result: Result, console: Console) -> None:
    """Print everything."""
    host = result.host
    console.print(f"{host.device_name}, {host.usable_cores:g} cores, torch {host.versions.get('torch')}")
    real, planted = ([row for row in result.rows if bool(row.answers) is kind] for kind in (False, True))
    if real:
        console.print(_regrets(sorted(real, key=lambda row: row.name)))
    if planted:
        console.print(_causes(planted))
    for line in summary(result):
        console.print(line, markup=False, highlight=False)


def summary(result: Result) -> Iterable[str]:
    """Yield the sentences, losses included."""
    for title, conditions in GROUPS.items():
        rows = [row for row in result.rows if row.condition in conditions]
        yield from (f"{title}: {sentence}" for sentence in _goals(rows, GOALS[result.quick, title]))
    yield from _counts(result)
    errors = [one.error for one in result.predictions]
    if errors:
        covered = sum(one.covered for one in result.predictions) / len(errors)
        yield (
            f"Prediction error over {plural(len(errors), 'candidate')} that the advisor did not race: median "
            f"{format_percent(middle(errors))}, 90th percentile {format_percent(percentile(errors, 0.9))}; "
            f"{format_percent(covered)} lie within their interval."
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
    alone = all(row.condition in GROUPS["Quiet"] for row in result.rows)
    if alone and result.load > result.host.usable_cores + 1:
        yield f"Others used the cores too (load {result.load:.1f}): run this alone."


GROUPS = {"Quiet": ("quiet", "threads"), "Busy": ("busy", "comes and goes")}
"""Conditions that have goals in common."""

GOALS = {
    (False, "Quiet"): (0.03, 0.08, 0.95),
    (False, "Busy"): (0.05, 0.15, 0.90),
    (True, "Quiet"): (0.05, 0.15, 0.95),
    (True, "Busy"): (0.05, 0.15, 0.90),
}
"""With and without ``--quick``: the highest median and worst regret, the lowest share of right causes."""

AGREE, WITHIN_BUDGETS = 0.95, 2.0
"""Goals: the share of workloads whose runs agree, and the time of a quick run relative to its budget."""


def _goals(rows: list[Row], goals: tuple[float, float, float]) -> Iterable[str]:
    """Yield regret and right causes, each with its goal."""
    judged = [row for row in rows if row.regret is not None and not row.is_too_busy]
    regrets = [max(0.0, row.regret.value - 1) for row in judged if row.regret is not None]
    if regrets:
        yield (
            f"regret over {plural(len(regrets), 'workload')}: median {_with_goal(middle(regrets), most=goals[0])}, "
            f"worst {_with_goal(max(regrets), most=goals[1])}."
        )
    told = [row for row in rows if row.is_cause_right is not None]
    if told:
        share = sum(bool(row.is_cause_right) for row in told) / len(told)
        yield f"first cause right in {_with_goal(share, least=goals[2])} of {plural(len(told), 'workload')}."
        yield from (f"wrong cause: {row.name}: {row.cause}; {_shares(row)}." for row in told if not row.is_cause_right)
    busy = [row.name for row in rows if row.regret is not None and row.is_too_busy]
    if busy:
        yield f"too busy to tell, which is no advice: {'; '.join(busy)}."


def _counts(result: Result) -> Iterable[str]:
    """Yield what must not happen, how often runs agree, and how long quick ones take."""
    if not any(row.shares is not None for row in result.rows):
        return
    left = [row.name for row in result.rows if row.is_wrongly_left]
    impossible = [f"{row.name}: {name}" for row in result.rows for name in row.impossible]
    yield f'False "Leave it as it is": {_none(left)}.'
    yield f"Impossible results printed: {_none(impossible)}."
    repeated = [row for row in result.rows if row.agrees is not None]
    if repeated:
        share = sum(bool(row.agrees) for row in repeated) / len(repeated)
        yield f"Runs agree or say why not in {_with_goal(share, least=AGREE)} of {plural(len(repeated), 'workload')}."
    timed = [row for row in result.rows if row.regret is not None and row.budget]
    late = [row.name for row in timed if row.advisor_seconds > WITHIN_BUDGETS * row.budget]
    if timed:
        share = 1 - len(late) / len(timed)
        yield f"Within twice the budget: {_with_goal(share, least=1.0)}{': not ' * bool(late)}{'; '.join(late)}."


def _with_goal(share: float, most: float | None = None, least: float | None = None) -> str:
    """Return a share with its goal, and whether that is met."""
    is_met = share <= most if most is not None else share >= (least or 0.0)
    words = f"at most {100 * most:g} %" if most is not None else f"at least {100 * (least or 0.0):g} %"
    return f"{format_percent(share)} (goal {words}: {'met' if is_met else 'MISSED'})"


def _none(names: list[str]) -> str:
    return f"{len(names)} (goal 0: {'MISSED): ' + '; '.join(names) if names else 'met)'}"


def _shares(row: Row) -> str:
    parts = (f"{knob} alone gives {format_percent(share)}" for knob, share in (row.shares or {}).items())
    return ", ".join(parts) or "no single change"


def _regrets(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("workload", "first cause", "right") else "right")
    for row in rows:
        table.add_row(*regret_cells(row))
    return table


def regret_cells(row: Row) -> list[str]:
    """Return a real workload as the columns show it: times of a step in ms, the regret with its interval."""
    if row.failed:
        return [row.name, "failed", *[""] * 7, row.failed, ""]
    regret, errors = row.regret, [one.error for one in row.predicted]
    return [
        row.name,
        *(format_ms(ms) if ms else "-" for ms in (row.today_ms, row.advice_ms, row.best_ms)),
        "-" if regret is None else f"{100 * (regret.value - 1):.1f}",
        "" if regret is None else f"{100 * (regret.low - 1):.0f}..{100 * (regret.high - 1):.0f}",
        str(len(row.true_ms or ())),
        f"{100 * middle(errors):.0f}" if errors else "-",
        significant(row.advisor_seconds, 2),
        "too busy to tell" if row.is_too_busy else row.cause,
        {None: "-", True: "yes", False: "no"}[row.is_cause_right],
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
