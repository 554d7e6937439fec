"""The sliders' predictions: the report's own times on this machine, and scaled from those elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from audioaug.decide.shortlist import all_candidates
from audioaug.decide.sliders import grid
from audioaug.records import Recommendation, Report
from tests.helpers.planted_reports import CPU, candidate, planted_report, raced


def report_with(*measured: Any, **planted: Any) -> Report:
    """A planted report with all its candidates; some of them measured."""
    report = planted_report(**planted)
    names = {it.name for it in measured}
    predicted = [it for it in all_candidates(report, (0, 1, 2, 8), pin_memory=None) if it.name not in names]
    return replace(report, candidates=(*measured, *predicted))


def times_at(found: dict[str, Any], **values: str) -> dict[str, float]:
    """The times at these values of the axes, and this machine's for the others, by candidate."""
    cores, step = (
        axis["values"].index(values[axis["name"]]) if axis["name"] in values else axis["start"]
        for axis in found["axes"][:2]
    )
    row = found["times"][cores * len(found["axes"][1]["values"]) + step]
    return {name: ms for name, ms in zip(found["candidates"], row, strict=True) if ms is not None}


@pytest.mark.parametrize("host", [CPU, None])
def test_on_this_machine_every_candidate_has_its_own_time(host: Any) -> None:
    slow = raced(3, 0, 519.0)
    report = report_with(slow, raced(0, 0, 21.5), **({"host": host} if host else {}))
    report = replace(report, current=slow, recommendation=Recommendation(**vars(raced(0, 0, 21.5))))
    found = times_at(grid(report) or {})
    own = {it.name: it.measured_ms or it.predicted_ms for it in report.candidates}
    assert set(found) == set(own) and found == pytest.approx(own, rel=1e-4)
    assert found["all in the loader, 0 workers"] == 519 and found["all on the device, 0 workers"] == 21.5


def test_a_recommended_candidate_that_is_not_in_the_list_is_included() -> None:
    report = replace(report_with(), recommendation=Recommendation(**vars(raced(1, 5, 12.5))))
    assert times_at(grid(report) or {})["split at 1, 5 workers"] == 12.5


def test_elsewhere_a_measured_candidate_keeps_its_distance_from_the_formulas() -> None:
    report = report_with(raced(3, 1, 32.0))  # 16 ms by the formulas
    found = times_at(grid(report) or {}, step_ms="100 ms")
    assert found["all in the loader, 1 worker"] == pytest.approx(32 * 100 / 16, rel=0.01)
    assert found["all in the loader, 2 workers"] < 160  # corrected by the same error, but less


def test_no_candidate_is_faster_than_the_model() -> None:
    report = report_with(raced(3, 8, 11.0), raced(3, 1, 12.0), model=10.0)  # the second by the formulas in 16 ms
    found = grid(report) or {}
    for step_ms in found["axes"][1]["values"]:
        model = float(step_ms.removesuffix(" ms"))
        assert min(times_at(found, step_ms=step_ms, cores="64").values()) >= 0.99 * model


def test_other_numbers_of_cores_add_their_best_candidates() -> None:
    found = grid(report_with(model=0.5)) or {}
    here, there = times_at(found), times_at(found, cores="32")
    assert set(here) < set(there) and "all in the loader, 32 workers" in there
    assert min(there.values()) < min(here.values())
    assert times_at(found, step_ms="5.00 ms").keys() == here.keys()


def test_axes_start_at_this_machine() -> None:
    report = report_with(host=replace(CPU, usable_cores=7.5))
    axes = (grid(report) or {})["axes"]
    assert [axis["values"][axis["start"]] for axis in axes] == ["7.5", "10.0 ms", "32"]


def test_a_candidate_without_a_time_is_left_out() -> None:
    found = grid(replace(report_with(), candidates=(candidate(1, 7), raced(1, 5, 20.0)))) or {}
    assert list(times_at(found)) == ["split at 1, 5 workers"]


def test_without_stages_nothing_is_predicted() -> None:
    empty = replace(planted_report(), stages=(), loader_costs=())
    assert grid(empty) is None and grid(replace(empty, ceiling=None)) is None
