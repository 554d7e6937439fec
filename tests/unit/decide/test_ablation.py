"""One change at a time: which setting of the recommended candidate gives the gain, and the cause that follows."""

from dataclasses import replace

import pytest

from audioaug.decide.ablation import changes_to_time, evidence, single_changes
from audioaug.decide.diagnose import diagnose
from audioaug.decide.recommend import recommend
from audioaug.records import Candidate, Report, StageCost
from tests.helpers.planted_reports import CPU, around, candidate, planted_report, raced, steady

TODAY = raced(3, 0, 4294.0)
BEST = raced(3, 1, 1990.0, threads=1)


def ecapa(best: Candidate = BEST, *more: Candidate, one_thread: float = 1822.0) -> Report:
    """An ECAPA-TDNN on two cores: its step takes 4,045 ms on two threads and ``one_thread`` on one; loading 250 ms."""
    report = planted_report(
        (80.0, 80.0, 40.0), (1.0, 1.0, 1.0), one_thread, replace(CPU, usable_cores=2.0, torch_threads=2)
    )
    report = replace(report, ceiling=replace(report.ceiling, threads=1), loader_costs=())
    steps = [
        StageCost("step", "model", *around(ms), engine=name)
        for name, ms in (("2 threads", 4045.0), ("1 thread", one_thread))
    ]
    loaders = planted_report((80.0, 80.0, 40.0), decode=40.0, collate=10.0, workers=(0, 1, 2)).loader_costs
    stages = (*report.stages, *steps)
    return replace(
        report, stages=stages, loader_costs=loaders, candidates=(TODAY, best, *more), current=TODAY, cost_seconds=60.0
    )


def test_the_gain_of_fewer_threads_is_not_that_of_a_worker() -> None:
    threads, workers = single_changes(ecapa(), TODAY, BEST)
    assert (threads.knob, workers.knob) == ("threads", "num_workers")
    assert threads.share > 0.9 and workers.share < 0.3 and not threads.measured


def test_a_measured_change_replaces_its_prediction() -> None:
    alone = raced(3, 1, 4435.0)
    [change] = [it for it in single_changes(ecapa(BEST, alone), TODAY, BEST) if it.knob == "num_workers"]
    assert (change.ms, change.measured) == (4435.0, True) and change.share < 0


def test_r5_1_threads_are_the_cause_and_the_sentence_quotes_each_change() -> None:
    report = ecapa(BEST, raced(3, 1, 4435.0))
    found = recommend(report, steady((TODAY, BEST)))
    assert found.cause == "thread_oversubscription"
    because = found.recommendation.because
    assert because.startswith("2 threads of torch share 2 cores and compete for them: a step takes 4,294 ms, with ")
    assert "One change at a time, instead of 4,294 ms: torch on 1 thread, " in because
    assert "(predicted); 1 worker, 4,435 ms." in because


def test_a_predicted_change_is_corrected_by_measured_ones_and_not_below_the_best() -> None:
    today, best = raced(3, 0, 40.0), raced(1, 2, 12.0)
    report = replace(planted_report(), candidates=(today, best), current=today)
    workers, cut = sorted(single_changes(report, today, best), key=lambda change: change.knob, reverse=True)
    assert [(it.knob, it.measured) for it in (workers, cut)] == [("num_workers", False), ("cut", False)]
    assert min(workers.ms, cut.ms) >= 12.0 and workers.share <= 1.0
    cut_alone = raced(1, 0, 60.0)
    slower = replace(report, candidates=(today, best, cut_alone, raced(2, 2, 24.0)))  # a neighbour of "2 workers"
    [now] = [it for it in single_changes(slower, today, best) if it.knob == "num_workers"]
    assert now.ms > 1.2 * workers.ms and not now.measured
    fast = replace(report, candidates=(today, replace(best, measured_ms=30.0)))
    assert min(it.ms for it in single_changes(fast, today, fast.candidates[1])) == 30.0


def test_workers_are_the_cause_where_they_alone_give_the_gain() -> None:
    today, best = raced(3, 0, 25.0), raced(3, 2, 12.0)
    report = replace(planted_report(host=CPU), candidates=(today, best), current=today)
    assert [change.knob for change in single_changes(report, today, best)] == ["num_workers"]
    assert diagnose(report, today, best).id == "too_few_workers"


def test_workers_that_alone_gain_little_are_not_the_cause() -> None:
    today, best = raced(3, 0, 25.0), raced(3, 2, 12.0, threads=1)
    report = replace(planted_report(host=CPU), candidates=(today, best, raced(3, 2, 24.0)), current=today)
    assert diagnose(report, today, best).id != "too_few_workers"


def test_without_workers_their_engine_is_changed_together_with_their_number() -> None:
    today, best = raced(3, 0, 25.0), raced(3, 1, 12.0, worker_engine="batched")
    report = replace(planted_report(batched=(1.0, 1.0, 1.0)), candidates=(today, best), current=today)
    engine, workers = single_changes(report, today, best)
    assert (engine.knob, engine.words, engine.ms, engine.share) == ("worker_engine", "1 batched worker", 12.0, 1.0)
    assert workers.knob == "num_workers" and workers.share < 1


def test_the_largest_change_is_the_cause_also_if_others_differ() -> None:
    today, best, workers = raced(3, 0, 25.0), raced(1, 2, 12.0), raced(3, 2, 12.5)
    report = replace(planted_report(host=CPU), candidates=(today, best, workers, raced(1, 0, 24.0)), current=today)
    found = diagnose(report, today, best)
    assert found.id == "too_few_workers" and "with 2 workers 12.5 ms" in found.text


def test_no_cause_is_named_if_no_change_gives_half_of_the_gain() -> None:
    today, best = raced(3, 0, 25.0), raced(1, 2, 12.0)
    report = replace(
        planted_report(host=CPU), candidates=(today, best, raced(3, 2, 20.0), raced(1, 0, 21.0)), current=today
    )
    found = diagnose(report, today, best)
    assert found.id == "unverified" and "no single change gives half of what all changes together gain" in found.text
    nearly = (today, best, raced(3, 2, 19.5), raced(1, 0, 21.0))  # 42 %, which is half within the error of measuring
    assert diagnose(replace(report, candidates=nearly), today, best).id == "too_few_workers"


def test_a_cause_is_named_where_only_one_setting_and_the_prefetching_differ() -> None:
    today, best = raced(3, 2, 30.0), raced(0, 2, 17.0, prefetch_factor=4)
    report = planted_report((0.1, 0.1, 0.1), (0.1, 0.1, 0.1), model=10.0, decode=50.0, host=CPU)
    report = replace(report, candidates=(today, best, raced(0, 2, 29.0)), current=today)
    assert [change.share < 0.5 for change in single_changes(report, today, best)] == [True]
    assert diagnose(report, today, best).id == "decode_bound"


def test_the_op_that_moves_is_the_cause_although_decoding_takes_longer() -> None:
    today, best = raced(3, 1, 25.0), raced(2, 1, 12.0)
    report = replace(planted_report((1.0, 2.0, 5.0), decode=30.0, host=CPU), candidates=(today, best), current=today)
    found = diagnose(report, today, best)
    assert found.id == "augment_cpu_bound" and report.chain.ops[2] in found.text
    cheap = replace(planted_report((1.0, 2.0, 0.5), decode=30.0, host=CPU), candidates=(today, best), current=today)
    assert diagnose(cheap, today, best).id == "decode_bound"


def test_ops_that_move_are_the_cause_if_they_take_a_good_part_of_the_stall_together() -> None:
    today, best = raced(3, 1, 25.0), raced(0, 1, 12.0)
    report = replace(planted_report((2.0, 2.5, 2.0), decode=30.0, host=CPU), candidates=(today, best), current=today)
    found = diagnose(report, today, best)
    assert found.id == "augment_cpu_bound" and report.chain.ops[1] in found.text


def test_an_op_is_the_cause_if_another_engine_gives_the_gain_although_decoding_takes_longer() -> None:
    today, best = raced(3, 1, 25.0), raced(3, 1, 12.0, worker_engine="batched")
    report = planted_report((2.0, 2.5, 2.0), decode=30.0, host=CPU, batched=(0.2, 0.2, 0.2))
    report = replace(report, candidates=(today, best), current=today)
    found = diagnose(report, today, best)
    assert found.id == "augment_cpu_bound" and report.chain.ops[1] in found.text
    cheap = planted_report((0.5, 0.5, 0.5), decode=30.0, host=CPU, batched=(0.2, 0.2, 0.2))
    assert diagnose(replace(cheap, candidates=(today, best), current=today), today, best).id == "decode_bound"


@pytest.mark.parametrize("best", [TODAY, raced(3, 1, 5000.0), candidate(3, 1)])
def test_without_a_gain_there_is_nothing_to_explain(best: Candidate) -> None:
    assert single_changes(ecapa(best), TODAY, best) == [] and evidence(TODAY, []) == ""


def test_changes_that_were_not_raced_are_timed_the_most_promising_first() -> None:
    report = ecapa()
    threads, worker = changes_to_time(report, TODAY, BEST, raced={TODAY.name, BEST.name})
    assert (threads.num_workers, threads.threads, worker.num_workers, worker.threads) == (0, 1, 1, None)
    assert changes_to_time(report, TODAY, BEST, raced={threads.name, worker.name}) == []
    failed = replace(worker, status="infeasible", reason="It failed.")
    assert changes_to_time(ecapa(BEST, failed), TODAY, BEST, raced=()) == [threads]


def test_nothing_is_timed_if_there_is_one_change_or_no_gain() -> None:
    assert changes_to_time(ecapa(), TODAY, raced(3, 0, 1990.0, threads=1), raced=()) == []
    assert changes_to_time(ecapa(), TODAY, raced(3, 1, 4290.0, threads=1), raced=()) == []


@pytest.mark.parametrize(("one_worker_ms", "cause"), [(13.0, "too_few_workers"), (17.0, "augment_cpu_bound")])
def test_their_engine_is_the_cause_only_if_workers_alone_give_less(one_worker_ms: float, cause: str) -> None:
    today, best = raced(3, 0, 25.0), raced(3, 1, 12.0, worker_engine="batched")
    alone = raced(3, 1, one_worker_ms)
    report = replace(planted_report(batched=(1.0, 1.0, 1.0)), candidates=(today, best, alone), current=today)
    assert diagnose(report, today, best).id == cause
