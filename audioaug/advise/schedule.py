"""Schedule: how the stages share the budget, which candidates are screened and raced, and their results."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from audioaug.advise.candidates import WorkerCounts
from audioaug.advise.racing import RACE_BLOCK, ROUNDS, SCREENING_BLOCK, SCREENING_ROUNDS, SHORT_ROUNDS, SMALL, Racer
from audioaug.core import Chain
from audioaug.decide.diagnose import stall
from audioaug.decide.predict import with_prediction
from audioaug.decide.race import typical_seconds
from audioaug.decide.shortlist import all_candidates, pinning_wins, shortlist, with_engines
from audioaug.errors import MeasurementError
from audioaug.measure import Clock
from audioaug.records import Candidate, Ceiling, DeviceEngine, Measurement, Report
from audioaug.units import Seconds

SHARES = {
    "today": 0.08,
    "workers": 0.05,
    "device": 0.08,
    "loader": 0.18,
    "screening": 0.27,
    "race": 0.25,
    "changes": 0.09,
}
"""The stages in order, with their shares of the time; what a stage leaves or overdraws is shared by the later ones."""

RESERVE = 0.04
"""Share of the time kept in reserve: the last stage ends with a whole round."""

LIMIT = 2.0
"""Multiple of the budget within which a survey ends, slow steps and slow data included."""

ALSO, ALSO_RACED = 0.04, 0.1
"""Shares of the budget, in addition to it, for each precision or batch size and for each start method."""


class Budget:
    """The seconds that all stages share, counted by ``clock`` from the construction or the last restart on."""

    def __init__(self, total: Seconds, clock: Clock) -> None:
        self.total, self._clock = total, clock
        self._began = clock.now()
        self._left_out = 0.0

    def restart(self) -> None:
        """Count from now on."""
        self._began = self._clock.now()

    @property
    def is_small(self) -> bool:
        """Whether to skip work that does not scale with the budget."""
        return self.total < SMALL

    @property
    def spent(self) -> Seconds:
        """Seconds since the start."""
        return self._clock.now() - self._began

    @property
    def until_limit(self) -> Seconds:
        """Seconds until everything must end: at twice the budget, with a reserve."""
        return LIMIT * (1 - RESERVE) * self.total - self.spent

    def leave_out(self, stages: Container[str]) -> None:
        """Skip these stages and their shares."""
        self._left_out = sum(share for name, share in SHARES.items() if name in stages)

    def seconds_for(self, stage: str) -> Seconds:
        """Return the seconds of a stage: its share of the remaining time, with a minimum."""
        names = list(SHARES)
        left = self.total * (1 - self._left_out) * (1 - RESERVE) - self.spent
        remaining_shares = sum(SHARES[name] for name in names[names.index(stage) :])
        return max(left, 0.2 * self.total) * SHARES[stage] / remaining_shares


FEWEST_RACED, MOST_RACED = 3, 9
"""Fewest and most candidates of a race, today's and the favourite included."""

PLANNED_ROUNDS = 6
"""Rounds that a race is planned for; today's configuration often leaves after ``ROUNDS``."""

MOST_SCREENED = 16
"""Most candidates of one screening round: all of most chains. Between rounds the machine drifts."""

CHANGE_ROUNDS, CHANGE_BLOCK = 4, 1.0
"""Rounds in which single changes are timed beside today's configuration, and seconds of a block."""

BEYOND_THE_BEST = 1.1
"""How many times faster than the best a single change may have been timed: the race would have found such a one."""

STARTING = 0.5
"""Seconds that a loader takes to start."""


class Schedule:
    """Select candidates to screen and to race, after today's configuration was measured.

    Args:
        report: the results so far, today's configuration included.
        racer: determines the length of blocks.
        most_workers: most workers alive at the same time, over all candidates of a race.
    """

    def __init__(self, report: Report, racer: Racer, most_workers: int) -> None:
        assert report.current is not None
        self.report, self.racer, self.most_workers = report, racer, most_workers
        self.today = report.current

    def expected(self, candidates: Sequence[Candidate]) -> dict[str, Seconds]:
        """Return the expected seconds of a step by name: measured, else predicted.

        Predictions are scaled by how much that of today's configuration was too low.
        """
        measured = self.today.measured_ms or 0.0
        factor = max(1.0, measured / (self.today.predicted_ms or measured or 1.0))
        return {
            candidate.name: (candidate.measured_ms or factor * (candidate.predicted_ms or measured)) / 1e3
            for candidate in candidates
        }

    def screening(self, waiting: Sequence[Candidate], seconds: Seconds) -> list[Candidate]:
        """Return the candidates of the next screening round, within its time and number of processes."""
        seconds -= self._candidate_seconds(self.today, SCREENING_ROUNDS, SCREENING_BLOCK)
        processes, screening = self.most_workers, list[Candidate]()
        for candidate in waiting[:MOST_SCREENED]:
            seconds -= self._candidate_seconds(candidate, SCREENING_ROUNDS, SCREENING_BLOCK)
            processes -= candidate.num_workers
            if seconds < 0 or (screening and processes < 0):
                break
            screening.append(candidate)
        return screening

    def race(self, seconds: Seconds, engines: Sequence[DeviceEngine] = ()) -> list[Candidate]:
        """Return the candidates to race: as many as fit ``PLANNED_ROUNDS`` rounds into the time.

        After the first three come, if there is room, the requested engines with what they are compared with, and the
        favourite a second time: how much a plan differs from itself is the resolution of the race. If the budget
        allows only a few steps, only as many as fit: perhaps none but today's.
        """
        left, processes = seconds, self.most_workers
        candidates = shortlist(self.report.candidates, self.today, MOST_RACED)
        if self.racer.few_steps:
            costs = accumulate(self._candidate_seconds(each, SHORT_ROUNDS, 0.0) for each in candidates)
            return [each for each, cost in zip(candidates, costs, strict=True) if each is self.today or cost <= seconds]
        first, others = candidates[:FEWEST_RACED], candidates[FEWEST_RACED:]
        asked = _not_among(first, with_engines(self.report.candidates, engines))
        chosen: list[Candidate] = []
        for candidate in [*first, *asked, *first[1:2], *_not_among(asked, others)]:
            left -= self._candidate_seconds(candidate, PLANNED_ROUNDS if chosen else ROUNDS, RACE_BLOCK)
            processes -= candidate.num_workers
            if len(chosen) < FEWEST_RACED or (processes > 0 and (left > 0 or candidate in asked)):
                chosen.append(candidate)
        return chosen

    def changes(self, best: Candidate, waiting: Sequence[Candidate], seconds: Seconds) -> list[Candidate]:
        """Return the single changes to time beside today's configuration and the best: those that time allows."""
        seconds -= sum(self._candidate_seconds(each, CHANGE_ROUNDS, CHANGE_BLOCK) for each in (self.today, best))
        changes = list[Candidate]()
        for candidate in waiting:
            cost = self._candidate_seconds(candidate, CHANGE_ROUNDS, CHANGE_BLOCK)
            if cost <= seconds:
                seconds -= cost
                changes.append(candidate)
        return changes

    def _candidate_seconds(self, candidate: Candidate, rounds: int, block: float) -> Seconds:
        """Return the estimated seconds of a candidate."""
        step = self.expected([candidate])[candidate.name]
        steps = self.racer.discarded(candidate) + self.racer.block_steps(step, candidate.num_workers, block)
        if not self.racer.few_steps:
            steps += candidate.queue  # to refill it
        return STARTING + step * (1 + rounds * steps)


def _not_among(known: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    names = {candidate.name for candidate in known}
    return [candidate for candidate in candidates if candidate.name not in names]


def with_stall(report: Report, candidate: Candidate) -> Candidate:
    """Return a measured candidate with its stall filled in."""
    return replace(candidate, stall=stall(report, candidate.measured_ms)) if candidate.measured_ms else candidate


def predicted(report: Report, chain: Chain, counts: WorkerCounts) -> dict[str, Any]:
    """Predict every candidate and today's configuration; those this machine cannot run get the reason instead."""
    candidates = all_candidates(report, counts.possible, pin_memory=pinning_wins(report))
    assert report.current is not None
    return {
        "candidates": (*candidates, *counts.impossible(chain, report.chain.cuts)),
        "current": with_prediction(report, report.current),
    }


def after_screening(
    report: Report, racer: Racer, screening: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Update the screened candidates with their measurements; those that failed become infeasible."""
    found = {candidate.name: _judged(report, racer, candidate, measurements) for candidate in screening}
    candidates = tuple(found.get(candidate.name, candidate) for candidate in report.candidates)
    blocks = tuple(measurements[name] for name in found if name in measurements)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def after_race(
    report: Report, racer: Racer, candidates: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Update the raced candidates and list them first; raise ``MeasurementError`` if today's configuration failed."""
    raced = {
        candidate.name: racer.measured(candidate, measurements)
        for candidate in candidates
        if candidate.name in measurements
    }
    assert report.current is not None
    if report.current.name not in raced:
        failed = (notice.text for notice in report.notices if notice.id == "candidate_failed")
        raise MeasurementError("Your current configuration failed in the race.", " ".join(failed))
    ceiling = _on_other_batches(report, raced[report.current.name]) if racer.job.pad else report.ceiling
    candidates = tuple(with_stall(replace(report, ceiling=ceiling), candidate) for candidate in raced.values())
    others = tuple(candidate for candidate in report.candidates if candidate.name not in raced)
    earlier = (one for one in report.measurements if one.candidate not in measurements)
    return {
        "candidates": (*candidates, *others),
        "ceiling": ceiling,
        "current": next(candidate for candidate in candidates if candidate.name == report.current.name),
        "measurements": (*measurements.values(), *earlier),
    }


def after_changes(
    report: Report,
    racer: Racer,
    best: Candidate,
    changes: Sequence[Candidate],
    measurements: Mapping[str, Measurement],
) -> dict[str, Any]:
    """Update or add the candidates with a single change, each by its place between today's configuration and the best.

    Both were timed beside them. Times are moved (on a logarithmic scale) so that these two take as long as in the race.
    If the best was not faster this time, the changes stay predictions, as does one that was far faster than the best:
    the load of the machine was another one meanwhile.
    """
    today = report.current
    assert today is not None and today.measured_ms and best.measured_ms
    ms = {name: 1e3 * seconds for name, seconds in typical_seconds(measurements).items()}
    if not {today.name, best.name} <= ms.keys() or ms[best.name] >= ms[today.name]:
        return {}
    race_ms, slow = today.measured_ms, ms[today.name]
    power = math.log(race_ms / best.measured_ms) / math.log(slow / ms[best.name])

    def moved(ms: float) -> float:
        return race_ms * (ms / slow) ** power

    timed = {}
    for candidate in changes:
        if candidate.name in ms:
            found = racer.measured(candidate, measurements)
            assert found.measured_ms and found.measured_ci_ms
            if moved(found.measured_ms) * BEYOND_THE_BEST < best.measured_ms:
                continue
            low, high = found.measured_ci_ms
            found = replace(found, measured_ms=moved(found.measured_ms), measured_ci_ms=(moved(low), moved(high)))
            timed[candidate.name] = with_stall(report, found)
    return {"candidates": tuple(({each.name: each for each in report.candidates} | timed).values())}


def after_earlier_screening(report: Report, earlier: Report) -> dict[str, Any]:
    """Add the screening results of an earlier run to the candidates, whose predictions are new."""
    known = {candidate.name: candidate for candidate in earlier.candidates if candidate.status == "raced"}
    candidates = tuple(_remeasured(report, candidate, known.get(candidate.name)) for candidate in report.candidates)
    names = {candidate.name for candidate in candidates} & set(known)
    blocks = (it for it in earlier.measurements if it.candidate in names)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def _judged(report: Report, racer: Racer, candidate: Candidate, measurements: Mapping[str, Measurement]) -> Candidate:
    if candidate.name in measurements:
        return with_stall(report, racer.measured(candidate, measurements))
    return replace(candidate, status="infeasible", reason=f"It failed: {racer.failed[candidate.name]}")


def _on_other_batches(report: Report, today: Candidate) -> Ceiling:
    """Scale the ceiling to the batches of the race by the change of today's step.

    Batches of many lengths differ; today's step and the ceiling were first timed on the same cached batches.
    """
    before, ceiling = report.current, report.ceiling
    assert ceiling is not None and before is not None and before.measured_ms and today.measured_ms
    longer = today.measured_ms / before.measured_ms
    low, high = ceiling.ci_ms
    return replace(
        ceiling,
        step_ms=longer * ceiling.step_ms,
        ci_ms=(longer * low, longer * high),
        clips_per_second=ceiling.clips_per_second / longer,
        samples_ms=tuple(longer * ms for ms in ceiling.samples_ms),
    )


def _remeasured(report: Report, candidate: Candidate, known: Candidate | None) -> Candidate:
    """Return the candidate with the measurement of an earlier run."""
    if known is None:
        return candidate
    predicted = {name: getattr(candidate, name) for name in ("predicted_ms", "predicted_ci_ms", "bound_by")}
    return with_stall(report, replace(known, **predicted))
