from dataclasses import replace

import pytest

from audioaug.decide.diagnose import diagnose, stall
from tests.helpers.planted_reports import CPU, candidate, planted_report, raced


def test_stall_is_the_share_that_the_model_does_not_need() -> None:
    report = planted_report(model=10.0)
    assert stall(report, 40.0) == pytest.approx(0.75)
    assert stall(report, 9.0) == 0.0


def test_model_bound() -> None:
    found = diagnose(planted_report(model=10.0), raced(3, 0, 10.1))
    assert found.id == "model_bound"
    assert "10.0 ms of 10.1 ms" in found.text and "1.0 %" in found.text


@pytest.mark.parametrize(
    ("today", "best", "words"),
    [
        (0, 4, "The training process itself loads too slowly: a step takes 30.0 ms, with 4 workers 5.00 ms; the"),
        (1, 2, "1 worker loads too slowly: a step takes 30.0 ms, with 2 workers 5.00 ms; the"),
        (2, 4, "2 workers load too slowly: a step takes 30.0 ms, with 4 workers 5.00 ms; the"),
        (2, 5, "2 workers load too slowly: a step takes 30.0 ms, with 5 workers 5.00 ms; the"),
    ],
)
def test_too_few_workers(today, best, words) -> None:
    found = diagnose(planted_report(model=2.0), raced(3, today, 30.0), raced(3, best, 5.0))
    assert found.id == "too_few_workers"
    assert found.text == f"{words} model alone needs 2.00 ms. Use {best}."


def test_too_many_threads() -> None:
    report = planted_report(host=replace(CPU, usable_cores=2.0, torch_threads=2))
    found = diagnose(report, raced(3, 2, 60.0), raced(3, 2, 30.0, threads=1))
    assert found.id == "thread_oversubscription"
    assert found.text == (
        "2 workers and 2 threads of torch share 2 cores and compete for them: a step takes 60.0 ms, with all in the "
        "loader, 2 workers, 1 thread 30.0 ms. Use that."
    )
    assert diagnose(report, raced(3, 0, 60.0), raced(3, 2, 30.0, threads=1)).id == "too_few_workers"


def test_more_workers_that_alone_gain_little_are_not_the_cause() -> None:
    report = replace(planted_report(), candidates=(raced(3, 4, 28.0), raced(2, 0, 12.0)))
    assert diagnose(report, raced(3, 0, 30.0), raced(2, 4, 11.0)).id == "augment_cpu_bound"
    assert diagnose(planted_report(), raced(3, 4, 30.0), raced(3, 4, 30.0)).id == "augment_cpu_bound"


def test_an_op_in_the_workers() -> None:
    found = diagnose(planted_report(), raced(3, 2, 30.0))
    assert found.id == "augment_cpu_bound"
    assert found.text == (
        "50 % of a worker's time is spent in Op1 (8.00 ms a batch); on the GPU it costs 0.500 ms of a 10.5 ms step."
    )
    assert "on whole batches in the training process" in diagnose(planted_report(host=CPU), raced(3, 2, 30.0)).text


def test_an_op_that_batched_workers_run_faster() -> None:
    report, today = planted_report(batched=(None, 2.0, 0.5)), raced(3, 2, 30.0)
    report = replace(report, candidates=(raced(3, 4, 28.0), raced(3, 2, 12.0, worker_engine="batched")))
    found = diagnose(report, today, raced(3, 4, 11.0, worker_engine="batched"))
    assert found.id == "augment_cpu_bound"  # not too few workers: that is another way to run it
    assert found.text == "50 % of a worker's time is spent in Op1 (8.00 ms a batch); batched, it takes 2.00 ms there."
    assert "on the GPU" in diagnose(report, today, raced(1, 2, 11.0, worker_engine="batched")).text  # Op1 is there


def test_an_op_of_batched_workers() -> None:
    report, today = planted_report(batched=(None, 7.0, 0.5)), raced(3, 2, 30.0, worker_engine="batched")
    assert "Op1 (7.00 ms a batch); on the GPU it costs 0.500 ms" in diagnose(report, today, today).text


def test_an_op_without_a_device_build() -> None:
    found = diagnose(planted_report(device=(0.1, None, 0.2), device_from=2), raced(3, 2, 30.0))
    assert found.id == "cpu_only_transform"
    assert "Op1 (8.00 ms a batch), which has no device build." in found.text


def test_an_op_after_the_cut_is_not_blamed() -> None:
    assert "Op0" in diagnose(planted_report(decode=1.0), raced(1, 2, 30.0)).text


@pytest.mark.parametrize(("stage", "cause"), [("decode", "decode_bound"), ("collate", "transport_bound")])
def test_stages_other_than_augmentation(stage, cause) -> None:
    found = diagnose(planted_report(**{stage: 90.0}), raced(3, 2, 80.0))
    assert found.id == cause
    assert stage in found.text and "(90.0 ms a batch)" in found.text and " % of a worker's time" in found.text


def test_without_measured_stages_nothing_is_blamed() -> None:
    found = diagnose(replace(planted_report(), stages=()), raced(3, 2, 40.0), candidate(0, 2))
    assert found.id == "unverified" and "75 %" in found.text


def test_a_cheap_collate_is_not_blamed_for_being_the_slowest_stage() -> None:
    found = diagnose(planted_report(decode=0.01, worker=(0.01, 0.01, 0.01), collate=0.02), raced(3, 0, 80.0))
    assert found.id == "unverified" and "no measured stage accounts for it (the slowest is collate)" in found.text
