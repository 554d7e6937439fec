"""The schedule from planted reports: candidates, times, workers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.candidates import WorkerCounts
from audioaug.advise.racing import SETTLING, Racer, settling
from audioaug.advise.schedule import (
    CHANGE_BLOCK,
    CHANGE_ROUNDS,
    FEWEST_RACED,
    RESERVE,
    SHARES,
    Budget,
    Schedule,
    after_changes,
)
from audioaug.decide.limits import Needs
from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock
from audioaug.records import Candidate
from tests.helpers.planted_reports import blocks, candidate, planted_report, raced


@pytest.fixture
def schedule() -> Schedule:
    """Return a schedule of measured candidates with 0 to 6 workers, of which 8 may be alive at the same time."""
    today = raced(3, 0, 40.0)
    candidates = (
        today,
        *(
            replace(raced(cut, workers, 20.0 + workers), predicted_ms=20.0)
            for cut in (0, 1, 2)
            for workers in (2, 4, 6)
        ),
    )
    racer = Racer(
        SimpleNamespace(device=torch.device("cpu"), batch_size=32), FakeClock(), 100.0, notice=lambda *_: None
    )
    return Schedule(replace(planted_report(), candidates=candidates, current=today), racer, most_workers=8)


def test_a_screening_has_as_many_as_time_and_processes_allow(schedule) -> None:
    waiting = [candidate for candidate in schedule.report.candidates if candidate.num_workers in (2, 4)]
    assert [candidate.num_workers for candidate in schedule.screening(waiting, 1e6)] == [2, 4, 2]
    assert schedule.screening(waiting, 0.1) == []
    schedule.most_workers = 1
    assert [candidate.num_workers for candidate in schedule.screening(waiting, 1e6)] == [2]  # one at a time, at least


def test_a_race_has_a_few_however_short_the_time_is(schedule) -> None:
    assert len(schedule.race(0.0)) == FEWEST_RACED
    assert schedule.race(0.0)[0] == schedule.today


def test_as_many_single_changes_are_timed_as_there_is_time_for(schedule) -> None:
    best, cheap, costly = [schedule.report.candidates[place] for place in (2, 1, 3)]
    waiting = [costly, cheap]
    assert [len(schedule.changes(best, waiting, seconds)) for seconds in (0.0, 1e6)] == [0, 2]
    needed = (schedule._candidate_seconds(each, CHANGE_ROUNDS, CHANGE_BLOCK) for each in (schedule.today, best, cheap))
    assert schedule.changes(best, waiting, sum(needed) + 0.1) == [cheap]


def test_single_changes_stand_where_they_were_timed_between_today_and_the_best(schedule) -> None:
    today, best, known = schedule.report.candidates[:3]  # in the race today's took 40 ms, the best 22
    new = candidate(3, 0, threads=1)
    found = {each.name: blocks(each.name, [ms] * 4) for each, ms in ((today, 160.0), (best, 40.0), (known, 80.0))}
    after = after_changes(schedule.report, schedule.racer, best, [known], found)["candidates"]
    assert after[2].measured_ms == pytest.approx((40 * 22) ** 0.5)  # in the middle, on a logarithmic scale
    found[new.name] = blocks(new.name, [40.0] * 4)
    *_, last = after_changes(schedule.report, schedule.racer, best, [known, new], found)["candidates"]
    assert (last.name, last.status, last.measured_ms) == (new.name, "raced", pytest.approx(22.0))
    assert last.stall == pytest.approx(1 - 10 / 22)


def test_single_changes_stay_predicted_if_the_best_was_not_faster_beside_them(schedule) -> None:
    today, best, known = schedule.report.candidates[:3]
    found = {each.name: blocks(each.name, [40.0] * 4) for each in (today, best, known)}
    assert after_changes(schedule.report, schedule.racer, best, [known], found) == {}
    del found[best.name]
    assert after_changes(schedule.report, schedule.racer, best, [known], found) == {}


def test_a_single_change_that_was_far_faster_than_the_best_stays_predicted(schedule) -> None:
    today, best, known = schedule.report.candidates[:3]  # in the race today's took 40 ms, the best 22
    for ms, is_taken in ((19.0, False), (21.5, True)):
        found = {each.name: blocks(each.name, [its] * 4) for each, its in ((today, 40.0), (best, 22.0), (known, ms))}
        after = after_changes(schedule.report, schedule.racer, best, [known], found)["candidates"]
        assert (after[2].measured_ms == pytest.approx(ms)) is is_taken and (after[2] == known) is not is_taken


def test_steps_settle_after_a_change_of_threads_only_if_there_are_more_than_cores(monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.racing.usable_cores", lambda: 2.0)
    assert [settling(counts) for counts in ([4, 1], [4, 4], [2, 1])] == [SETTLING, 0, 0]


def test_where_there_is_time_the_favourite_races_against_itself(schedule) -> None:
    assert len({candidate.name for candidate in schedule.race(0.0)}) == FEWEST_RACED
    schedule.most_workers = 100
    several = schedule.race(1e6)
    assert several[FEWEST_RACED] == several[1] and len(several) == len({candidate.name for candidate in several}) + 1


def test_a_requested_engine_is_raced_however_short_the_time_is(schedule) -> None:
    schedule.most_workers = 20
    *few, asked = schedule.race(0.0, ["cuda_graph"])
    assert few == schedule.race(0.0) and asked == replace(
        Candidate("gpu", 0, num_workers=2), device_engine="cuda_graph"
    )
    names = [candidate.name for candidate in schedule.race(1e6, ["cuda_graph"])]
    assert names.count(asked.name) == 1 and len(names) == len(set(names)) + 1  # the favourite against itself
    schedule.most_workers = 4
    assert schedule.race(1e6, ["cuda_graph"]) == few


def test_expected_times_scale_predictions_by_the_error_of_todays(schedule) -> None:
    schedule.today = replace(schedule.today, predicted_ms=20.0)
    candidate = replace(schedule.report.candidates[1], predicted_ms=10.0, measured_ms=None)
    assert schedule.expected([candidate]) == {candidate.name: pytest.approx(0.02)}
    assert schedule.expected([replace(candidate, measured_ms=5.0)]) == {candidate.name: pytest.approx(0.005)}
    schedule.today = replace(schedule.today, predicted_ms=80.0)  # too high: predictions are not lowered
    assert schedule.expected([candidate]) == {candidate.name: pytest.approx(0.01)}


def test_counts_without_room_have_their_reason() -> None:
    chain = Chain([ops.Gain()], 16000)
    host = replace(planted_report().host, start_method="fork", ram_available_bytes=10_000, usable_cores=4.0)
    counts = WorkerCounts(host, None, today=3)
    assert counts.considered == counts.possible == (0, 1, 2, 3, 4) and not list(counts.impossible(chain, range(2)))
    counts = replace(counts, needs=Needs(worker_bytes=1_000)).with_memory(4_000).with_memory(100)
    assert (counts.most, counts.possible) == (2, (0, 1, 2))
    assert {(candidate.cut, candidate.num_workers) for candidate in counts.impossible(chain, range(2))} == {
        (0, 3),
        (1, 3),
        (0, 4),
        (1, 4),
    }
    assert all("in memory for itself" in candidate.reason for candidate in counts.impossible(chain, range(2)))
    counts.check(2)
    with pytest.raises(MeasurementError, match=r"3 workers cannot be run.*in memory for itself"):
        counts.check(3)


def test_stages_share_the_remaining_time() -> None:
    clock = FakeClock()
    budget, usable = Budget(1000.0, clock), 1000 * (1 - RESERVE)
    assert budget.seconds_for("today") == pytest.approx(usable * SHARES["today"])
    assert budget.seconds_for("changes") == pytest.approx(usable)
    budget.leave_out([name for name in SHARES if name not in ("today", "race", "changes")])
    left = usable * (SHARES["today"] + SHARES["race"] + SHARES["changes"])
    assert budget.seconds_for("changes") == pytest.approx(left)
    clock.advance(10.0)
    assert (budget.spent, budget.seconds_for("changes")) == (10.0, pytest.approx(left - 10.0))
    assert Budget(0.0, clock).seconds_for("changes") == 0.0
    clock.advance(1000.0)  # earlier stages have overdrawn: a fifth of the budget is shared by the others
    assert budget.seconds_for("changes") == pytest.approx(200.0)
