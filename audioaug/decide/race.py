"""Race statistics: which candidates differ significantly.

Candidates are compared round by round, which cancels drift: the mean log ratio of their step times with a confidence
interval by Student's t, corrected for the number of comparisons (Bonferroni) and, during a race, of looks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

from audioaug.records import Interval, Measurement
from audioaug.units import Seconds

MARGIN = 0.03
"""Differences below this share are ignored."""

LEVEL = 0.95

FAR = 500.0
"""Bound of log ratios: intervals from few, very different rounds would overflow."""


@dataclass(frozen=True)
class Ratio:
    """How many times slower one candidate is than another, with an interval; 1.0 means equally fast."""

    value: float
    low: float
    high: float


def paired_ratio(candidate: Measurement, other: Measurement, comparisons: int = 1) -> Ratio:
    """Return how much slower ``candidate`` is than ``other``, from the rounds that both ran in."""
    pairs = list(zip(candidate.step.seconds, other.step.seconds, strict=False))
    logs = [math.log(a / b) for a, b in pairs]
    middle = fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(middle), 0.0, math.inf)
    reach = _t_quantile(1 - (1 - LEVEL) / (2 * comparisons), len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    reach = min(reach, FAR)
    return Ratio(*(math.exp(value) for value in (middle, middle - reach, middle + reach)))


def typical_seconds(measurements: Mapping[str, Measurement]) -> dict[str, Seconds]:
    """Return each candidate's step time in a typical round, by name.

    A round with long clips or with interference is longer for all candidates; the median effect over those that ran in
    all rounds is removed. The ratio of two candidates is then (about) the median of their ratios in each round.
    """
    logs = {name: [math.log(seconds) for seconds in candidate.step.seconds] for name, candidate in measurements.items()}
    finishers = [(logs[name], median(logs[name])) for name in _finishers(measurements)]
    longer = [median(times[number] - middle for times, middle in finishers) for number in range(len(finishers[0][0]))]
    return {
        name: math.exp(median(time - more for time, more in zip(times, longer, strict=False)))
        for name, times in logs.items()
    }


def typical_ms(name: str, measurements: Mapping[str, Measurement]) -> tuple[float, Interval]:
    """Return a candidate's step time in a typical round, and its interval, in milliseconds."""
    timing, seconds = measurements[name].step, typical_seconds(measurements)[name]
    low, high = timing.ci_ms
    share = seconds / timing.median
    return 1e3 * seconds, (share * low, share * high)


def leader(measurements: Mapping[str, Measurement]) -> str:
    """Return the name of the fastest candidate (typical round) of those that ran in all rounds."""
    middle = typical_seconds(measurements)
    return min(_finishers(measurements), key=lambda name: middle[name])


def margin_of(candidate: Measurement, again: Measurement) -> float:
    """Return the smallest relevant difference: ``MARGIN``, or how much a candidate may differ from itself if that is
    larger.
    """
    ratio = paired_ratio(again, candidate)
    return max(MARGIN, (ratio.high - ratio.low) / 2)


def losers(measurements: Mapping[str, Measurement], looks: int = 1, margin: float = MARGIN) -> list[str]:
    """Return the candidates significantly slower than the leader by more than the margin, corrected for ``looks``."""
    return [name for name, ratio in _behind(measurements, looks).items() if ratio.low > 1 + margin]


def clearly_slower(measurements: Mapping[str, Measurement]) -> list[str]:
    """Return the candidates not worth another round: significantly slower, or 2x slower in each of at least two rounds.

    Called after every round. Half of the allowed error is spent on these looks, 1 / n (n - 1) of it in round n (which
    sums to one), and half on the verdict.
    """
    first = measurements[leader(measurements)].step.seconds
    crawling = [
        name
        for name, candidate in measurements.items()
        if len(first) >= 2 and all(a > 2 * b for a, b in zip(candidate.step.seconds, first, strict=False))
    ]
    return sorted({*crawling, *losers(measurements, looks=2 * max(1, len(first) * (len(first) - 1)))})


def non_finalists(measurements: Mapping[str, Measurement], kept: str, at_most: int) -> list[str]:
    """Return all candidates except ``kept`` and the fastest others, ``at_most`` in total."""
    middle = typical_seconds(measurements)
    return sorted(measurements, key=lambda name: (name != kept, middle[name]))[at_most:]


def ties(measurements: Mapping[str, Measurement], margin: float = MARGIN) -> list[str]:
    """Return the candidates that do not differ significantly from the leader, fastest first, the leader included.

    Candidates that left early are excluded, as are those significantly slower by more than the margin: the same plan
    under two names may differ by 3 % for a whole race.
    """
    middle, slower = typical_seconds(measurements), losers(measurements, looks=2, margin=margin)
    return sorted((name for name in _finishers(measurements) if name not in slower), key=lambda name: middle[name])


def _finishers(measurements: Mapping[str, Measurement]) -> list[str]:
    rounds = max(len(candidate.step.seconds) for candidate in measurements.values())
    return [name for name, candidate in measurements.items() if len(candidate.step.seconds) == rounds]


def _behind(measurements: Mapping[str, Measurement], looks: int) -> dict[str, Ratio]:
    """Return the ratio of each other candidate to the leader."""
    first = leader(measurements)
    others = [name for name in measurements if name != first]
    return {name: paired_ratio(measurements[name], measurements[first], len(others) * looks) for name in others}


def _t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution.

    Reference: Abramowitz and Stegun, 26.7.5, for freedom > 2 (at 3 and 4 up to 3 % low, far out); exact below.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        p = 2 * probability - 1
        return p * math.sqrt(2 / (1 - p * p))
    z = NormalDist().inv_cdf(probability)
    n = freedom
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4
