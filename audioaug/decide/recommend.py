"""Recommend one of the raced candidates, with its ties, the verdict and the cause."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import get_args

from audioaug.decide.ablation import evidence, single_changes
from audioaug.decide.causes.case import is_timed
from audioaug.decide.diagnose import NOT_THE_BOTTLENECK, causes, stall
from audioaug.decide.predict import device_ms
from audioaug.decide.race import MARGIN, Ratio, paired_ratio, ties
from audioaug.records import (
    GRAPH_ENGINES,
    Allocation,
    Candidate,
    DeviceEngine,
    Interval,
    Measurement,
    Notice,
    Recommendation,
    Report,
    Timing,
)
from audioaug.units import Seconds, format_interval, format_ms, format_percent, format_seconds, plural

NEVER_RECOMMENDED: tuple[DeviceEngine, ...] = ("torch-audiomentations",)
"""Engines whose audio differs from the reference's: raced only on request."""


WAITED = 0.02
"""Share of the cores that a run waited for, below which it does not matter what other programs use."""

BUSY, TOO_BUSY = 0.1, 0.25
"""Shares of the cores used by other programs: above the first the report says so and intervals widen; above the second
only a candidate that is faster in every round is recommended."""


MAY_BE_MISSED = 0.15
"""How much faster than what is kept another candidate may still be, as far as is known."""

ENOUGH_ROUNDS = 3
"""Fewest rounds that a winner of every round must have run in."""


def recommend(report: Report, measurements: Mapping[str, Measurement], margin: float = MARGIN) -> Report:
    """Return the report with verdict, causes, recommendation, allocation and break-even filled in.

    ``report.candidates`` and ``report.current`` hold the raced candidates, ``measurements`` theirs by name. ``margin``:
    the smallest relevant difference, as a share.
    """
    assert report.current is not None and report.ceiling is not None
    current = report.current
    raced = {candidate.name: candidate for candidate in report.candidates if candidate.status == "raced"}
    eligible = {
        name for name, candidate in raced.items() if name == current.name or _may_be_recommended(report, candidate)
    }
    close = ties({name: found for name, found in measurements.items() if name in eligible}, margin)
    chosen = _pick([raced[name] for name in close], current, measurements)
    too_busy = is_impossible(report, current) or (
        is_too_busy(report) and not _always_faster(measurements[chosen.name], measurements[current.name])
    )
    if too_busy:
        chosen, close = current, [current.name]
    report = replace(report, break_even_steps=_break_even(report, chosen))
    cause, *others = causes(report, current, chosen)
    ratio = paired_ratio(measurements[current.name], measurements[chosen.name])
    beaten = {current.name} if ratio.low > 1 else set()  # a planned comparison: no correction
    if len(measurements[chosen.name].step.seconds) == 1:  # nothing is known of ties; the verdict says "measured once"
        close = []
    found = Recommendation(
        **asdict(chosen),
        tie_with=tuple(name for name in close if name not in {chosen.name, *beaten}),
        because=" ".join(filter(None, (cause.text, evidence(current, single_changes(report, current, chosen))))),
        margin=margin,
    )
    if too_busy:
        verdict = _too_busy(report, current)
    else:
        kept = chosen.name == current.name
        verdict = _keep_words(report, measurements, eligible) if kept else _use(report, chosen, ratio)
        verdict += _tie_words(found) + _busy_words(report)
    return replace(
        report,
        verdict=verdict,
        cause=cause.id,
        recommendation=found,
        before=allocation(report, current, measurements.get(current.name)),
        after=allocation(report, chosen, measurements.get(chosen.name)),
        notices=_with_causes(report, others),
    )


def leave_as_it_is(report: Report) -> Report:
    """Return the report of an early exit: the current configuration is too close to the ceiling to be improved."""
    assert report.current is not None
    found = replace(report, candidates=(report.current,))
    return _keep(found, _leave(report) + _busy_words(report))


def too_few_steps(report: Report, budget: Seconds) -> Report:
    """Return the report if the budget, in seconds, is too short to race anything: steps take too long."""
    assert report.current is not None and report.current.measured_ms
    verdict = (
        f"A step takes {format_ms(report.current.measured_ms)}: {format_seconds(budget)} are too short to compare "
        "candidates."
    )
    known = [each for each in report.candidates if each.predicted_ms is not None and each.status == "predicted"]
    if known:
        best = min(known, key=lambda each: each.predicted_ms or math.inf)
        verdict += f" Predicted to be the fastest: {best.name}, {format_ms(best.predicted_ms or 0.0)}."
    return _keep(report, verdict)


def _keep(report: Report, verdict: str) -> Report:
    """Return the report with this verdict that recommends the current configuration, which alone was measured."""
    assert report.current is not None
    cause, *others = causes(report, report.current)
    measured = next((each for each in report.measurements if each.candidate == report.current.name), None)
    parts = allocation(report, report.current, measured)
    return replace(
        report,
        verdict=verdict,
        cause=cause.id,
        recommendation=Recommendation(**asdict(report.current), because=cause.text),
        before=parts,
        after=parts,
        notices=_with_causes(report, others),
    )


def may_leave(current: Measurement, ceiling: Measurement) -> bool:
    """Return whether the current configuration's stall is significantly below 2 %."""
    return 1 - 1 / paired_ratio(current, ceiling).high <= NOT_THE_BOTTLENECK


def beside_others(report: Report) -> Report:
    """Return the report with intervals extended by what other programs may have cost, if they used enough cores.

    If they used a share s of the cores, what took t beside them takes between (1 - s) t and t alone.
    """
    share = _foreign_share(report)
    if not share or report.ceiling is None or report.current is None:
        return report

    def extended(interval: Interval) -> Interval:
        return (1 - share) * interval[0], interval[1]

    def measured(candidate: Candidate) -> Candidate:
        known = candidate.measured_ci_ms
        return candidate if known is None else replace(candidate, measured_ci_ms=extended(known))

    return replace(
        report,
        ceiling=replace(report.ceiling, ci_ms=extended(report.ceiling.ci_ms)),
        current=measured(report.current),
        candidates=tuple(map(measured, report.candidates)),
    )


def _foreign_share(report: Report) -> float:
    """Return the share of the cores that other programs used; 0 if it is small or today's run hardly waited for one."""
    found = report.signals
    share, cores = found.foreign_share or 0.0, found.watched_cores or 1
    waited = found.wanted_cores is None or found.wanted_cores >= WAITED * cores
    return share if share >= BUSY and waited else 0.0


def is_too_busy(report: Report) -> bool:
    """Return whether other programs used so much that only a clear winner may be recommended."""
    return _foreign_share(report) > TOO_BUSY


def _always_faster(one: Measurement, other: Measurement) -> bool:
    """Return whether one was faster in every round that both ran in, of which there are several."""
    pairs = list(zip(one.step.seconds, other.step.seconds, strict=False))
    return len(pairs) >= ENOUGH_ROUNDS and all(a < b for a, b in pairs)


def _may_be_recommended(report: Report, candidate: Candidate) -> bool:
    return candidate.device_engine not in NEVER_RECOMMENDED and not is_impossible(report, candidate)


def is_impossible(report: Report, candidate: Candidate) -> bool:
    """Return whether a candidate's step was measured below the ceiling, which it contains, beyond both intervals."""
    if report.ceiling is None or candidate.measured_ci_ms is None:
        return False
    return candidate.measured_ci_ms[1] * (1 + MARGIN) < report.ceiling.ci_ms[0]


def without_waiting(today: Measurement, name: str) -> Measurement:
    """Return the same steps without their waiting time, as a measurement of this name.

    Without workers, on the CPU, that is the model alone, measured at the same moments: drift cancels.
    """
    model = tuple(step - wait for step, wait in zip(today.step.seconds, today.wait.seconds, strict=True))
    return replace(today, candidate=name, step=Timing(model), wait=Timing((0.0,) * len(model)))


def allocation(report: Report, candidate: Candidate, measured: Measurement | None = None) -> Allocation | None:
    """Split a candidate's measured step into model, augmentation on the device, waiting for data, and contention.

    ``measured``: its blocks, with the time that the training loop blocked on a batch. On a CPU that includes the
    augmentation on the device. Without them, all that is left is waiting.
    """
    if report.ceiling is None or candidate.measured_ms is None:
        return None
    model = min(report.ceiling.step_ms, candidate.measured_ms)
    device = device_ms(report, replace(candidate, threads=report.ceiling.threads or None))
    augment = min(max(0.0, device[1] - report.ceiling.step_ms) if device else 0.0, candidate.measured_ms - model)
    rest = candidate.measured_ms - model - augment
    if measured is None or not is_timed(measured):
        return Allocation(model, augment, rest)
    blocked = measured.wait.ms - (0.0 if report.host.has_gpu else augment)
    wait = min(max(0.0, blocked), rest)
    return Allocation(model, augment, wait, rest - wait)


def _pick(ties: list[Candidate], current: Candidate, measurements: Mapping[str, Measurement]) -> Candidate:
    """Choose among the ties (fastest first) whose measured time is within the margin of the fastest.

    A graph engine is left out if the same candidate without it is tied. Order of preference: the current configuration
    (even within two margins, by either measure: a change has its price), plain batched ops, fewer workers, fewer CPU
    seconds, no split.
    """
    names = {candidate.name for candidate in ties}
    ties = [
        candidate
        for candidate in ties
        if candidate.device_engine not in GRAPH_ENGINES or _without_graphs(candidate).name not in names
    ]
    fastest = ties[0]
    slower = paired_ratio(measurements[current.name], measurements[fastest.name]).value

    def is_within(candidate: Candidate, margin: float) -> bool:
        return (candidate.measured_ms or 0.0) <= (1 + margin) * (fastest.measured_ms or 0.0)

    same = next((candidate for candidate in ties if candidate.name == current.name), None)
    if same is not None and (slower <= 1 + 2 * MARGIN or is_within(same, 2 * MARGIN)):
        return same

    def order(candidate: Candidate) -> tuple[int, int, float, bool]:
        engine = 0 if candidate.placement == "cpu" else get_args(DeviceEngine).index(candidate.device_engine)
        return (
            engine,
            candidate.num_workers,
            round(candidate.cpu_seconds_per_step or 0.0, 3),
            candidate.placement == "split",
        )

    return min((candidate for candidate in ties if is_within(candidate, MARGIN)), key=order)


def _without_graphs(candidate: Candidate) -> Candidate:
    return replace(candidate, device_engine="batched")


def _use(report: Report, candidate: Candidate, ratio: Ratio) -> str:
    assert report.current is not None and report.current.measured_ms and candidate.measured_ms
    free = 1 - min(0.9, _foreign_share(report))
    several = math.isfinite(ratio.high)
    certainty = format_interval(free * max(ratio.low, 0.0), ratio.high / free) if several else "measured once"
    return (
        f"Use {candidate.name}: {format_ms(candidate.measured_ms)} a step instead of "
        f"{format_ms(report.current.measured_ms)}, "
        f"{ratio.value:.2f}x faster ({certainty}); "
        f"the remaining stall is {format_percent(stall(report, candidate.measured_ms))}."
    )


def _too_busy(report: Report, current: Candidate) -> str:
    assert report.ceiling is not None
    if is_impossible(report, current):
        why = (
            f"your configuration was measured at {format_ms(current.measured_ms or 0.0)} a step, below the model alone "
            f"({format_ms(report.ceiling.step_ms)})"
        )
    else:
        why = (
            f"other programs used {format_percent(_foreign_share(report))} of the cores, and no candidate "
            "was faster than your configuration in every round"
        )
    return f"The machine was too busy to tell: {why}. Run this again on a quiet machine."


def _busy_words(report: Report) -> str:
    share = _foreign_share(report)
    if not share:
        return ""
    return f" Meanwhile other programs used {format_percent(share)} of the cores, so the times are uncertain."


def _keep_words(report: Report, measurements: Mapping[str, Measurement], eligible: Collection[str]) -> str:
    """Say that nothing is faster than the current configuration, or what may be, as far as is known."""
    why = _may_be_faster(report, measurements, eligible)
    assert report.current is not None and report.current.measured_ms
    if not why:
        return _leave(report)
    return (
        f"Too few steps to tell: no raced candidate is faster than your configuration ({report.current.name}, "
        f"{format_ms(report.current.measured_ms)} a step), but {why}. Keep it, or ask again with a larger --budget."
    )


def _may_be_faster(report: Report, measurements: Mapping[str, Measurement], eligible: Collection[str]) -> str:
    """Say which candidate may be far faster than the current configuration; an empty string if none may be."""
    current, ceiling = report.current, report.ceiling
    assert current is not None and current.measured_ms and ceiling is not None
    most, least = current.measured_ms / ceiling.ci_ms[0], 1 + MAY_BE_MISSED
    today = measurements[current.name]
    possible = {name: min(most, paired_ratio(today, measurements[name]).high) for name in eligible}
    likely = {
        each.name: current.measured_ms / each.predicted_ms
        for each in report.candidates
        if each.status == "predicted" and each.predicted_ms
    }
    if most > least and (name := max(likely, key=likely.__getitem__, default="")) and likely[name] > least:
        ms = current.measured_ms / likely[name]
        return f"{name}, which there was no time to race, is predicted to take {format_ms(ms)}"
    if (name := max(possible, key=possible.__getitem__)) != current.name and possible[name] > least:
        blocks = plural(len(measurements[name].step.seconds), "block")
        gain = f"{format_percent(possible[name] - 1)} faster" if possible[name] < 2 else "far faster"
        return f"after {blocks} of each, {name} may still be {gain}"
    return ""


def _leave(report: Report) -> str:
    assert report.current is not None and report.current.measured_ms
    gain = stall(report, report.current.measured_ms)
    if gain <= NOT_THE_BOTTLENECK:
        return (
            "Leave it as it is: data loading is not your bottleneck; "
            f"the most you could gain is {format_percent(gain)}."
        )
    return (
        f"Leave it as it is ({report.current.name}): no raced candidate is faster, although "
        f"the stall is {format_percent(gain)}."
    )


def _with_causes(report: Report, causes: Sequence[Notice]) -> tuple[Notice, ...]:
    """Return all notices, followed by the causes that are not among them."""
    known = {notice.id for notice in report.notices}
    return (*report.notices, *(cause for cause in causes if cause.id not in known))


def _tie_words(found: Recommendation) -> str:
    if not found.tie_with:
        return ""
    itself = (
        f": on this machine the same plan may differ from itself by {format_percent(found.margin)}"
        if found.margin > MARGIN
        else ""
    )
    return f" It is a tie with {' and '.join(found.tie_with)}{itself}."


def _break_even(report: Report, chosen: Candidate) -> int | None:
    """Return after how many steps the saved time exceeds the cost of the advice."""
    assert report.current is not None and report.current.measured_ms and chosen.measured_ms
    saved_ms = report.current.measured_ms - chosen.measured_ms
    return round(report.cost_seconds * 1e3 / saved_ms) if saved_ms > 0.01 * chosen.measured_ms else None
