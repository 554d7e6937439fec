"""Workers on other nodes, on planted costs: one of them takes 5, 25, 105 or 115 ms for a batch, at cuts 0 to 3.

Training then takes 22, 19, 15 or 10 ms, and a batch has 2.048 MB. Without samples there is no variance.
"""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from audioaug.decide.remote import Remote
from audioaug.decide.what_if import what_if
from audioaug.records import LoaderCost, ReceiveRate, Report, Signals, StageCost
from tests.helpers.planted_reports import CPU, around, planted_report

REPORT = planted_report(worker=(20.0, 80.0, 10.0), device=(3.0, 4.0, 5.0))
"""Its eight cores are best with all of them as workers, at cut 2: 105 * 1.35 / 8 = 17.7 ms."""


def said(report: Report = REPORT, **values: float) -> str:
    return "\n".join(what_if(report, values))


@pytest.mark.parametrize(
    ("workers", "place", "ms"),
    [
        (1, "all on the device, 1 worker", "22.0"),
        (2, "split at 1, 2 workers", "19.0"),
        (6, "split at 2, 6 workers", "17.5"),  # 105 / 6
        (11, "all in the loader, 11 workers", "10.5"),  # 115 / 11
        (12, "all in the loader, 12 workers", "10.0"),
        (10_000, "all in the loader, 10,000 workers", "10.0"),
    ],
)
def test_each_number_of_workers_has_its_best_cut(workers, place, ms) -> None:
    first = said(remote=workers).splitlines()[0]
    assert first.startswith(f"With remote = {workers}, {place} would take {ms} ms a step (")
    assert first.endswith(") instead of 17.7 ms without remote workers (predicted).")


def test_the_sentences_for_12_workers() -> None:
    _, bottleneck, enough, robust, missing = said(remote=12).splitlines()  # 115 / 12 of 10 ms; 115 / 11 is 10.5 ms
    assert bottleneck == "The bottleneck would be training itself; the workers would be 96 % busy (predicted)."
    assert enough == (
        "More than 12 workers would gain less than 2 %, since training itself is then the bottleneck, with 10.0 ms a "
        "step (predicted)."
    )
    assert robust == (  # 115 / 10.5
        "If 1 of them took twice as long and 1 more were lost with 1 unfinished batch, a step would take 11.0 ms "
        "(predicted)."
    )
    assert missing.startswith(
        "How fast this machine receives batches, and how fast a worker sends them, was not measured"
    )


def test_a_worker_sends_as_fast_as_one_alone_did() -> None:
    """2.048 MB take 20.5 ms at 100 MB/s, the rate of one connection, and 2.0 ms at the best, 1,024 MB/s."""
    rates = (ReceiveRate(1, 100.0, (100.0, 100.0)), ReceiveRate(4, 1024.0, (1024.0, 1024.0)))
    text = said(replace(REPORT, receive_rates=rates), remote=6)  # (25 + 20.5) / 6, (105 + 20.5) / 6 = 20.9
    assert "split at 1, 6 workers would take 19.0 ms a step" in text and "not measured" not in text
    text = said(replace(REPORT, receive_rates=rates[::-1]), remote=12)  # (115 + 20.5) / 12
    assert "all in the loader, 12 workers would take 11.3 ms a step" in text


def test_the_receive_rate_is_the_bottleneck() -> None:
    """2.048 MB take 20.5 ms at 100 MB/s; two workers at cut 1 deliver a batch every 12.5 ms."""
    text = said(remote=12, receive=100)
    assert "split at 1, 12 workers would take 20.5 ms a step" in text
    assert text.endswith("How fast a worker sends batches was not measured, so it is not included.")
    assert "The bottleneck would be receiving; the workers would be 10 % busy" in text  # 25 / 12 of 20.5 ms
    assert "More than 2 workers would gain less than 2 %, since receiving is then the bottleneck, with 100 MB/s" in text


def test_without_a_gpu_receiving_adds_to_the_step() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), device=(3.0, 4.0, 5.0), host=CPU)
    text = said(report, remote=12, receive=100)
    assert "all in the loader, 12 workers would take 30.5 ms a step" in text
    assert "The bottleneck would be training, including receiving; the workers" in text
    assert "since training, including receiving, is then the bottleneck, with 30.5 ms a step" in text


def test_the_best_measured_rate_and_the_measured_size_of_a_batch_count() -> None:
    rates = (ReceiveRate(1, 100.0, (90.0, 110.0)), ReceiveRate(4, 200.0, (150.0, 250.0)))
    report = replace(REPORT, receive_rates=rates, signals=Signals(batch_bytes=5_000_000))
    assert "would take 25.0 ms a step" in said(report, remote=50)
    assert "would take 50.0 ms a step" in said(report, remote=50, batch_size=64)
    low, high = (float(it) for it in re.search(r"\(([\d.]+) \.\. ([\d.]+)\)", said(report, remote=50)).groups())
    exact = replace(report, receive_rates=(ReceiveRate(4, 200.0, (200.0, 200.0)),))
    least, most = (float(it) for it in re.search(r"\(([\d.]+) \.\. ([\d.]+)\)", said(exact, remote=50)).groups())
    assert low < least < 25 < most < high


def test_ranks_share_the_remote_workers_and_the_link() -> None:
    assert "split at 2, 12 workers would take 17.5 ms a step" in said(remote=12, ranks=2)  # 2 * 105 / 12
    assert "would take 41.0 ms a step" in said(remote=24, ranks=2, receive=100)


def test_the_rate_of_one_worker_is_measured_if_possible() -> None:
    """A worker alone takes 30 % longer in its process than its stages add up to."""
    costs = tuple(replace(it, ms_per_batch=1.3 * it.ms_per_batch) for it in REPORT.loader_costs)
    text = said(replace(REPORT, loader_costs=costs), remote=12)
    assert "all in the loader, 12 workers would take 12.5 ms a step" in text  # 1.3 * 115 / 12
    (line,) = what_if(replace(REPORT, loader_costs=()), {"remote": 12.0})
    assert line == "With remote = 12: no prediction, since not every stage was measured."


def test_slow_workers_need_more_of_them_and_variance_too() -> None:
    remote = Remote(planted_report(worker=(200.0, 800.0, 100.0), device=(3.0, 4.0, 5.0)))
    assert remote.enough() == 109  # 1105 / 10.2 = 108.3
    assert remote.enough(0.05) == 112  # six of them deliver half: 1105 / 10.2 = 112 - 3.5
    assert Remote(with_slow_batches(REPORT)).enough() > Remote(REPORT).enough() == 12


def with_slow_batches(report: Report) -> Report:
    """The same report, in which one batch in twenty takes a hundred times as long."""
    costs = [it for it in report.loader_costs if it.num_workers]
    slow = LoaderCost(3, 0, *around(115.0), samples_ms=(50.0,) * 19 + (5000.0,))
    step = StageCost("step", "model", 10.0, engine="1 thread", samples_ms=(9.0, 11.0))
    return replace(report, loader_costs=(*costs, slow), stages=(*report.stages, step))


def test_a_cut_whose_workers_stall_is_not_the_best() -> None:
    """On average 12 workers are fast enough at each cut, and training takes 10.3, 10.2, 10.1 and 10 ms."""
    report = planted_report(worker=(20.0, 80.0, 10.0), device=(0.1, 0.1, 0.1))
    assert Remote(report).step(12).split.cut == 3
    step = Remote(with_slow_batches(report)).step(12)
    assert step.split.cut == 1 and step.ms == pytest.approx(10.2, rel=0.01)


def test_more_workers_never_predict_a_slower_step() -> None:
    remote = Remote(REPORT)
    times = [remote.step(workers).ms for workers in (*range(1, 16), 40, 500)]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(times))


def test_too_few_of_the_largest_number() -> None:
    text = said(remote=10_000, step_ms=0.001)
    assert "The bottleneck would be the workers; the workers would be 100 % busy (predicted)." in text
    assert "Even 10,000 workers would be the bottleneck (predicted)." in text


def test_the_cost_of_an_epoch() -> None:
    """31,250 steps of 10.0 ms at 2.48 an hour; 17.5 ms at 2.24; 17.7 ms at 2 alone. Twelve are just enough."""
    text = said(remote=12, clips=1e6, core_price=0.04, machine_price=2)
    assert (
        "An epoch of 1,000,000 clips would take 5 min 12 s and cost 0.215 with 12 remote workers, and 0.340 with 6 "
        "(predicted).\nThe cheapest number is 12, with which an epoch would cost 0.215 (predicted)."
    ) in text
    expensive = said(remote=12, clips=1e6, core_price=4, machine_price=2)
    assert "The cheapest number is 0, with which an epoch would cost 0.308 (predicted)." in expensive
    assert "The cheapest" not in said(remote=12, clips=1e6, core_price=0.04)
    assert "cost 0.00000573 with 1 remote worker (predicted)" in said(remote=1, core_price=0.3)  # 100 clips
    assert "An epoch of 6,400 clips would take 2.0 s with 12 remote workers (predicted)." in said(remote=12, clips=6400)


def test_a_price_needs_the_length_of_an_epoch() -> None:
    stream = replace(REPORT, workload=replace(REPORT.workload, clips=None))
    text = said(stream, remote=1, core_price=1)
    assert "The cost of an epoch is not known, since its length is not: give clips=N." in text
    assert "and cost" in said(stream, remote=1, core_price=1, clips=100)


def test_few_workers_have_none_to_lose() -> None:
    assert "lost" not in said(remote=2) and "1 more were lost" in said(remote=3)


def test_a_profile_of_a_gpu_is_fed_by_remote_workers() -> None:
    here = planted_report(worker=(20.0, 80.0, 10.0), device=(40.0, 40.0, 40.0), model=300.0, host=CPU)
    first = what_if(here, {"remote": 12.0}, REPORT)[0]
    assert first.startswith("With remote = 12, the model on planted, all in the loader, 12 workers would take 10.0 ms")
