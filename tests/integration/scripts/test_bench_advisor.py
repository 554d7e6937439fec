"""The benchmark of the advisor: a small run from end to end, and what it makes of planted results."""

import itertools
import math
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
import torch
from bench_advisor import Options, _chosen, _impossible, _runs
from bench_advisor_conditions import CONDITIONS, bad_threads, hogs
from bench_advisor_judge import Training, batches, contenders, regret, shares, train
from bench_advisor_models import Ecapa, Wav2Vec2
from bench_advisor_records import (
    CHANGES,
    TOO_BUSY,
    Predicted,
    Regret,
    Repeat,
    Result,
    Row,
    SelfRace,
    percentile,
    summary,
)
from bench_advisor_workloads import CONDITIONED, FAULTS, REAL, REPEATED, Data, spin

from audioaug import Chain, ops
from audioaug.decide.diagnose import PRIMARY, SECONDARY
from audioaug.measure import host_facts, usable_cores
from audioaug.records import Candidate, Measurement, Notice, Recommendation, Report, Timing, read_record, write_record
from tests.helpers.planted_reports import candidate, planted_report, raced

ROOT = Path(__file__).parents[3]


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/bench_advisor.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=900)


def row(name: str, regret: float | None = None, **more: object) -> Row:
    found = None if regret is None else Regret(regret, regret - 0.01, regret + 0.01)
    more = {"verdict": "Use it.", **more}
    return Row(name, 10.0, cause="model_bound", said=(), regret=found, **more)  # type: ignore[arg-type]


def result(*rows: Row, **more: object) -> Result:
    return Result(host_facts(torch.device("cpu")), "2026-01-01", 20.0, rows=rows, **more)  # type: ignore[arg-type]


def measured(name: str, *ms: float) -> Measurement:
    timing = Timing(tuple(value / 1e3 for value in ms))
    return Measurement(name, timing, timing, 10)


@pytest.mark.timeout(1000)  # some 20 s where nothing else runs
def test_a_small_run_is_written_while_it_comes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = script("--smoke", "--json", str(file))
    assert done.returncode == 0, done.stderr
    found = read_record(file, Result)
    assert [row.condition for row in found.rows] == ["quiet", "busy"] and len(found.self_races) == 1
    for judged in found.rows:
        assert not judged.failed and judged.true_ms is not None and len(judged.true_ms) > 2
        assert judged.regret is not None and judged.advice in judged.true_ms and judged.best in judged.true_ms
    told = ("Busy: regret over", "Busy: too busy to tell")  # the latter beside other tests
    assert any(each in done.stdout for each in told) and "First cause:" in done.stdout and " left)" in done.stderr
    again = script("--smoke", "--json", str(file))
    assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)


def test_results_can_be_shown_again_and_unknown_names_raise(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_record(result(row("one", 1.02), row("planted: two", answers=("fetch_bound",))), file)
    shown = script("--load", str(file))
    assert shown.returncode == 0
    assert (
        "regret over 1 workload: median 2.0 % (goal at most 3 %: met), worst 2.0 % (goal at most 8 %: met)."
        in shown.stdout
    )
    assert "wrong: planted: two: model_bound, not fetch_bound." in shown.stdout
    mixed = script("--json", str(file), "--quick")
    assert mixed.returncode == 2 and "was written without --quick" in mixed.stderr
    wrong = script("--only", "nothing like that")
    assert wrong.returncode == 2 and "There is no workload like nothing like that." in wrong.stderr


def test_there_are_enough_of_all() -> None:
    assert len(REAL) >= 10 and len(FAULTS) >= 20
    answers = {answer for fault in FAULTS.values() for answer in fault.answers}
    assert answers <= {*PRIMARY, *SECONDARY, "nan_loss"}
    needs_other_machines = {"ram_limit", "noisy_neighbour", "pin_noop", "step_syncs", "unverified"}
    assert {*PRIMARY, *SECONDARY} - answers == needs_other_machines
    assert all(fault.first == ({*fault.answers} <= {*PRIMARY}) for fault in FAULTS.values())


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ((), len(FAULTS) + len(REAL) * len(CONDITIONS)),
        (("ecapa", "busy"), 1),
        (("busy", "threads"), 2 * len(REAL)),
        (("planted",), len(FAULTS)),
        (("ecapa",), len(CONDITIONS)),
    ],
)
def test_only_selects_names_and_conditions(only: tuple[str, ...], count: int) -> None:
    assert len(_chosen(Options(only, 1.0, 1.0, 0))) == count


def test_every_workload_to_repeat_is_run_several_times_in_every_condition() -> None:
    repeated = [it for it in CONDITIONED.values() if _runs(it, Options((), 1.0, 1.0, 0, runs=4)) == 4]
    assert len(repeated) == len(REPEATED) * len(CONDITIONS)


def test_a_condition_ends_with_its_block() -> None:
    before = torch.get_num_threads()
    with hogs(2):
        hidden = [it for it in psutil.process_iter() if str(os.getpid()) in _arguments(it)]
        assert len(hidden) == 2 and not {it.pid for it in hidden} & {it.pid for it in psutil.Process().children()}
    assert psutil.wait_procs(hidden, timeout=10)[1] == []
    with bad_threads(2):
        assert torch.get_num_threads() == 1
    with bad_threads(1):
        assert torch.get_num_threads() > usable_cores()
    assert torch.get_num_threads() == before


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("model", [Ecapa(64), Wav2Vec2(32)])
def test_large_networks_classify_and_learn(model: torch.nn.Module) -> None:
    scores = model(torch.randn(2, 1, 16000))
    assert scores.shape == (2, 12)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_all_candidates_train_on_the_same_batches_in_a_round_unless_these_have_an_owner() -> None:
    def timed(untimed: int, owner: str = "") -> list[list[int]]:
        found = list(itertools.islice(batches(100, 4, untimed, 2, owner), 1 + 3 * (untimed + 2)))[1:]
        return [batch for number in range(3) for batch in found[(number + 1) * (untimed + 2) - 2 :][:2]]

    assert timed(1) == timed(5) and len(timed(1)) == 6
    assert timed(1, "one") == timed(5, "one") and timed(1) != timed(1, "one") != timed(1, "other")


@pytest.mark.parametrize("chain_engine", ["audiomentations", "batched"])
def test_the_judge_augments_alike_for_every_candidate(chain_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_advisor_judge.is_idle", lambda: True)  # then a step is timed after each untimed one
    seen: dict[int, list[torch.Tensor]] = {1: [], 2: []}  # by the number of threads

    def step(model: object, batch: tuple[torch.Tensor, torch.Tensor], optimizer: object) -> None:
        seen[torch.get_num_threads()].append(batch[0])

    net = torch.nn.Linear(1, 1)
    chain = Chain([ops.Gain(p=0.5), ops.PolarityInversion(p=0.5)], 16000)
    training = Training(net, torch.optim.SGD(net.parameters()), chain, Data(), 4, False, step)
    pair = [
        Candidate("gpu", 0, threads=1),
        Candidate("cpu", 2, worker_engine=chain_engine, num_workers=1 if chain_engine == "batched" else 0, threads=2),
    ]
    found = train(training, pair, step_seconds=1.0, seconds=0.0)
    assert {len(one.step.seconds) for one in found.values()} == {6} and len(seen[1]) == 1 + 6 * 3
    for device, loader in zip(seen[1][3::3], seen[2][3::3], strict=True):
        assert torch.allclose(device, loader, atol=1e-6)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_built_and_yields_clips(name: str) -> None:
    if name in ("planted: a CPU quota", "planted: other programs"):
        pytest.skip("it changes the machine for all processes")
    with FAULTS[name].build() as target:
        assert target.dataset[3].shape[0] == 1 and len(target.dataset) >= target.batch_size
        assert 0 <= target.chain.device_from <= target.chain.worker_until <= len(target.chain)


def test_spinning_takes_time_on_a_core() -> None:
    import time

    begin = time.thread_time()
    spin(5)
    assert time.thread_time() - begin >= 0.005


def test_the_best_is_chosen_on_other_rounds_than_it_is_compared_on() -> None:
    lucky = measured("lucky", 5, 20, 5, 20, 5, 20)  # on the even rounds only
    steady = measured("steady", 10, 10, 10, 10, 10, 10)
    _, lost = regret({"lucky": lucky, "steady": steady}, "steady")
    assert lost.value == pytest.approx(math.sqrt(1 * 0.5))  # beside itself, and beside the lucky one's other rounds
    _, lost = regret({"lucky": lucky, "steady": steady}, "lucky")
    assert lost.value == pytest.approx(math.sqrt(0.5 * 1))


def test_regret_is_how_much_longer_the_advice_takes_in_the_same_rounds() -> None:
    slow, fast = measured("slow", 12, 36, 12, 24, 12), measured("fast", 10, 30, 10, 20, 10)
    winner, lost = regret({"slow": slow, "fast": fast}, "slow")
    assert winner == "fast" and (lost.value, lost.low, lost.high) == pytest.approx((1.2, 1.2, 1.2))
    assert regret({"slow": slow, "fast": fast}, "fast") == ("fast", Regret(1.0, 1.0, 1.0))


def test_the_sentences_count_losses_too() -> None:
    wide, narrow = Predicted("a", 10.0, (5.0, 20.0), 12.0), Predicted("b", 10.0, (9.0, 11.0), 20.0)
    races = (SelfRace(4, 1.0, won=False), SelfRace(4, 1.1, won=True))
    text = "\n".join(summary(result(row("one", 1.10, predicted=(wide, narrow)), row("two", 0.9), self_races=races)))
    assert "regret over 2 workloads: median 5.0 % (goal at most 3 %: MISSED), worst 10 %" in text  # luck is no regret
    assert "median 33 %, 90th percentile 50 %; 50 % lie within" in text
    assert "1 false winners in 2 races (50 %)" in text


def judged(cause: str, shares: dict[str, float], today_ms: float = 20.0, **more: object) -> Row:
    return replace(row("one", 1.0, shares=shares, today_ms=today_ms, advice_ms=10.0, best_ms=10.0, **more), cause=cause)


@pytest.mark.parametrize("cause", CHANGES)
def test_a_cause_is_right_if_its_change_alone_gives_half_of_the_gain(cause: str) -> None:
    knob = CHANGES[cause][0]
    assert judged(cause, {knob: 0.5, "pin_memory": 0.1}).is_cause_right is True
    assert judged(cause, {knob: 0.4, "pin_memory": 0.6}).is_cause_right is False
    assert judged(cause, {}, today_ms=10.2).is_cause_right is None  # no gain to explain


def test_a_cause_without_a_change_is_right_if_no_change_explains_the_gain() -> None:
    assert judged("model_bound", {}, today_ms=10.2).is_cause_right is True
    assert judged("model_bound", {"cut": 0.4, "threads": 0.4}).is_cause_right is True
    assert judged("model_bound", {"num_workers": 0.9}).is_cause_right is False
    assert judged("decode_bound", {"num_workers": 0.9}).is_cause_right is True
    assert judged("decode_bound", {"num_workers": 0.9, "worker_engine": 1.0}).is_cause_right is True
    assert judged("decode_bound", {"num_workers": 0.3, "worker_engine": 0.8}).is_cause_right is False
    assert judged("decode_bound", {"cut": 0.9}).is_cause_right is False


def test_shares_are_of_the_measured_gain() -> None:
    ms = {"today": 20.0, "advice": 10.0, "more workers": 14.0}
    assert shares(ms, "today", "advice", {"num_workers": "more workers"}) == {"num_workers": pytest.approx(0.6)}
    assert shares(ms, "advice", "today", {"num_workers": "more workers"}) == {}


def test_the_judge_trains_with_single_changes_rivals_and_usual_plans() -> None:
    others = [raced(3, 4, 14.0), raced(2, 2, 13.0), raced(2, 4, 15.0), candidate(1, 2, predicted_ms=11.0)]
    report = recommended(raced(3, 0, 30.0), raced(0, 2, 12.0), *others)
    candidates, changes = contenders(report)
    assert changes == {"num_workers": "all in the loader, 2 workers", "cut": "all on the device, 0 workers"}
    usual = {"all in the loader, 8 workers", "all on the device, 1 worker"}
    rivals = {"split at 2, 2 workers", "all in the loader, 4 workers", "split at 1, 2 workers"}
    today_and_advice = {"all in the loader, 0 workers", "all on the device, 2 workers"}
    names = [candidate.name for candidate in candidates]
    assert sorted(names) == sorted({*today_and_advice, *changes.values(), *rivals, *usual})


def test_an_impossible_result_counts_unless_a_notice_names_it_and_another_is_recommended() -> None:
    report = recommended(raced(3, 0, 30.0), raced(0, 2, 12.0), raced(2, 2, 5.0))  # the ceiling is 10 ms
    assert _impossible(report) == ("split at 2, 2 workers",)
    warned = replace(report, notices=(Notice("impossible_result", "split at 2, 2 workers was too fast."),))
    assert _impossible(warned) == ()
    followed = replace(warned, recommendation=Recommendation(**asdict(raced(2, 2, 5.0)), because=""))
    assert _impossible(followed) == ("split at 2, 2 workers",)


def recommended(today: Candidate, advice: Candidate, *others: Candidate) -> Report:
    recommendation = Recommendation(**asdict(advice), because="")
    return replace(planted_report(), current=today, recommendation=recommendation, candidates=(today, advice, *others))


def test_failures_of_the_advice_are_counted() -> None:
    left = replace(judged("model_bound", {}, verdict="Leave it as it is: it is fine."), regret=Regret(1.2, 1.0, 1.5))
    below = judged("model_bound", {}, impossible=("all on the device",))
    slow = replace(judged("model_bound", {}), budget=4.0)
    busy = judged("model_bound", {}, verdict=f"{TOO_BUSY}: it was.", condition="busy")
    text = "\n".join(summary(result(left, below, slow, busy, quick=True)))
    assert 'False "Leave it as it is": 1 (goal 0: MISSED)' in text
    assert "Impossible results printed: 1 (goal 0: MISSED): one: all on the device" in text
    assert "Within twice the budget: 0.0 %" in text
    assert "Busy: too busy to tell, which is no advice: one." in text and "Busy: regret" not in text


def test_runs_agree_if_their_advice_is_equally_fast_or_one_says_why_not() -> None:
    times = {"a": 10.0, "b": 10.4, "c": 12.0}
    first = replace(row("one", true_ms=times), advice="a")
    assert first.agrees is None
    assert replace(first, repeats=(Repeat("b", "Use b."),)).agrees is True
    assert replace(first, repeats=(Repeat("b", "Use b."), Repeat("c", "Use c."))).agrees is False
    assert replace(first, repeats=(Repeat("c", "Use c. It is a tie with a."),)).agrees is True


def test_a_skipped_fault_is_neither_right_nor_wrong() -> None:
    skipped = row("planted: quota", answers=("quota_throttled",), skipped="not permitted")
    assert skipped.right is None and "skipped: planted: quota: not permitted" in summary(result(skipped))
    beside = row("planted: x", answers=("fork_unsafe",), first=False)
    assert beside.right is False and replace(beside, said=("fork_unsafe",)).right is True


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.9) == 3.0 and percentile([1.0], 0.5) == 1.0
