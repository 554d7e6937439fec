"""Bars and charts: where a step's time goes, as characters, and the geometry of what templates draw as SVG.

Lengths of drawings are in pixels, x to the right, y down.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from audioaug.records import Allocation, Candidate, Ceiling, Interval, Report
from audioaug.report.costs import OpCost
from audioaug.report.parts import Bars, Part
from audioaug.units import format_ms, format_seconds

Share = Literal["model", "augment", "wait", "contention"]

CHARACTERS: dict[Share, str] = {"model": "#", "augment": "=", "wait": ".", "contention": "~"}
WORDS: dict[Share, str] = {
    "model": "model",
    "augment": "augmentation",
    "wait": "waiting",
    "contention": "contention",
}
LEGEND = ("# model", "= augmentation on the device", ". waiting for data", "~ contention for cores")


def bar_parts(report: Report) -> tuple[Part, ...]:
    """Return the bars of today and of the recommendation, if known."""
    items = (("today", report.before), ("advised", report.after))
    known = tuple((name, allocation) for name, allocation in items if allocation is not None)
    return (Bars(known),) if known else ()


def shares(allocation: Allocation) -> dict[Share, float]:
    """Return the milliseconds of each share, in drawing order."""
    return {
        "model": allocation.model_ms,
        "augment": allocation.augment_ms,
        "wait": allocation.wait_ms,
        "contention": allocation.contention_ms,
    }


def runs(allocation: Allocation, longest_ms: float, width: int) -> list[tuple[Share, str]]:
    """Return the bar as runs of characters, ``width`` for ``longest_ms``; ends are rounded, not lengths."""
    found, end_ms, end = [], 0.0, 0
    for share, ms in shares(allocation).items():
        end_ms += max(0.0, ms)
        start, end = end, round(end_ms / longest_ms * width) if longest_ms > 0 else 0
        found.append((share, CHARACTERS[share] * (end - start)))
    return found


def longest_ms(bars: Bars) -> float:
    """Return the step time that fills the width."""
    return max(sum(max(0.0, ms) for ms in shares(allocation).values()) for _, allocation in bars.items)


def caption(allocation: Allocation) -> str:
    """Return the numbers of a bar without zero shares: ``284 ms = model 38.0 ms + waiting 246 ms``."""
    least = 1e-6 * allocation.total_ms  # below it is what subtraction leaves of nothing
    named = [f"{WORDS[share]} {format_ms(ms)}" for share, ms in shares(allocation).items() if ms > least]
    return " = ".join(filter(None, (format_ms(allocation.total_ms), " + ".join(named))))


def plain(bars: Bars, width: int) -> str:
    """Return the legend, and each bar below its label and numbers, as plain text."""
    lines = ["   ".join(LEGEND)]
    for label, allocation in bars.items:
        bar = "".join(characters for _, characters in runs(allocation, longest_ms(bars), width))
        lines += ["", f"{label}: {caption(allocation)}", bar]
    return "\n".join(lines)


WIDTH, HEIGHT = 480.0, 72.0
SEEN = 1.5


@dataclass(frozen=True)
class TimeChart:
    """A meter over time: lines (broken where unknown), the target band, and changes of the bottleneck.

    ``full`` labels the top of the vertical axis, whose bottom is 0; ``ticks`` the horizontal one, evenly spaced.
    """

    name: str
    now: str
    target: str
    full: str
    ticks: tuple[str, ...]
    lines: tuple[str, ...]
    band: tuple[float, float] | None
    moves: tuple[float, ...]
    width: float = WIDTH
    height: float = HEIGHT


def time_chart(
    name: str,
    now: str,
    times: Sequence[float],
    shares: Sequence[float | None],
    moves: Sequence[float],
    words: str,
    target: Interval | None,
    full: str,
) -> TimeChart:
    """Return the chart of shares over time, in seconds; values outside 0 .. 1 are clipped."""
    band = None if target is None else (HEIGHT * (1 - target[1]), HEIGHT * (target[1] - target[0]))
    runs: list[list[str]] = [[]]
    for place, share in zip(places_in_time(times, times), shares, strict=True):
        if share is None:
            runs.append([])
        else:
            runs[-1].append(f"{place:.1f},{HEIGHT * (1 - min(1.0, max(0.0, share))):.1f}")
    lines = tuple(" ".join(points if len(points) > 1 else points * 2) for points in runs if points)
    marks = tuple(round(place, 1) for place in places_in_time(moves, times))
    return TimeChart(name, now, words, full, time_ticks(times), lines, band, marks)


def time_ticks(times: Sequence[float]) -> tuple[str, ...]:
    """Return the start, the middle and the end of these times, with units; only the start if they are equal."""
    begin, end = times[0], times[-1]
    return tuple(format_seconds(at) for at in sorted({begin, (begin + end) / 2, end}))


def places_in_time(moments: Sequence[float], times: Sequence[float]) -> list[float]:
    """Return the x coordinates of moments; the times span the width."""
    if not times:
        return []
    begin, span = times[0], times[-1] - times[0]
    return [WIDTH * (moment - begin) / span if span > 0 else 0.0 for moment in moments]


@dataclass(frozen=True)
class CandidateMarks:
    """Positions of a candidate's predicted and measured times and intervals on the axis; ``None`` if unknown."""

    axis: "CandidateAxis"
    predicted: float | None
    predicted_span: Interval | None
    measured: float | None
    measured_span: Interval | None


@dataclass(frozen=True)
class CandidateAxis:
    """The common axis of all candidates: milliseconds, logarithmic."""

    low_ms: float
    high_ms: float
    ceiling_ms: float | None
    width: float = 230.0

    def place(self, ms: float) -> float:
        """Return the x coordinate of a time."""
        share = math.log(ms / self.low_ms) / math.log(self.high_ms / self.low_ms) if ms > 0 else 0.0
        return round(self.width * min(1.0, max(0.0, share)), 1)

    @property
    def ceiling(self) -> float | None:
        """The x coordinate of the ceiling."""
        return None if self.ceiling_ms is None else self.place(self.ceiling_ms)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers with their x coordinates: at least two, few enough not to overlap."""
        decades = range(math.floor(math.log10(self.low_ms)), math.ceil(math.log10(self.high_ms)) + 1)
        values = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
        inside = [value for value in values if self.low_ms <= value <= self.high_ms]
        if len(inside) < 2:
            inside = multiples(self.low_ms, self.high_ms)
        return [(self.place(value), f"{value:g}") for value in inside[:: -(-len(inside) // 6) or 1]]

    def marks(self, candidate: Candidate) -> CandidateMarks:
        """Return the positions of a candidate's times."""
        return CandidateMarks(
            self,
            None if candidate.predicted_ms is None else self.place(candidate.predicted_ms),
            self._span(candidate.predicted_ci_ms),
            None if candidate.measured_ms is None else self.place(candidate.measured_ms),
            self._span(candidate.measured_ci_ms),
        )

    def _span(self, interval: Interval | None) -> Interval | None:
        return None if interval is None else (self.place(interval[0]), self.place(interval[1]))


def multiples(low: float, high: float) -> list[float]:
    """Return the multiples of a round number from ``low`` to ``high``: between two and ten."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = size if high - low >= 2 * size else size / 2
    return [step * times for times in range(math.ceil(low / step), math.floor(high / step) + 1)]


def candidate_axis(ceiling: Ceiling | None, candidates: Sequence[Candidate]) -> CandidateAxis:
    """Return an axis that spans all candidates and the ceiling."""
    intervals = [
        it for candidate in candidates for it in (candidate.predicted_ci_ms, candidate.measured_ci_ms) if it is not None
    ]
    times = [ms for candidate in candidates for ms in (candidate.predicted_ms, candidate.measured_ms) if ms is not None]
    times += [ms for interval in intervals for ms in interval] + ([ceiling.step_ms] if ceiling else [])
    known = [ms for ms in times if ms > 0] or [1.0]
    return CandidateAxis(min(known) * 0.93, max(known) * 1.07, ceiling.step_ms if ceiling else None)


@dataclass(frozen=True)
class OpBar:
    """A transform's costs in a worker and on the device as lengths, to one scale; ``None`` if unknown."""

    worker: float | None
    device: float | None
    in_worker: bool
    half: float = 80.0


def op_bars(costs: Sequence[OpCost]) -> list[OpBar]:
    """Return the bars of all transforms; the slowest fills its half, and none is too short to be visible."""
    longest = max((ms for cost in costs for ms in (cost.worker_ms, cost.device_ms) if ms is not None), default=0.0)
    scale = OpBar.half / longest if longest > 0 else 0.0

    def length(ms: float | None) -> float | None:
        return None if ms is None else max(SEEN, round(ms * scale, 1))

    return [OpBar(length(cost.worker_ms), length(cost.device_ms), cost.in_worker) for cost in costs]


@dataclass(frozen=True)
class StepBar:
    """One step's time as adjacent pieces: share, start and width."""

    label: str
    caption: str
    pieces: tuple[tuple[Share, float, float], ...]


def step_bars(bars: Bars, width: float) -> list[StepBar]:
    """Return all bars to one scale, the longest ``width`` wide."""
    scale = width / (longest_ms(bars) or 1.0)
    found = []
    for label, allocation in bars.items:
        pieces, begin = [], 0.0
        for share, ms in shares(allocation).items():
            size = max(0.0, ms) * scale
            pieces += [(share, round(begin, 1), round(size, 1))] if size else []
            begin += size
        found.append(StepBar(label, caption(allocation), tuple(pieces)))
    return found
