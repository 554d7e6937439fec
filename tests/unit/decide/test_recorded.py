"""Recorded surveys: predictions from their stages compared with measured steps. ``recorded/README.md`` lists the
machines.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from audioaug.decide.predict import with_predictions
from audioaug.decide.shortlist import all_candidates, best_of_each
from audioaug.decide.what_if import what_if
from audioaug.records import Candidate, Report, read_record

FOLDER = Path(__file__).parent / "recorded"
FILES = sorted(FOLDER.glob("*.json"))
WORST_MEDIAN, LEAST_COVERED = 0.1, 0.85


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def report(request) -> Report:
    """A recorded survey, without its predictions."""
    found = read_record(request.param, Report)
    return replace(
        found, candidates=tuple(replace(it, predicted_ms=None, predicted_ci_ms=None) for it in found.candidates)
    )


def measured(report: Report) -> list[Candidate]:
    """The measured candidates, predicted from the stages alone."""
    return with_predictions(report, [it for it in report.candidates if it.status == "raced" and it.predicted_ms])


def test_there_are_some() -> None:
    assert len(FILES) >= 2


def test_predictions_are_near_measured_steps() -> None:
    candidates = [it for path in FILES for it in measured(read_record(path, Report))]
    assert len(candidates) >= 10
    errors = [abs(it.predicted_ms / it.measured_ms - 1) for it in candidates]
    covered = [it.predicted_ci_ms[0] <= it.measured_ms <= it.predicted_ci_ms[1] for it in candidates]
    assert median(errors) <= WORST_MEDIAN
    assert sum(covered) / len(covered) >= LEAST_COVERED


def test_every_candidate_is_predicted_again(report) -> None:
    workers = sorted({it.num_workers for it in report.loader_costs})
    candidates = [it for it in all_candidates(report, workers, pin_memory=False) if it.status != "infeasible"]
    assert all(it.predicted_ms and it.bound_by for it in candidates)
    assert best_of_each(candidates)[0].predicted_ms <= 1.02 * min(it.predicted_ms for it in candidates)


def best_ms(report: Report, **values: float) -> float:
    line = what_if(report, values)[0]
    return float(line.partition("would take ")[2].split()[0].replace(",", ""))


def test_a_slower_model_takes_longer(report) -> None:
    now = report.ceiling.step_ms
    times = [best_ms(report, step_ms=now * factor) for factor in (0.5, 1.0, 2.0, 5.0)]
    assert times == sorted(times) and times[-1] >= 4.9 * now


def test_more_cores_never_hurt(report) -> None:
    times = [best_ms(report, cores=float(cores)) for cores in (2, 3, 4, 8, 16)]
    assert all(later <= 1.03 * earlier for earlier, later in pairwise(times))  # another candidate may vary more


def test_twice_the_batch_takes_twice_as_long(report) -> None:
    size = report.workload.batch_size
    assert best_ms(report, batch_size=2.0 * size) == pytest.approx(2 * best_ms(report, batch_size=size), rel=0.02)
