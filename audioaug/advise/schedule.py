"""Schedule: how the stages share the budget, which candidates are screened and raced, and what that showed."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from audioaug.advise.candidates import WorkerCounts, queued_batches
from audioaug.advise.racing import RACE_BLOCK, ROUNDS, SCREENING_BLOCK, SCREENING_ROUNDS, SMALL, Racer
from audioaug.core import Chain
from audioaug.decide.diagnose import stall
from audioaug.decide.predict import with_prediction
from audioaug.decide.shortlist import all_candidates, pinning_wins, shortlist, with_engines
from audioaug.errors import MeasurementError
from audioaug.measure import Clock
from audioaug.records import Candidate, Ceiling, DeviceEngine, Measurement, Report
from audioaug.units import Seconds

SHARES = {"today": 0.08, "workers": 0.05, "device": 0.08, "loader": 0.18, "screening": 0.33, "race": 0.28}
"""The stages in order, and how they share the time: what one leaves over or overdraws is shared by those after it."""

RESERVE = 0.04
"""Of the time, kept back: the last stage ends with a whole round."""

ALSO, ALSO_RACED = 0.04, 0.1
"""Of the budget, besides it, for each other precision or batch size; for each other way to start workers."""


class Budget:
    """The seconds that all stages share, counted by ``clock`` from the moment this is made."""

    def __init__(self, total: Seconds, clock: Clock) -> None:
        self.total, self._clock = total, clock
        self._began = clock.now()
        self._left_out = 0.0

    @property
    def is_small(self) -> bool:
        """Whether to spare what no share of the time makes shorter."""
        return self.total < SMALL

    @property
    def spent(self) -> Seconds:
        """The seconds since the beginning."""
        return self._clock.now() - self._began

    def leave_out(self, stages: Container[str]) -> None:
        """Do without these stages, and without their time."""
        self._left_out = sum(share for name, share in SHARES.items() if name in stages)

    def seconds_for(self, stage: str) -> Seconds:
        """Return how long a stage may take: its part of the time that is left, but never nothing."""
        names = list(SHARES)
        left = self.total * (1 - self._left_out) * (1 - RESERVE) - self.spent
        remaining_shares = sum(SHARES[name] for name in names[names.index(stage) :])
        return max(left, 0.2 * self.total) * SHARES[stage] / remaining_shares


FEWEST_RACED, MOST_RACED = 3, 9
"""Candidates in the race, today's and the favourite among them."""

PLANNED_ROUNDS = 6
"""Of a race, which has no more candidates than get so many; what is done today often leaves after ``ROUNDS``."""

MOST_SCREENED = 16
"""All there are of most chains: what one screening shows of its candidates, the machine has drifted from by the next."""

MOST_SCREENING_ROUNDS = 3

STARTING = 0.5
"""Seconds that a loader takes to start, about."""


class Schedule:
    """The choice of candidates for a racer, once today's configuration was measured.

    Args:
        report: what is known, of which today's configuration is part.
        racer: says how long its blocks are.
        most_workers: that can be alive at once, those of all candidates of a screening or race together.
    """

    def __init__(self, report: Report, racer: Racer, most_workers: int) -> None:
        assert report.current is not None
        self.report, self.racer, self.most_workers = report, racer, most_workers
        self.today = report.current

    def expected(self, candidates: Sequence[Candidate]) -> dict[str, Seconds]:
        """Return by name how many seconds a step takes, as well as it is known.

        Predictions are taken to be as far below the truth as that of today's configuration is.
        """
        measured = self.today.measured_ms or 0.0
        factor = max(1.0, measured / (self.today.predicted_ms or measured or 1.0))
        return {
            candidate.name: (candidate.measured_ms or factor * (candidate.predicted_ms or measured)) / 1e3
            for candidate in candidates
        }

    def screening(self, waiting: Sequence[Candidate], seconds: Seconds) -> list[Candidate]:
        """Return the first of the candidates that a screening beside today's configuration has time and processes for."""
        seconds -= self._candidate_seconds(self.today, SCREENING_ROUNDS, SCREENING_BLOCK)
        processes, screening = self.most_workers, list[Candidate]()
        for candidate in waiting[:MOST_SCREENED]:
            seconds -= self._candidate_seconds(candidate, SCREENING_ROUNDS, SCREENING_BLOCK)
            processes -= candidate.num_workers
            if seconds < 0 or (screening and processes < 0):
                break
            screening.append(candidate)
        return screening

    def screening_rounds(self, candidates: Sequence[Candidate], seconds: Seconds) -> int:
        """Return how many rounds a screening of these candidates has time for."""
        for rounds in range(MOST_SCREENING_ROUNDS, SCREENING_ROUNDS, -1):
            if sum(self._candidate_seconds(candidate, rounds, SCREENING_BLOCK) for candidate in candidates) <= seconds:
                return rounds
        return SCREENING_ROUNDS

    def race(self, seconds: Seconds, engines: Sequence[DeviceEngine] = ()) -> list[Candidate]:
        """Return the candidates to race: as many as get ``PLANNED_ROUNDS`` rounds in the time.

        Behind the fewest come, where there is room, these engines with what they are to be compared with; then the
        favourite once more: how far a plan may be from itself tells what differences mean.
        """
        left, processes = seconds, self.most_workers
        candidates = shortlist(self.report.candidates, self.today, MOST_RACED)
        first, others = candidates[:FEWEST_RACED], candidates[FEWEST_RACED:]
        asked = _not_among(first, with_engines(self.report.candidates, engines))
        chosen: list[Candidate] = []
        for candidate in [*first, *asked, *first[1:2], *_not_among(asked, others)]:
            left -= self._candidate_seconds(candidate, PLANNED_ROUNDS if chosen else ROUNDS, RACE_BLOCK)
            processes -= candidate.num_workers
            if len(chosen) < FEWEST_RACED or (processes > 0 and (left > 0 or candidate in asked)):
                chosen.append(candidate)
        return chosen

    def _candidate_seconds(self, candidate: Candidate, rounds: int, block: float) -> Seconds:
        """Return about how long an candidate takes."""
        step = self.expected([candidate])[candidate.name]
        steps = (
            queued_batches(candidate) + self.racer.block_steps(step, candidate.num_workers, block) + candidate.queue
        )  # to refill it
        return STARTING + rounds * step * steps


def _not_among(known: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    names = {candidate.name for candidate in known}
    return [candidate for candidate in candidates if candidate.name not in names]


def with_stall(report: Report, candidate: Candidate) -> Candidate:
    """Return a candidate that was measured with how long its steps wait for data."""
    return replace(candidate, stall=stall(report, candidate.measured_ms)) if candidate.measured_ms else candidate


def predicted(report: Report, chain: Chain, counts: WorkerCounts) -> dict[str, Any]:
    """Predict every candidate there is, and today's; those that there is no room for have the reason instead."""
    candidates = all_candidates(report, counts.possible, pin_memory=pinning_wins(report))
    assert report.current is not None
    return {
        "candidates": (*candidates, *counts.impossible(chain, report.chain.cuts)),
        "current": with_prediction(report, report.current),
    }


def after_screening(
    report: Report, racer: Racer, screening: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Replace the candidates of a screening by what was measured of them; those that failed cannot be run."""
    found = {candidate.name: _judged(report, racer, candidate, measurements) for candidate in screening}
    candidates = tuple(found.get(candidate.name, candidate) for candidate in report.candidates)
    blocks = tuple(measurements[name] for name in found if name in measurements)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def after_race(
    report: Report, racer: Racer, candidates: Sequence[Candidate], measurements: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Put the candidates that were raced before the others; raise ``MeasurementError`` if today's failed."""
    raced = {
        candidate.name: racer.measured(candidate, measurements)
        for candidate in candidates
        if candidate.name in measurements
    }
    assert report.current is not None
    if report.current.name not in raced:
        failed = (notice.text for notice in report.notices if notice.id == "candidate_failed")
        raise MeasurementError("What you do today failed in the race.", " ".join(failed))
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


def after_earlier_screening(report: Report, earlier: Report) -> dict[str, Any]:
    """Take over what the screening of an earlier run have shown of the candidates, which are predicted anew."""
    known = {candidate.name: candidate for candidate in earlier.candidates if candidate.status == "raced"}
    candidates = tuple(_remeasured(report, candidate, known.get(candidate.name)) for candidate in report.candidates)
    names = {candidate.name for candidate in candidates} & set(known)
    blocks = (it for it in earlier.measurements if it.candidate in names)
    return {"candidates": candidates, "measurements": (*report.measurements, *blocks)}


def _judged(report: Report, racer: Racer, candidate: Candidate, measurements: Mapping[str, Measurement]) -> Candidate:
    if candidate.name in measurements:
        return with_stall(report, racer.measured(candidate, measurements))
    return replace(
        candidate, status="infeasible", reason=f"It failed when it was tried: {racer.failed[candidate.name]}"
    )


def _on_other_batches(report: Report, today: Candidate) -> Ceiling:
    """Return the ceiling as it would be on the batches of the race, by what today's step takes there and took before.

    Batches of many lengths differ; those that lie on the device were the same for today's step and the ceiling.
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
    """Return the candidate with what an earlier run measured of it."""
    if known is None:
        return candidate
    predicted = {name: getattr(candidate, name) for name in ("predicted_ms", "predicted_ci_ms", "bound_by")}
    return with_stall(report, replace(known, **predicted))
