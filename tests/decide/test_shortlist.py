from dataclasses import replace

import pytest

from audioaug.decide.shortlist import all_cells, best_of_each, placement_of, shortlist, worth_a_heat
from tests.decide.planted import cell, planted_report


def predicted(cut, workers, ms, **more):
    return cell(cut, workers, predicted_ms=ms, **more)


TODAY = cell(3, 0)


def names(cells):
    return [it.name for it in cells]


def test_a_cut_is_named_by_its_ends() -> None:
    assert [placement_of(cut, 3) for cut in range(4)] == ["gpu", "split", "split", "cpu"]
    assert placement_of(0, 0) == "cpu"


def test_today_and_the_best_of_both_ends_always_race() -> None:
    cells = [predicted(1, w, 10.0 + w) for w in (1, 2)]
    cells += [predicted(2, 1, 11.0), predicted(3, 1, 900.0), predicted(3, 2, 800.0), predicted(0, 1, 700.0)]
    found = names(shortlist(cells, TODAY, 4))
    assert found[0] == TODAY.name
    assert found[1] == cell(1, 1).name
    assert set(found[2:4]) == {cell(3, 2).name, cell(0, 1).name}


@pytest.mark.parametrize("at_most", [1, 2, 3, 4, 6, 50])
def test_no_more_than_asked_for_and_none_twice(at_most) -> None:
    report = planted_report()
    found = shortlist(all_cells(report, (0, 1, 2, 4, 8), pin_memory=False), cell(3, 0), at_most)
    assert 1 <= len(found) <= at_most
    assert len(set(names(found))) == len(found)


def test_the_fewest_workers_within_two_percent_stand_for_all() -> None:
    cells = [predicted(2, 1, 12.0), predicted(2, 2, 10.15), predicted(2, 4, 10.0), predicted(2, 8, 10.01)]
    cells += [predicted(3, 1, 5.0)]
    found = [it for it in shortlist(cells, TODAY, 10) if it.cut == 2]
    assert names(found) == [cell(2, 2).name]
    cells[1] = replace(cells[1], predicted_ms=10.25)
    assert names(it for it in shortlist(cells, TODAY, 10) if it.cut == 2) == [cell(2, 4).name]


def test_the_favourite_brings_its_neighbours() -> None:
    cells = [predicted(2, 1, 12.0), predicted(2, 2, 10.15), predicted(2, 4, 10.0), predicted(3, 1, 50.0)]
    found = {it.num_workers for it in shortlist(cells, TODAY, 10) if it.cut == 2}
    assert found == {2, 4}


def test_the_impossible_and_the_unpredicted_never_race() -> None:
    cells = [
        predicted(0, 1, 1.0, status="infeasible", reason="a codec"),
        cell(1, 1),
        predicted(2, 1, 9.0),
        predicted(3, 1, 12.0),
    ]
    assert {it.cut for it in shortlist(cells, TODAY, 10)} == {2, 3}


def test_without_any_prediction_only_today_is_left() -> None:
    assert shortlist([cell(1, 1), cell(0, 0)], TODAY, 5) == [TODAY]
    assert shortlist([], TODAY, 5) == [TODAY]


def test_both_engines_get_their_best() -> None:
    cells = [predicted(0, 1, 10.0), predicted(0, 1, 11.0, device_engine="torch-audiomentations"), predicted(3, 1, 20.0)]
    assert {it.device_engine for it in shortlist(cells, TODAY, 5) if it.cut == 0} == {
        "batched",
        "torch-audiomentations",
    }


def test_what_was_measured_stands_for_its_cut_and_comes_first() -> None:
    cells = [predicted(1, 1, 5.0), predicted(2, 1, 9.0), predicted(2, 2, 8.0, measured_ms=30.0)]
    cells += [predicted(3, 2, 20.0, measured_ms=12.0), predicted(3, 1, 19.0)]
    assert names(best_of_each(cells)) == [cell(3, 2).name, cell(2, 2).name, cell(1, 1).name]
    assert names(shortlist(cells, TODAY, 4)) == [TODAY.name, cell(3, 2).name, cell(2, 2).name, cell(3, 1).name]


def test_there_is_one_for_every_cut_and_engine_that_can_run() -> None:
    report = planted_report()
    cells = all_cells(report, (0, 1, 2, 4, 8), pin_memory=False)
    found = [(it.cut, it.device_engine) for it in best_of_each(cells)]
    assert sorted(found) == sorted({(it.cut, it.device_engine) for it in cells if it.status != "infeasible"})
    assert len(found) == 4


def test_other_numbers_of_workers_get_a_heat_too_two_at_most() -> None:
    cells = [predicted(cut, workers, 10.0 * cut + workers) for cut in (1, 2) for workers in (1, 2, 4, 8)]
    assert names(worth_a_heat(cells)) == [cell(1, 1).name, cell(1, 2).name, cell(1, 4).name, cell(2, 1).name]
    cells[1] = predicted(1, 2, 12.0, measured_ms=40.0)  # which stands for its cut then
    assert names(worth_a_heat(cells)) == [cell(1, 2).name, cell(1, 4).name, cell(1, 8).name, cell(2, 1).name]
    assert worth_a_heat([]) == []


def test_the_favourite_also_races_with_the_threads_it_has_today() -> None:
    cells = [predicted(2, 1, 10.0, threads=1), predicted(3, 1, 50.0, threads=1), predicted(0, 1, 40.0, threads=1)]
    found = shortlist(cells, TODAY, 10)
    assert found[4] == cell(2, 1)  # behind both ends of the chain; of itself nothing is known
    assert [it.threads for it in found] == [None, 1, 1, 1, None]
    assert len(shortlist(cells, cell(2, 1), 10)) == 4  # what is done today races anyway


def test_batched_workers_are_a_way_of_their_own() -> None:
    cells = [predicted(3, 2, 10.0), predicted(3, 1, 12.0), predicted(3, 2, 4.0, worker_engine="batched")]
    assert names(best_of_each(cells)) == ["all in the loader (batched workers), 2 workers", cell(3, 2).name]
    assert names(shortlist(cells, TODAY, 2)) == [TODAY.name, cells[2].name]


@pytest.mark.parametrize(("clips", "kept"), [(100, True), (10**7, False)])
def test_workers_live_on_where_their_start_is_a_part_of_an_epoch(clips, kept) -> None:
    report = planted_report()
    report = replace(
        report,
        workload=replace(report.workload, clips=clips),
        loader_costs=tuple(replace(it, first_batch_seconds=2.0) for it in report.loader_costs),
    )
    assert {it.persistent_workers for it in all_cells(report, (2,), pin_memory=False)} == {kept}
    unknown = all_cells(planted_report(), (2,), pin_memory=False)
    assert {it.persistent_workers for it in unknown} == {False}  # they started in no time
