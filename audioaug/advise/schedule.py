"""Schedule: which candidates are raced, as many as there is time and room for, and how long each takes."""

from collections.abc import Sequence

from audioaug.advise.candidates import queued_batches
from audioaug.advise.racing import RACE_BLOCK, ROUNDS, SCREENING_BLOCK, SCREENING_ROUNDS, Racer
from audioaug.decide.shortlist import shortlist, with_engines
from audioaug.records import Candidate, DeviceEngine, Report
from audioaug.units import Seconds

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
