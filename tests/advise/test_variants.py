"""Rows that are asked for: another precision, another batch size."""

from dataclasses import replace

import pytest
import torch

from audioaug.advise.pieces import whole_part
from audioaug.advise.racing import Racer
from audioaug.advise.start_methods import race_starts
from audioaug.advise.target import load_target
from audioaug.advise.variants import Wanted, parse_also
from audioaug.decide.variants import variant_sentences
from audioaug.errors import UsageError
from audioaug.measure import clock_for
from audioaug.records import Cell, Report, Variant, read_record
from tests.decide.planted import planted_report, raced

CHEAP = "from audioaug import ops\naugment = [ops.PolarityInversion(p=1.0)]\n"
IN_MEMORY = "dataset = [torch.randn(1, 4000) for _ in range(16)]\n"
SLOW_WHERE_LARGE = (
    "import time\ndef loss(output, batch):\n    time.sleep(0.002 * len(batch))\n    return output.float().mean()\n"
)


def test_what_is_asked_for_is_read() -> None:
    assert parse_also("bf16, batch_size=64") == (Wanted("bf16", "bf16"), Wanted("batch size 64", batch_size=64))
    assert parse_also("spawn") == (Wanted("workers by spawn", start_method="spawn"),)
    assert parse_also("") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bf61", "Did you mean bf16?"),
        ("batch=3", "Did you mean batch_size?"),
        ("compile", "Did you mean compiled?"),
        ("batch_size=0", "at least 1"),
        ("batch_size=x", "at least 1"),
    ],
)
def test_what_is_neither_is_refused(text, words) -> None:
    with pytest.raises(UsageError, match=words):
        parse_also(text)


def test_both_are_measured_beside_the_step_as_it_is(advise, model, here) -> None:
    path = model(CHEAP + IN_MEMORY + SLOW_WHERE_LARGE)
    options = ("--budget", "1", "--workers", "0", "--also", "bf16,batch_size=8", "--json", "report.json")
    ran = advise("--model", path, *options)
    assert ran.code == 0, ran.err
    report = read_record(here / "report.json", Report)
    precision, batch = report.variants
    assert (precision.batch_size, batch.batch_size, batch.now_batch) == (4, 8, 4)
    assert 1.5 < batch.step_ms / batch.now_ms < 3.5  # twice the clips, and they sleep
    assert precision.step_ms is not None and "it changes training" in ran.out
    assert torch.get_default_dtype() == torch.float32


def test_an_engine_that_records_is_measured_behind_our_ops(advise, model, here, monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.pieces.MET", 4)
    options = ("--budget", "1", "--workers", "0", "--also", "captured", "--json", "report.json")
    ran = advise("--model", model(CHEAP + IN_MEMORY), *options)
    assert ran.code == 0, ran.err
    (found,) = read_record(here / "report.json", Report).variants
    assert found.name == "device_engine='captured'" and not found.changes_training and found.step_ms is not None
    assert "device_engine='captured': a step and all of the chain" in ran.out and "changes training" not in ran.out


def test_an_engine_that_records_starts_behind_what_a_collate_fn_has_to_see(model, monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.pieces.MET", 2)
    longer = (
        "from audioaug import ops\naugment = [ops.TimeStretch(max_rate=0.9, leave_length_unchanged=False, p=1.0)]\n"
    )
    more = "augment.append(ops.PolarityInversion(p=1.0))\ncollate_fn = torch.stack\n"
    target = load_target(model(longer + more + IN_MEMORY), torch.device("cpu"))
    wave = torch.randn(4, 1, 4000)
    assert torch.equal(whole_part(target, wave, "captured")(), -wave)


def test_an_engine_is_advised_where_it_wins() -> None:
    wins = Variant("device_engine='captured'", 32, 10.0, 32, 8.0, (7.9, 8.1), changes_training=False)
    loses, tie = replace(wins, step_ms=12.0, ci_ms=(11.0, 13.0)), replace(wins, ci_ms=(7.0, 10.5))
    said = variant_sentences(replace(planted_report(), variants=(wins, loses, tie)))
    assert [text.rpartition(": ")[2] for text in said] == ["write it into the plan.", *["it does not win here."] * 2]


def test_workers_are_raced_as_they_start_in_other_ways(model) -> None:
    target = load_target(model(CHEAP + IN_MEMORY), torch.device("cpu"))
    racer = Racer(target, clock_for(target.device), 1.0, notice=lambda *_: None)
    plan = Cell("cpu", 1, num_workers=1, measured_ms=10.0)
    spawned, forked = race_starts(racer, plan, "fork", ("spawn", "fork"), 0.0, tick=lambda *_: None)
    assert spawned.reason == "" and spawned.ci_ms[0] < spawned.step_ms < spawned.ci_ms[1]
    assert spawned.start_seconds > 2 * spawned.now_start_seconds  # it imports torch
    assert "workers by spawn: a step takes" in variant_sentences(replace(planted_report(), variants=(spawned,)))[0]
    assert (forked.step_ms, forked.reason) == (None, "that is how they are started anyway.")


def test_workers_that_cannot_start_in_another_way_say_why(model) -> None:
    target = load_target(model(CHEAP + IN_MEMORY + "collate_fn = lambda batch: batch\n"), torch.device("cpu"))
    racer = Racer(target, clock_for(target.device), 1.0, notice=lambda *_: None)

    def why(workers: int) -> str:
        plan = Cell("cpu", 1, num_workers=workers, measured_ms=10.0)
        return race_starts(racer, plan, "fork", ["spawn"], 1.0, tick=lambda *_: None)[0].reason

    assert "`collate_fn` (<lambda>) does not pickle" in why(2)
    assert why(0) == "the plan has no workers."


def test_a_train_step_of_your_own_chooses_its_precision(advise, model, here) -> None:
    own = "import time\ndef train_step(model, batch, optimizer):\n    time.sleep(0.004)\n"
    path = model(CHEAP + IN_MEMORY + own)
    assert (
        advise("--model", path, "--budget", "1", "--workers", "0", "--also", "bf16", "--json", "report.json").code == 0
    )
    (found,) = read_record(here / "report.json", Report).variants
    assert found.step_ms is None and "`train_step` chooses the precision itself" in found.reason


def test_the_sentence_says_what_loading_would_need() -> None:
    faster = Variant("bf16", 32, 10.0, 32, 2.0, (1.9, 2.1))
    report = replace(planted_report(), variants=(faster,), current=raced(3, 4, 10.0))
    (text,) = variant_sentences(report)
    assert "takes 2.00 ms (1.90 .. 2.10) instead of 10.0 ms" in text and "5.00 times as many (measured)" in text
    assert text.endswith("would then be the bottleneck, with 4.60 ms a batch (predicted).")
    slower = replace(faster, step_ms=8.0, ci_ms=(7.0, 9.0))
    assert "bottleneck" not in variant_sentences(replace(report, variants=(slower,)))[0]
    failed = Variant("fp16", 32, 10.0, 32, reason="it is not supported.")
    assert variant_sentences(replace(report, variants=(failed,))) == ("fp16 was not measured: it is not supported.",)
