"""Compare: what changed between two reports, or between two monitored runs, in words and with intervals.

A time is called different only if the intervals of both runs do not overlap; the interval of the factor between them
reaches from their closest to their farthest ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from audioaug.errors import UsageError
from audioaug.records import (
    BOTTLENECKS,
    Candidate,
    HostFacts,
    Interval,
    MonitoredRun,
    Report,
    StageCost,
    Timing,
    Window,
    main_bottleneck,
    waiting_share,
)
from audioaug.units import format_interval, format_ms, format_percent, plural

MOST_STAGES = 8
"""Most stages that are listed."""

FEWEST_WINDOWS = 5
"""Fewest windows of a monitored run for an interval."""

HOST_WORDS = {
    "cpu": "CPU",
    "device_name": "GPU",
    "usable_cores": "usable cores",
    "torch_threads": "threads of torch",
    "start_method": "start method",
    "local_ranks": "local ranks",
}


@dataclass(frozen=True)
class Times:
    """A step time in both runs, in milliseconds, with intervals."""

    before_ms: float
    before_ci_ms: Interval
    now_ms: float
    now_ci_ms: Interval

    @property
    def differs(self) -> bool:
        """Whether the intervals do not overlap."""
        return self.before_ci_ms[1] < self.now_ci_ms[0] or self.now_ci_ms[1] < self.before_ci_ms[0]

    @property
    def factor(self) -> float:
        """How many times longer it takes now."""
        return self.now_ms / self.before_ms

    def __str__(self) -> str:
        """Both times, and the factor if they differ and neither is 0."""
        both = f"{_spread(self.before_ms, self.before_ci_ms)} before, {_spread(self.now_ms, self.now_ci_ms)} now"
        if not self.differs:
            return f"{both}: no significant difference"
        if not min(*self.before_ci_ms, *self.now_ci_ms) > 0:
            return both
        (a, b), (c, d) = self.before_ci_ms, self.now_ci_ms
        slower = self.factor > 1
        factor, low, high = (self.factor, c / b, d / a) if slower else (1 / self.factor, a / d, b / c)
        return f"{both}: {factor:.2f}x {'slower' if slower else 'faster'} ({format_interval(low, high)})"


def compare_reports(before: Report, now: Report) -> tuple[str, ...]:
    """Return what changed from one report to another, a line each.

    Raises:
        UsageError: a run did not finish, or they are of different models, chains or batch sizes.
    """
    _check_same_work(before, now)
    return (
        *host_changes(before.host, now.host),
        *_step_changes(before, now),
        *_advice_changes(before, now),
        *_stage_changes(before, now),
    )


def compare_runs(
    before: tuple[MonitoredRun, Sequence[Window]], now: tuple[MonitoredRun, Sequence[Window]]
) -> tuple[str, ...]:
    """Return what changed from one monitored run to another, a line each: medians over windows, with intervals.

    Raises:
        UsageError: a run has fewer than ``FEWEST_WINDOWS``.
    """
    for name, (_, windows) in (("first", before), ("second", now)):
        if len(windows) < FEWEST_WINDOWS:
            raise UsageError(
                f"The {name} run has {plural(len(windows), 'window')} of training steps; {FEWEST_WINDOWS} are needed.",
                "Compare longer runs; a window lasts about a second.",
            )
    steps, waits = (
        [Timing(tuple(getattr(window, field) / 1e3 for window in windows)) for _, windows in (before, now)]
        for field in ("step_ms", "wait_ms")
    )
    shares = [waiting_share(windows) for _, windows in (before, now)]
    return (
        *host_changes(before[0].host, now[0].host),
        f"A step: {_times(*steps)}.",
        f"Waiting for data in a step: {_times(*waits)}; {format_percent(shares[0])} of the time before, "
        f"{format_percent(shares[1])} now.",
        *_bottleneck_changes(before[1], now[1]),
    )


def host_changes(before: HostFacts, now: HostFacts) -> Iterator[str]:
    """Yield what differs between two machines: their parts, and the versions of what is installed."""
    for name, words in HOST_WORDS.items():
        if (old := getattr(before, name)) != (new := getattr(now, name)):
            yield f"{words}: {old or 'none'} before, {new or 'none'} now."
    for name in sorted({*before.versions, *now.versions}):
        if (old := before.versions.get(name)) != (new := now.versions.get(name)):
            yield f"{name}: {old or 'not installed'} before, {new or 'not installed'} now."


def _check_same_work(before: Report, now: Report) -> None:
    for report, which in ((before, "first"), (now, "second")):
        if report.ceiling is None or report.current is None or report.recommendation is None:
            raise UsageError(f"The {which} report is of a run that did not finish.", "Run the advisor again.")
    works = {
        "models": [f"{it.workload.model}, {it.workload.parameters:,} parameters" for it in (before, now)],
        "chains": [f"{' > '.join(it.chain.ops)} ({it.chain.hash})" for it in (before, now)],
        "batches": [f"{it.workload.batch_size} clips at {it.workload.precision}" for it in (before, now)],
        "clips": [f"{it.workload.clip_seconds:g} s at {it.workload.sample_rate} Hz" for it in (before, now)],
    }
    for what, (old, new) in works.items():
        if old != new:
            raise UsageError(f"The reports are of different {what}: {old}; {new}.", "Compare the same training.")


def _step_changes(before: Report, now: Report) -> Iterator[str]:
    assert before.ceiling and now.ceiling and before.current and now.current
    a, b = before.ceiling, now.ceiling
    yield f"The model alone: {Times(a.step_ms, a.ci_ms, b.step_ms, b.ci_ms)}."
    if before.current.name == now.current.name:
        yield f"What you do today, {now.current.name}: {_measured(before.current, now.current)}."
    else:
        yield f"What you do today was {before.current.name} and is {now.current.name}."


def _advice_changes(before: Report, now: Report) -> Iterator[str]:
    old, new = before.best, now.best
    if old.name == new.name:
        yield f"The advice is the same, {new.name}: {_measured(old, new)}."
    else:
        was = next((it for it in now.candidates if it.name == old.name and it.measured_ms is not None), None)
        ties = "; in a tie with the former advice" if old.name in new.tie_with else ""
        yield f"The advice was {old.name} and is {new.name}{ties}."
        if was is not None:
            yield f"The former advice: {_measured(old, was)}."
    if before.cause != now.cause:
        yield f"The first cause was {before.cause} and is {now.cause}."


def _stage_changes(before: Report, now: Report) -> Iterator[str]:
    """Yield the stages that changed, the largest factor first."""
    old = {_key(stage): stage for stage in before.stages}
    pairs = [(old[_key(stage)], stage) for stage in now.stages if _key(stage) in old]
    found = [(stage, times) for was, stage in pairs if (times := _stage_times(was, stage)) is not None]
    changed = sorted(
        ((stage, times) for stage, times in found if times.differs),
        key=lambda pair: -max(pair[1].factor, 1 / pair[1].factor),
    )
    for stage, times in changed[:MOST_STAGES]:
        engine = f", {stage.engine}" if stage.engine else ""
        yield f"{stage.name} ({stage.where}{engine}): {times}."
    more = len(changed) - MOST_STAGES
    if more > 0:
        yield f"{plural(more, 'more stage')} changed by less."
    if found and not changed:
        yield f"No stage of {len(found)} changed significantly."


def _key(stage: StageCost) -> tuple[str, str, str, int | None]:
    return stage.name, stage.where, stage.engine, stage.op


def _stage_times(before: StageCost, now: StageCost) -> Times | None:
    """Return the times of a stage; ``None`` if one of them or its interval is unknown."""
    if not (before.ms_per_batch and now.ms_per_batch and before.ci_ms and now.ci_ms):
        return None
    return Times(before.ms_per_batch, before.ci_ms, now.ms_per_batch, now.ci_ms)


def _measured(before: Candidate, now: Candidate) -> str:
    if not (before.measured_ms and now.measured_ms and before.measured_ci_ms and now.measured_ci_ms):
        return "not measured in both runs"
    return str(Times(before.measured_ms, before.measured_ci_ms, now.measured_ms, now.measured_ci_ms))


def _times(before: Timing, now: Timing) -> Times:
    return Times(before.ms, before.ci_ms, now.ms, now.ci_ms)


def _bottleneck_changes(before: Sequence[Window], now: Sequence[Window]) -> Iterator[str]:
    old, new = (main_bottleneck(windows) for windows in (before, now))
    if old != new:
        yield f"The main bottleneck was {BOTTLENECKS.get(old, old)} and is {BOTTLENECKS.get(new, new)}."


def _spread(ms: float, ci_ms: Interval) -> str:
    return f"{format_ms(ms)} ({format_interval(*ci_ms)})"
