"""The benchmark of the advisor: a small run from end to end, and what it makes of planted results."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench_advisor import _regret
from bench_advisor_records import Predicted, Regret, Result, Row, SelfRace, percentile, summary
from bench_advisor_workloads import FAULTS, REAL, spin

from audioaug.decide.diagnose import PRIMARY, SECONDARY
from audioaug.measure import host_facts
from audioaug.records import Measurement, Timing, read_record, write_record

ROOT = Path(__file__).parents[3]


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/bench_advisor.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=900)


def row(name: str, regret: float | None = None, **more: object) -> Row:
    found = None if regret is None else Regret(regret, regret - 0.01, regret + 0.01)
    return Row(name, 10.0, "Use it.", "model_bound", (), regret=found, **more)  # type: ignore[arg-type]


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
    (judged,) = found.rows
    assert len(found.self_races) == 1 and not judged.failed and len(judged.true_ms or ()) > 2
    assert judged.regret is not None and judged.advice in judged.true_ms and judged.best in judged.true_ms
    assert "Regret over" in done.stdout and "First cause:" in done.stdout and " left)" in done.stderr
    again = script("--smoke", "--json", str(file))
    assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)


def test_results_can_be_shown_again_and_unknown_names_raise(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_record(result(row("one", 1.02), row("planted: two", answers=("fetch_bound",))), file)
    shown = script("--load", str(file))
    assert shown.returncode == 0
    assert "Regret over 1 workload: median 2.0 %, worst 2.0 %." in shown.stdout
    assert "wrong: planted: two: model_bound, not fetch_bound." in shown.stdout
    wrong = script("--only", "nothing like that")
    assert wrong.returncode == 2 and "There is no workload like nothing like that." in wrong.stderr


def test_there_are_enough_of_all() -> None:
    assert len(REAL) >= 10 and len(FAULTS) >= 20
    answers = {answer for fault in FAULTS.values() for answer in fault.answers}
    assert answers <= {*PRIMARY, *SECONDARY, "nan_loss"}
    needs_other_machines = {"ram_limit", "noisy_neighbour", "pin_noop", "step_syncs", "unverified"}
    assert {*PRIMARY, *SECONDARY} - answers == needs_other_machines
    assert all(fault.first == ({*fault.answers} <= {*PRIMARY}) for fault in FAULTS.values())


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
    _, regret = _regret({"lucky": lucky, "steady": steady}, "steady")
    assert regret.value == pytest.approx(math.sqrt(1 * 0.5))  # beside itself, and beside the lucky one's other rounds
    _, regret = _regret({"lucky": lucky, "steady": steady}, "lucky")
    assert regret.value == pytest.approx(math.sqrt(0.5 * 1))


def test_regret_is_how_much_longer_the_advice_takes_in_the_same_rounds() -> None:
    slow, fast = measured("slow", 12, 36, 12, 24, 12), measured("fast", 10, 30, 10, 20, 10)
    winner, regret = _regret({"slow": slow, "fast": fast}, "slow")
    assert winner == "fast" and (regret.value, regret.low, regret.high) == pytest.approx((1.2, 1.2, 1.2))
    assert _regret({"slow": slow, "fast": fast}, "fast") == ("fast", Regret(1.0, 1.0, 1.0))


def test_the_sentences_count_losses_too() -> None:
    wide, narrow = Predicted("a", 10.0, (5.0, 20.0), 12.0), Predicted("b", 10.0, (9.0, 11.0), 20.0)
    races = (SelfRace(4, 1.0, won=False), SelfRace(4, 1.1, won=True))
    text = "\n".join(summary(result(row("one", 1.10, predicted=(wide, narrow)), row("two", 0.9), self_races=races)))
    assert "Regret over 2 workloads: median 5.0 %, worst 10 %." in text  # being lucky is no regret
    assert "median 33 %, 90th percentile 50 %; 50 % lie within" in text
    assert "1 false winners in 2 races (50 %)" in text


def test_a_skipped_fault_is_neither_right_nor_wrong() -> None:
    skipped = row("planted: quota", answers=("quota_throttled",), skipped="not permitted")
    assert skipped.right is None and "skipped: planted: quota: not permitted" in summary(result(skipped))
    beside = row("planted: x", answers=("fork_unsafe",), first=False)
    assert beside.right is False and replace(beside, said=("fork_unsafe",)).right is True


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.9) == 3.0 and percentile([1.0], 0.5) == 1.0
