from dataclasses import replace

import pytest

from audioaug.decide.shortlist import (
    all_candidates,
    best_of_each,
    pinning_wins,
    placement_of,
    shortlist,
    worth_screening,
)
from audioaug.records import StageCost
from tests.helpers.planted_reports import candidate, planted_report


def predicted(cut, workers, ms, **more):
    return candidate(cut, workers, predicted_ms=ms, **more)


TODAY = candidate(3, 0)


def names(candidates):
    return [it.name for it in candidates]


def test_a_cut_is_named_by_its_ends() -> None:
    assert [placement_of(cut, 3) for cut in range(4)] == ["gpu", "split", "split", "cpu"]
    assert placement_of(0, 0) == "cpu"


def test_today_and_the_best_of_both_ends_always_race() -> None:
    candidates = [predicted(1, w, 10.0 + w) for w in (1, 2)]
    candidates += [predicted(2, 1, 11.0), predicted(3, 1, 900.0), predicted(3, 2, 800.0), predicted(0, 1, 700.0)]
    found = names(shortlist(candidates, TODAY, 4))
    assert found[0] == TODAY.name
    assert found[1] == candidate(1, 1).name
    assert set(found[2:4]) == {candidate(3, 2).name, candidate(0, 1).name}


@pytest.mark.parametrize("at_most", [1, 2, 3, 4, 6, 50])
def test_no_more_than_asked_for_and_none_twice(at_most) -> None:
    report = planted_report()
    found = shortlist(all_candidates(report, (0, 1, 2, 4, 8), pin_memory=False), candidate(3, 0), at_most)
    assert 1 <= len(found) <= at_most
    assert len(set(names(found))) == len(found)


def test_the_fewest_workers_within_two_percent_represent_all() -> None:
    candidates = [predicted(2, 1, 12.0), predicted(2, 2, 10.15), predicted(2, 4, 10.0), predicted(2, 8, 10.01)]
    candidates += [predicted(3, 1, 5.0)]
    found = [it for it in shortlist(candidates, TODAY, 10) if it.cut == 2]
    assert names(found) == [candidate(2, 2).name]
    candidates[1] = replace(candidates[1], predicted_ms=10.25)
    assert names(it for it in shortlist(candidates, TODAY, 10) if it.cut == 2) == [candidate(2, 4).name]


def test_the_favourite_brings_its_neighbours() -> None:
    candidates = [predicted(2, 1, 12.0), predicted(2, 2, 10.15), predicted(2, 4, 10.0), predicted(3, 1, 50.0)]
    found = {it.num_workers for it in shortlist(candidates, TODAY, 10) if it.cut == 2}
    assert found == {2, 4}


def test_the_impossible_and_the_unpredicted_never_race() -> None:
    candidates = [
        predicted(0, 1, 1.0, status="infeasible", reason="a codec"),
        candidate(1, 1),
        predicted(2, 1, 9.0),
        predicted(3, 1, 12.0),
    ]
    assert {it.cut for it in shortlist(candidates, TODAY, 10)} == {2, 3}


def test_without_any_prediction_only_today_is_left() -> None:
    assert shortlist([candidate(1, 1), candidate(0, 0)], TODAY, 5) == [TODAY]
    assert shortlist([], TODAY, 5) == [TODAY]


def test_both_engines_get_their_best() -> None:
    candidates = [
        predicted(0, 1, 10.0),
        predicted(0, 1, 11.0, device_engine="torch-audiomentations"),
        predicted(3, 1, 20.0),
    ]
    assert {it.device_engine for it in shortlist(candidates, TODAY, 5) if it.cut == 0} == {
        "batched",
        "torch-audiomentations",
    }


def test_measured_candidates_represent_their_cut_and_come_first() -> None:
    candidates = [predicted(1, 1, 5.0), predicted(2, 1, 9.0), predicted(2, 2, 8.0, measured_ms=30.0)]
    candidates += [predicted(3, 2, 20.0, measured_ms=12.0), predicted(3, 1, 19.0)]
    assert names(best_of_each(candidates)) == [candidate(3, 2).name, candidate(2, 2).name, candidate(1, 1).name]
    assert names(shortlist(candidates, TODAY, 4)) == [
        TODAY.name,
        candidate(3, 2).name,
        candidate(2, 2).name,
        candidate(3, 1).name,
    ]


def test_there_is_one_for_every_cut_and_engine_that_can_run() -> None:
    report = planted_report()
    candidates = all_candidates(report, (0, 1, 2, 4, 8), pin_memory=False)
    found = [(it.cut, it.device_engine) for it in best_of_each(candidates)]
    assert sorted(found) == sorted({(it.cut, it.device_engine) for it in candidates if it.status != "infeasible"})
    assert len(found) == 4


def test_up_to_two_other_worker_counts_are_screened() -> None:
    candidates = [predicted(cut, workers, 10.0 * cut + workers) for cut in (1, 2) for workers in (1, 2, 4, 8)]
    assert names(worth_screening(candidates)) == [
        candidate(1, 1).name,
        candidate(1, 2).name,
        candidate(1, 4).name,
        candidate(2, 1).name,
    ]
    candidates[1] = predicted(1, 2, 12.0, measured_ms=40.0)  # which then represents its cut
    assert names(worth_screening(candidates)) == [
        candidate(1, 2).name,
        candidate(1, 4).name,
        candidate(1, 8).name,
        candidate(2, 1).name,
    ]
    assert worth_screening([]) == []


def test_the_favourite_also_races_with_the_threads_it_has_today() -> None:
    candidates = [predicted(2, 1, 10.0, threads=1), predicted(3, 1, 50.0, threads=1), predicted(0, 1, 40.0, threads=1)]
    found = shortlist(candidates, TODAY, 10)
    assert found[4] == candidate(2, 1)  # behind both ends of the chain; of itself nothing is known
    assert [it.threads for it in found] == [None, 1, 1, 1, None]
    assert len(shortlist(candidates, candidate(2, 1), 10)) == 4  # what is done today races anyway


def test_batched_workers_are_separate_candidates() -> None:
    candidates = [predicted(3, 2, 10.0), predicted(3, 1, 12.0), predicted(3, 2, 4.0, worker_engine="batched")]
    assert names(best_of_each(candidates)) == ["all in the loader (batched workers), 2 workers", candidate(3, 2).name]
    assert names(shortlist(candidates, TODAY, 2)) == [TODAY.name, candidates[2].name]


@pytest.mark.parametrize(("clips", "kept"), [(100, True), (800_000, True), (10**7, False)])
def test_workers_persist_if_their_start_is_a_part_of_an_epoch(clips, kept) -> None:
    report = planted_report()
    report = replace(
        report,
        workload=replace(report.workload, clips=clips),
        loader_costs=tuple(replace(it, first_batch_seconds=2.0) for it in report.loader_costs),
    )
    assert {it.persistent_workers for it in all_candidates(report, (2,), pin_memory=False)} == {kept}
    unknown = all_candidates(planted_report(), (2,), pin_memory=False)
    assert {it.persistent_workers for it in unknown} == {False}  # they started in no time


@pytest.mark.parametrize(
    ("copies", "wins"),
    [
        ({"copy, pageable": 2.0, "copy, pinned": 1.0}, True),
        ({"copy, pageable": 1.0, "copy, pinned": 2.0}, False),
        ({"copy, pageable": 1.0}, None),
        ({}, None),
    ],
)
def test_memory_is_pinned_if_its_copy_is_faster(copies, wins) -> None:
    stages = tuple(StageCost(name, "transfer", ms) for name, ms in copies.items())
    assert pinning_wins(replace(planted_report(), stages=stages)) is wins
