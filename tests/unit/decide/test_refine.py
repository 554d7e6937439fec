"""Predictions after races: planted errors are corrected."""

import math
from dataclasses import replace

import pytest

from audioaug.decide.predict import with_prediction, with_predictions
from audioaug.decide.refine import refined, similarity
from tests.helpers.planted_reports import CPU, candidate, planted_report

REPORT = planted_report(host=CPU)
CANDIDATES = with_predictions(REPORT, [candidate(cut, workers) for cut in range(4) for workers in (0, 1, 2)])


def measured(it, times):
    """The candidate after a race in which it took ``times`` times its prediction."""
    return replace(it, measured_ms=times * it.predicted_ms, status="raced")


def refine(candidates, report=REPORT):
    return refined(replace(report, candidates=tuple(candidates)))


def test_without_races_nothing_changes() -> None:
    assert list(refine(CANDIDATES)) == CANDIDATES


def test_raced_candidates_keep_their_own_prediction() -> None:
    candidates = [measured(it, 1.3) if it.num_workers == 1 else it for it in CANDIDATES]
    for before, after in zip(candidates, refine(candidates), strict=True):
        assert after == before if before.num_workers == 1 else after.predicted_ms > before.predicted_ms


@pytest.mark.parametrize("times", [0.7, 1.0, 1.4])
def test_a_common_error_is_corrected(times) -> None:
    candidates = [measured(it, times) if it.cut in (0, 3) else it for it in CANDIDATES]
    for before, after in zip(candidates, refine(candidates), strict=True):
        if before.status == "predicted":
            assert after.predicted_ms == pytest.approx(times * before.predicted_ms, rel=0.1)
            assert after.predicted_ci_ms[0] <= after.predicted_ms <= after.predicted_ci_ms[1]


def test_candidates_with_the_same_workers_weigh_more() -> None:
    off = {0: 1.0, 1: 1.2, 2: 1.5}
    candidates = [measured(it, off[it.num_workers]) if it.cut != 1 else it for it in CANDIDATES]
    after = {it.num_workers: it for it in refine(candidates) if it.cut == 1}
    before = {it.num_workers: it for it in CANDIDATES if it.cut == 1}
    shares = [after[workers].predicted_ms / before[workers].predicted_ms for workers in off]
    assert shares == sorted(shares) and shares[0] < 1.1 and shares[2] > 1.3


def test_races_that_disagree_widen_the_interval() -> None:
    def width(offs):
        candidates = [measured(it, offs[it.cut % 2]) if it.cut != 1 else it for it in CANDIDATES if it.num_workers == 1]
        [one] = [it for it in refine(candidates) if it.status == "predicted"]
        return math.log(one.predicted_ci_ms[1] / one.predicted_ci_ms[0])

    assert width((1.0, 1.0)) < width((0.6, 1.6))


def test_refining_twice_is_refining_once() -> None:
    candidates = [measured(it, 1.3) if it.cut == 0 else it for it in CANDIDATES]
    once = refine(candidates)
    assert refine(once) == once


def test_similarity() -> None:
    one = candidate(1, 2, threads=1)
    assert similarity(one, one, 3) == 1
    unlike = [replace(one, num_workers=1), replace(one, num_workers=0), replace(one, threads=2), replace(one, cut=3)]
    assert all(0 < similarity(one, other, 3) < 1 for other in unlike)
    assert similarity(candidate(0, 2), candidate(3, 2), 3) == pytest.approx(1 / 4)  # the ends share something, too


def test_many_similar_candidates_do_not_outweigh_the_most_similar_one() -> None:
    candidates = [
        measured(it, 1.0 if it.num_workers == 2 else 0.6) if (it.cut, it.num_workers) != (1, 1) else it
        for it in CANDIDATES
    ]
    candidates = [it for it in candidates if it.num_workers == 2 or (it.cut, it.num_workers) in {(0, 1), (1, 1)}]
    [after] = [it for it in refine(candidates) if it.status == "predicted"]
    [before] = [it for it in candidates if it.status == "predicted"]
    assert after.predicted_ms / before.predicted_ms < 0.8


def test_a_candidate_that_cannot_be_predicted_stays() -> None:
    unknown = replace(candidate(2, 4), predicted_ms=None)
    report = replace(REPORT, ceiling=None)
    assert with_prediction(report, unknown).predicted_ms is None
    assert refine([measured(CANDIDATES[0], 2.0), unknown], report)[1] == unknown
