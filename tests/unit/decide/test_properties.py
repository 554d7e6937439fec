"""Changing one number moves predictions and recommendations in the right direction, on any machine."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.predict import predict, predict_all
from audioaug.decide.shortlist import all_candidates, best_of_each
from audioaug.records import ContentionCost, Report, StageCost
from tests.helpers.planted_reports import CPU, GPU, candidate, planted_report

always = settings(max_examples=40, derandomize=True)
times = st.floats(0.1, 200)
lists = st.lists(times, min_size=3, max_size=3)
factors = st.floats(1, 10)
TAILS = ((1.0,) * 4, (1.0,) * 19 + (9.0,), (0.7, 1.0, 1.3))
machines = st.fixed_dictionaries(
    {
        "worker": lists,
        "device": lists,
        "model": times,
        "kappa": st.floats(1, 3),
        "slower": st.floats(1, 3),
        "tail": st.sampled_from(TAILS),
        "gpu": st.booleans(),
    }
)


def build(machine) -> Report:
    """A machine with contention between workers and training, and with some slow batches."""
    host = GPU if machine["gpu"] else replace(CPU, usable_cores=2.0, torch_threads=1)
    report = planted_report(
        worker=machine["worker"], device=machine["device"], model=machine["model"], host=host, workers=(0, 1, 2, 4)
    )
    alone = {rate.num_workers: rate.ms_per_batch for rate in report.loader_costs if rate.cut == 3}
    step = machine["model"]
    contention = tuple(
        ContentionCost(3, "audiomentations", w, 1, step, step * machine["kappa"], alone[w] * machine["slower"])
        for w in (1, 2, 4)
    )
    costs = tuple(
        replace(rate, samples_ms=tuple(rate.ms_per_batch * it for it in machine["tail"]))
        if not rate.num_workers
        else rate
        for rate in report.loader_costs
    )
    steps = StageCost("step", "model", step, engine="1 thread", samples_ms=(step, step))
    return replace(report, contention=contention, loader_costs=costs, stages=(*report.stages, steps))


CANDIDATES = [candidate(cut, workers) for cut in range(4) for workers in (0, 1, 2, 4)]


def milliseconds(report: Report) -> list[float]:
    return [found.ms for found in predict_all(report, CANDIDATES)]


@given(machines, factors, st.sampled_from(["model", "kappa", "slower", "worker", "device"]), st.integers(0, 2))
@always
def test_higher_costs_are_never_predicted_to_be_faster(machine, factor, what, op) -> None:
    worse = dict(machine)
    if isinstance(machine[what], list):
        worse[what] = [ms * factor if place == op else ms for place, ms in enumerate(machine[what])]
    else:
        worse[what] = machine[what] * factor
    before, after = milliseconds(build(machine)), milliseconds(build(worse))
    assert all(b >= a * (1 - 1e-6) for a, b in zip(before, after, strict=True))


def ends(report: Report, workers: int) -> tuple[int, int]:
    """The first and the last of the best cuts with this number of workers."""
    found = [predict.ms for predict in predict_all(report, [candidate(cut, workers) for cut in range(4)])]
    best = [cut for cut, ms in enumerate(found) if ms <= min(found) * (1 + 1e-9)]
    return best[0], best[-1]


@given(machines, factors, st.sampled_from([1, 2, 4]))
@always
def test_a_slower_model_never_moves_work_to_the_device(machine, factor, workers) -> None:
    even = machine | {"tail": TAILS[0], "kappa": 1.0, "slower": 1.0, "gpu": True}
    slower = even | {"model": machine["model"] * factor}
    assert ends(build(slower), workers)[1] >= ends(build(even), workers)[1]


@given(machines, factors, st.sampled_from([1, 2, 4]))
@always
def test_a_chain_that_is_heavier_in_workers_never_moves_work_to_them(machine, factor, workers) -> None:
    even = machine | {"tail": TAILS[0], "kappa": 1.0, "slower": 1.0, "gpu": True}
    heavier = even | {"worker": [ms * factor for ms in machine["worker"]]}
    assert ends(build(heavier), workers)[0] <= ends(build(even), workers)[0]


@given(machines)
@always
def test_more_workers_without_contention_never_move_work_to_the_device(machine) -> None:
    report = build(machine | {"tail": TAILS[0], "kappa": 1.0, "slower": 1.0, "gpu": True})
    last = [ends(report, workers)[1] for workers in (1, 2, 4)]
    assert last == sorted(last)


@given(machines)
@always
def test_prediction_is_at_least_the_time_of_each_end_alone(machine) -> None:
    report = build(machine)
    for place, found in zip(CANDIDATES, predict_all(report, CANDIDATES), strict=True):
        own = machine["model"] + sum(machine["device"][place.cut :])
        assert found.ms >= own * (1 - 0.05)
        assert found.ci_ms[0] <= found.ms <= found.ci_ms[1]


@given(machines)
@always
def test_the_favourite_is_the_fastest_of_its_kind(machine) -> None:
    candidates = [
        it for it in all_candidates(build(machine), (0, 1, 2, 4), pin_memory=False) if it.status != "infeasible"
    ]
    best = best_of_each(candidates)[0]
    assert best.predicted_ms <= 1.021 * min(it.predicted_ms for it in candidates)
    assert best.bound_by in ("loader", "device", "cores")


@given(machines, factors)
@always
def test_one_prediction_is_that_of_many(machine, factor) -> None:
    report = build(machine)
    assert [predict(report, it) for it in CANDIDATES[:3]] == predict_all(report, CANDIDATES)[:3]
