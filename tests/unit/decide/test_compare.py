"""Two reports or two monitored runs: what differs is stated with its factor, the rest is called no difference."""

from dataclasses import replace

import pytest

from audioaug.decide.compare import Times, compare_reports, compare_runs
from audioaug.decide.recommend import recommend
from audioaug.errors import UsageError
from audioaug.records import MonitoredRun, Report, Window
from tests.helpers.planted_reports import CPU, around, planted_report, raced, steady

TODAY, BEST, OTHER = raced(3, 0, 40.0), raced(0, 2, 20.0), raced(1, 1, 30.0)


def finished(*candidates, **costs) -> Report:
    """A report that recommends the fastest of these candidates; the first one is today's."""
    report = replace(planted_report(**costs), candidates=candidates, current=candidates[0], cost_seconds=60.0)
    return recommend(report, steady(candidates))


BEFORE = finished(TODAY, BEST, OTHER)


def test_the_same_report_has_no_difference() -> None:
    assert compare_reports(BEFORE, BEFORE) == (
        "The model alone: 10.0 ms (9.00 .. 11.0) before, 10.0 ms (9.00 .. 11.0) now: no significant difference.",
        "What you do today, all in the loader, 0 workers: 40.0 ms (39.6 .. 40.4) before, 40.0 ms (39.6 .. 40.4) now: "
        "no significant difference.",
        "The advice is the same, all on the device, 2 workers: 20.0 ms (19.8 .. 20.2) before, 20.0 ms (19.8 .. 20.2) "
        "now: no significant difference.",
        "No stage of 8 changed significantly.",
    )


def test_an_update_that_makes_the_step_and_an_op_slower_is_found_with_its_version() -> None:
    host = replace(BEFORE.host, versions={"torch": "2.11.0", "numpy": "2.4.6"})
    after = finished(raced(3, 0, 60.0), raced(0, 2, 41.0), raced(1, 1, 35.0), model=20.0, device=(0.1, 1.5, 0.2))
    now = replace(after, host=replace(host, versions={"torch": "2.14.1", "numpy": "2.4.6"}, torch_threads=2))
    said = compare_reports(replace(BEFORE, host=host), now)
    assert said[:2] == ("threads of torch: 1 before, 2 now.", "torch: 2.11.0 before, 2.14.1 now.")
    assert said[2] == (
        "The model alone: 10.0 ms (9.00 .. 11.0) before, 20.0 ms (18.0 .. 22.0) now: 2.00x slower (1.64 .. 2.44)."
    )
    assert "The advice was all on the device, 2 workers and is split at 1, 1 worker." in said
    former = (
        "The former advice: 20.0 ms (19.8 .. 20.2) before, 41.0 ms (40.6 .. 41.4) now: 2.05x slower (2.01 .. 2.09)."
    )
    assert former in said
    assert said[-1].startswith("Op1 (device, batched): 0.500 ms") and "3.00x slower (2.45 .. 3.67)" in said[-1]


def test_faster_is_said_as_a_factor_above_one() -> None:
    assert str(Times(*around(30.0), *around(10.0))).endswith("3.00x faster (2.45 .. 3.67)")
    assert Times(*around(10.0), *around(11.0)).differs is False


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (replace(BEFORE, recommendation=None), "The second report is of a run that did not finish"),
        (replace(BEFORE, workload=replace(BEFORE.workload, model="n.py")), "of different models: m.py, 7 param"),
        (
            replace(BEFORE, workload=replace(BEFORE.workload, batch_size=8)),
            "different batches: 32 clips at fp32; 8 clips",
        ),
        (replace(BEFORE, chain=replace(BEFORE.chain, hash="other")), r"different chains: Op0 > Op1 > Op2 \(hash\)"),
    ],
)
def test_reports_of_different_work_are_refused(now, says) -> None:
    with pytest.raises(UsageError, match=says):
        compare_reports(BEFORE, now)


def windows(step_ms: float, wait_ms: float, bottleneck: str) -> list[Window]:
    return [Window(float(n), 20 * n, 20, step_ms + n % 3, wait_ms, bottleneck=bottleneck) for n in range(1, 13)]


RUN = MonitoredRun(CPU)


def test_two_monitored_runs_compare_step_waiting_and_bottleneck() -> None:
    said = compare_runs((RUN, windows(40.0, 4.0, "model_bound")), (RUN, windows(80.0, 44.0, "too_few_workers")))
    assert said == (
        "A step: 41.0 ms (40.0 .. 42.0) before, 81.0 ms (80.0 .. 82.0) now: 1.98x slower (1.90 .. 2.05).",
        "Waiting for data in a step: 4.00 ms (4.00 .. 4.00) before, 44.0 ms (44.0 .. 44.0) now: 11.00x slower "
        "(11.0 .. 11.0); 9.8 % of the time before, 54 % now.",
        "The main bottleneck was the model's own step and is the workers.",
    )


def test_a_run_with_few_windows_is_refused() -> None:
    with pytest.raises(UsageError, match="The second run has 4 windows of training steps; 5 are needed"):
        compare_runs((RUN, windows(40.0, 4.0, "")), (RUN, windows(40.0, 4.0, "")[:4]))


def test_without_any_waiting_there_is_no_factor() -> None:
    said = compare_runs((RUN, windows(40.0, 0.0, "")), (RUN, windows(40.0, 4.0, "")))
    assert said[1].startswith("Waiting for data in a step: 0 ms (0 .. 0) before, 4.00 ms (4.00 .. 4.00) now; ")


def test_another_configuration_of_today_and_stages_without_interval_are_not_compared() -> None:
    now = finished(raced(3, 2, 40.0), BEST, OTHER)
    now = replace(now, stages=tuple(replace(stage, ci_ms=None, ms_per_batch=99.0) for stage in now.stages))
    said = compare_reports(BEFORE, now)
    assert "What you do today was all in the loader, 0 workers and is all in the loader, 2 workers." in said
    assert not [line for line in said if "99.0 ms" in line]
