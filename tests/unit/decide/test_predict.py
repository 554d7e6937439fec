from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.predict import (
    best_threads,
    device_ms,
    loader_ms,
    predict,
    threads_beside,
    with_prediction,
    worker_ms,
)
from audioaug.decide.shortlist import all_candidates
from audioaug.records import Candidate, StageCost
from tests.helpers.planted_reports import COLLATE, CPU, DECODE, around, candidate, crowding, planted_report


def test_where_the_loader_is_slower_it_sets_the_pace() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), model=10.0)
    found = predict(report, candidate(3, 2))
    assert found is not None and found.bound_by == "loader"
    assert found.ms == pytest.approx((110 + DECODE + COLLATE) * crowding(2) / 2)


def test_where_the_device_is_slower_it_sets_the_pace() -> None:
    found = predict(planted_report(model=100.0), candidate(1, 4))
    assert found is not None and found.bound_by == "device"
    assert found.ms == pytest.approx(100 + 0.5 + 0.2)


def test_without_a_gpu_all_work_shares_the_cores() -> None:
    report = planted_report(worker=(30.0, 30.0, 30.0), model=50.0, host=replace(CPU, usable_cores=2.0, torch_threads=2))
    found = predict(report, candidate(3, 8))
    assert found is not None and found.bound_by == "cores"
    assert found.ms == pytest.approx((90 + DECODE + COLLATE + 2 * 50) / 2)


def test_with_a_gpu_the_cores_are_no_bound_of_their_own() -> None:
    report = planted_report(worker=(30.0, 30.0, 30.0), model=50.0)
    few = replace(report, host=replace(report.host, usable_cores=2.0))
    assert predict(few, candidate(3, 8)) == predict(report, candidate(3, 8))


@pytest.mark.parametrize("host", [CPU, None])
def test_without_workers_the_times_add_up(host) -> None:
    report = planted_report(host=host) if host else planted_report()
    found = predict(report, candidate(1, 0))
    assert found is not None and found.ms == pytest.approx((DECODE + COLLATE + 2) + (10 + 0.5 + 0.2))


def test_between_the_two_cuts_that_were_measured_the_loader_follows_the_workers_share() -> None:
    report = planted_report(worker=(2.0, 6.0, 2.0))
    ends = [next(c.ms_per_batch for c in report.loader_costs if (c.cut, c.num_workers) == (cut, 2)) for cut in (0, 3)]
    between = [loader_ms(report, candidate(cut, 2))[1] for cut in range(4)]
    assert between == pytest.approx([ends[0] + share * (ends[1] - ends[0]) for share in (0, 0.2, 0.8, 1)])


def test_between_worker_counts_a_workers_own_time_changes_evenly() -> None:
    report = planted_report(workers=(2, 8))
    batch = DECODE + COLLATE + 11
    own = {w: batch * crowding(w) for w in (2, 8)}
    assert loader_ms(report, candidate(3, 5))[1] == pytest.approx((own[2] + own[8]) / 2 / 5)
    assert loader_ms(report, candidate(3, 1))[1] == pytest.approx(own[2])  # fewer than measured: as with the fewest
    assert loader_ms(report, candidate(3, 16))[1] == pytest.approx(own[8] / 16)  # more: as with the most


def test_a_chain_that_costs_nothing_in_workers_is_predicted_too() -> None:
    found = predict(planted_report(worker=(0.0, 0.0, 0.0)), candidate(2, 1))
    assert found is not None and found.ms == pytest.approx(10.2)


def test_unmeasured_stages_are_not_predicted() -> None:
    report = planted_report()
    assert predict(replace(report, ceiling=None), candidate(3, 1)) is None
    assert predict(replace(report, loader_costs=()), candidate(3, 1)) is None
    assert predict(planted_report(workers=(1, 2)), candidate(3, 0)) is None  # what no workers would be like is unknown
    assert predict(planted_report(device=(0.1, None, 0.2)), candidate(1, 1)) is None
    assert predict(planted_report(device=(0.1, None, 0.2)), candidate(2, 1)) is not None
    failed = StageCost("Op1", "device", None, op=1, engine="batched", reason="out of memory")
    assert (
        predict(
            replace(report, stages=(*(s for s in report.stages if (s.where, s.op) != ("device", 1)), failed)),
            candidate(1, 1),
        )
        is None
    )
    assert with_prediction(replace(report, ceiling=None), candidate(3, 1)) == candidate(3, 1)


def test_torch_audiomentations_falls_back_to_ours_without_a_counterpart() -> None:
    report = planted_report(stock=(None, 7.0, None))
    assert device_ms(report, candidate(0, 1, device_engine="torch-audiomentations"))[1] == pytest.approx(
        10 + 0.1 + 7 + 0.2
    )
    assert device_ms(report, candidate(0, 1))[1] == pytest.approx(10 + 0.1 + 0.5 + 0.2)


def test_a_worker_runs_decode_collate_and_the_ops_before_the_cut() -> None:
    report = planted_report()
    assert [worker_ms(report, cut)[1] for cut in range(4)] == pytest.approx([5, 7, 15, 16])


def test_batched_workers_take_our_time_where_there_is_one() -> None:
    report = planted_report(batched=(None, 2.0, 0.5))
    assert [worker_ms(report, cut, "batched")[1] for cut in range(4)] == pytest.approx([5, 7, 9, 9.5])
    assert worker_ms(report, 3) == worker_ms(planted_report(), 3)
    assert device_ms(report, candidate(1, 2, worker_engine="batched")) == device_ms(report, candidate(1, 2))


def test_batched_workers_make_the_loader_faster_by_their_savings() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), batched=(4.0, 16.0, 2.0), model=1.0)
    theirs, ours = (predict(report, candidate(3, 2, worker_engine=engine)) for engine in ("audiomentations", "batched"))
    assert theirs is not None and ours is not None and ours.bound_by == "loader"
    assert ours.ms == pytest.approx(theirs.ms * (22 + DECODE + COLLATE) / (110 + DECODE + COLLATE))
    cpu = replace(report, host=replace(CPU, usable_cores=2.0, torch_threads=2))
    assert predict(cpu, candidate(3, 8, worker_engine="batched")).ms == pytest.approx(
        (22 + DECODE + COLLATE + 2 * 1) / 2
    )


def test_batched_workers_are_a_candidate_only_where_they_take_less_time() -> None:
    report = planted_report(worker=(2.0, 8.0, 1.0), batched=(3.0, 4.0, 9.0))
    candidates = all_candidates(report, (0, 2), pin_memory=False)
    ours = [(it.cut, it.device_engine, it.num_workers) for it in candidates if it.worker_engine == "batched"]
    assert ours == [(2, "batched", 2)]  # at 1 and 3 audiomentations is faster; no workers is the device's own case
    assert not [it for it in all_candidates(planted_report(), (2,), pin_memory=False) if it.worker_engine == "batched"]


TWO_CORES = replace(CPU, usable_cores=2.0, torch_threads=2)


@pytest.mark.parametrize(
    ("host", "workers", "threads"),
    [
        (TWO_CORES, 0, None),  # no other process uses the cores
        (TWO_CORES, 1, 1),
        (TWO_CORES, 3, 1),
        (replace(CPU, usable_cores=8.0, torch_threads=8), 3, 5),
        (replace(CPU, usable_cores=8.0, torch_threads=4), 3, None),  # there are cores for all
        (replace(CPU, usable_cores=2.0, torch_threads=1), 2, None),  # one is what it has
        (replace(CPU, usable_cores=2.0, torch_threads=4), 0, 2),  # more than cores only get in each other's way
        (replace(TWO_CORES, device="cuda"), 2, None),
    ],
)
def test_the_training_process_gets_a_thread_for_each_core_that_workers_leave_it(host, workers, threads) -> None:
    report = planted_report(host=host)
    assert threads_beside(report, workers) == threads
    candidates = [it for it in all_candidates(report, (workers,), pin_memory=False) if it.status != "infeasible"]
    assert {it.threads for it in candidates} == {threads}


def test_fewer_threads_slow_the_device_part_like_the_step() -> None:
    report = planted_report(host=TWO_CORES, model=10.0)
    one = candidate(1, 2, threads=1)
    assert device_ms(report, one)[1] == pytest.approx(2 * 10.7)  # not measured: the most it can be
    more = planted_report(host=replace(TWO_CORES, torch_threads=1), model=10.0)
    assert device_ms(more, candidate(1, 2, threads=2))[1] == pytest.approx(10.7)  # nor is it known to be faster
    steps = [StageCost("step", "model", ms, engine=name) for name, ms in (("2 threads", 20.0), ("1 thread", 30.0))]
    measured = replace(report, stages=(*report.stages, *steps))
    assert device_ms(measured, one)[1] == pytest.approx(1.5 * 10.7)
    assert device_ms(measured, candidate(1, 2)) == device_ms(report, candidate(1, 2))
    busy = planted_report(worker=(30.0, 30.0, 30.0), model=40.0, host=TWO_CORES)
    assert predict(busy, candidate(3, 8, threads=1)).ms == pytest.approx((90 + DECODE + COLLATE + 1 * 80) / 2)


times = st.floats(0.01, 200)
machines = st.fixed_dictionaries(
    {
        "worker": st.lists(times, min_size=3, max_size=3),
        "device": st.lists(times, min_size=3, max_size=3),
        "batched": st.lists(times, min_size=3, max_size=3),
        "model": times,
        "host": st.sampled_from([CPU, replace(CPU, torch_threads=4), None]),
    }
)
always = settings(max_examples=60, derandomize=True)


def build(machine, **change):
    known = {name: value for name, value in (machine | change).items() if value is not None}
    return planted_report(**known)


def predictions(report) -> dict[str, float]:
    candidates = all_candidates(report, (0, 1, 2, 3, 8, 12), pin_memory=False)
    return {replace(it, threads=None).name: it.predicted_ms for it in candidates}


def slowed(costs, op, factor):
    return [cost * factor if place == op else cost for place, cost in enumerate(costs)]


@given(machines, st.integers(0, 2), st.floats(1, 20), st.sampled_from(["worker", "device", "model", "cores"]))
@always
def test_nothing_that_costs_more_is_predicted_to_be_faster(machine, op, factor, what) -> None:
    report = build(machine)
    if what == "cores":
        slower = replace(report, host=replace(report.host, usable_cores=report.host.usable_cores / factor))
    elif what == "model":
        slower = build(machine, model=machine["model"] * factor)
    else:
        slower = build(machine, **{what: slowed(machine[what], op, factor)})
    before, after = predictions(report), predictions(slower)
    theirs = {name for name in before if "batched workers" not in name}
    assert theirs == {name for name in after if "batched workers" not in name}
    assert None not in before.values() and None not in after.values()
    assert all(after[name] >= before[name] * (1 - 1e-9) for name in before.keys() & after.keys())


@given(machines)
@always
def test_intervals_hold_the_prediction(machine) -> None:
    report = build(machine)
    for it in all_candidates(report, (0, 1, 3, 12), pin_memory=False):
        low, high = it.predicted_ci_ms
        assert 0 <= low <= it.predicted_ms <= high


def best_cut(report, workers: int, last: bool) -> int:
    """The cut with the smallest prediction; the first or the last of equal ones."""
    found = {cut: predict(report, candidate(cut, workers)).ms for cut in range(4)}
    equal = [cut for cut, ms in found.items() if ms <= min(found.values()) * (1 + 1e-9)]
    return equal[-1 if last else 0]


@given(machines, st.integers(0, 2), st.floats(1, 20), st.sampled_from([0, 1, 2, 8]))
@always
def test_an_op_that_gets_slower_on_one_side_moves_the_best_cut_away(machine, op, factor, workers) -> None:
    machine = machine | {"host": None}  # with a GPU
    report = build(machine)
    heavier = build(machine, worker=slowed(machine["worker"], op, factor))
    assert best_cut(heavier, workers, last=False) <= best_cut(report, workers, last=False)
    slower = build(machine, device=slowed(machine["device"], op, factor))
    assert best_cut(slower, workers, last=True) >= best_cut(report, workers, last=True)


def test_a_heavy_op_in_the_middle_is_put_where_it_is_cheap() -> None:
    heavy_worker = planted_report(worker=(1.0, 400.0, 1.0), device=(1.0, 1.0, 1.0))
    heavy_device = planted_report(worker=(1.0, 1.0, 1.0), device=(1.0, 400.0, 1.0))
    assert best_cut(heavy_worker, 2, last=True) <= 1
    assert best_cut(heavy_device, 2, last=False) >= 2


def test_all_candidates_keeps_the_impossible_with_a_reason() -> None:
    report = planted_report(device=(None, 0.5, 0.2), device_from=1)
    candidates = all_candidates(report, (0, 2), pin_memory=True)
    assert {(c.cut, c.device_engine, c.num_workers) for c in candidates if c.status == "predicted"} == {
        *((cut, "batched", workers) for cut in (1, 2, 3) for workers in (0, 2)),
    }
    assert [(c.placement, c.cut, c.reason) for c in candidates if c.status == "infeasible"] == [
        ("gpu", 0, "Op0: it has a codec")
    ]
    assert all(c.pin_memory for c in candidates if c.status == "predicted")


def test_the_empty_chain_has_one_cut() -> None:
    report = planted_report(worker=(), device=())
    candidates = all_candidates(report, (0, 1), pin_memory=False)
    assert [(c.placement, c.cut, c.num_workers) for c in candidates] == [("cpu", 0, 0), ("cpu", 0, 1)]
    assert predict(report, Candidate("cpu", 0)).ms == pytest.approx(10 + DECODE + COLLATE)


def test_planted_intervals_have_their_coverage() -> None:
    assert around(10.0) == (10.0, (9.0, 11.0))


def on_threads(report, **steps):
    """The report with steps for several numbers of threads, each with an interval of 10 %."""
    stages = [StageCost("step", "model", *around(ms), engine=name) for name, ms in steps.items()]
    return replace(report, stages=(*report.stages, *stages))


def test_more_threads_than_the_step_gains_by_are_not_used() -> None:
    host = replace(CPU, usable_cores=4.0, torch_threads=4)
    slow = on_threads(planted_report(host=host), **{"4 threads": 30.0, "3 threads": 29.0, "2 threads": 12.0})
    assert best_threads(slow) == 2
    known = replace(slow, ceiling=replace(slow.ceiling, threads=2))
    assert [threads_beside(known, workers) for workers in (0, 1, 2, 3)] == [2, 2, 2, 1]
    assert [threads_beside(slow, workers) for workers in (0, 1, 2, 3)] == [None, 3, 2, 1]
    similar = on_threads(planted_report(host=host), **{"4 threads": 30.0, "2 threads": 27.0})
    assert best_threads(similar) == 4  # not beyond doubt
    assert best_threads(planted_report(host=host)) == 4
    ahead = predict(known, candidate(0, 0, threads=2)).ms
    assert ahead == pytest.approx(10.0 + 0.8 + DECODE + COLLATE)  # the ceiling and the ops were measured on two
    assert predict(known, candidate(0, 0)).ms == pytest.approx(10.8 * 30 / 12 + DECODE + COLLATE)
