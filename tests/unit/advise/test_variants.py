"""Variants: another precision, batch size, engine, start method."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.model_file import load_training_job
from audioaug.advise.racing import Racer
from audioaug.advise.variants import VariantRequest, parse_also, race_starts, raced_engines
from audioaug.decide.shortlist import with_engines
from audioaug.decide.what_if import variant_sentences
from audioaug.errors import UsageError
from audioaug.measure import clock_for
from audioaug.records import Candidate, Recommendation, Report, Variant, read_record
from tests.helpers.planted_reports import blocks, planted_report, raced

pytestmark = pytest.mark.timeout(900)  # real runs: some seconds, minutes beside other load

CHEAP = "from audioaug import ops\naugment = [ops.PolarityInversion(p=1.0)]\n"
IN_MEMORY = "dataset = [torch.randn(1, 4000) for _ in range(16)]\n"
SLOW = "from audioaug import ops\naugment = [ops.PitchShift(p=1.0)]\n"
SLOW_WHERE_LARGE = (
    "from tests.helpers.planted_time import CLOCK\n"
    "def loss(output, batch):\n    CLOCK.advance(0.1 * len(batch))\n    return output.float().mean()\n"
)


def test_also_is_parsed() -> None:
    assert parse_also("bf16, batch_size=64") == (
        VariantRequest("bf16", "bf16"),
        VariantRequest("batch size 64", batch_size=64),
    )
    assert parse_also("spawn") == (VariantRequest("workers by spawn", start_method="spawn"),)
    assert parse_also("") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bf61", "Did you mean bf16?"),
        ("batch=3", "Did you mean batch_size?"),
        ("compile", "Did you mean torch_compile?"),
        ("batch_size=0", "at least 1"),
        ("batch_size=x", "at least 1"),
    ],
)
def test_unknown_also_values_are_refused(text, words) -> None:
    with pytest.raises(UsageError, match=words):
        parse_also(text)


def test_torch_audiomentations_is_raced_only_when_asked_for(monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.variants.why_unavailable", lambda: "")
    assert parse_also("torch-audiomentations")[0].engine == "torch-audiomentations"
    monkeypatch.setattr("audioaug.advise.variants.why_unavailable", lambda: "torch-audiomentations is not installed.")
    with pytest.raises(UsageError, match=r"^--also torch-audiomentations: torch-audiomentations is not installed\."):
        parse_also("torch-audiomentations")


def test_the_report_says_that_torch_audiomentations_differs() -> None:
    faster = Variant("device_engine='torch-audiomentations'", 32, 10.0, 32, 8.0, (7.9, 8.1), changes_training=False)
    (printed,) = variant_sentences(replace(planted_report(), variants=(faster,)))
    assert printed.endswith("Its audio differs from that of audiomentations, so it is never recommended.")


@pytest.mark.usefixtures("planted_time")
def test_variants_are_timed_in_turn_with_the_unchanged_step(advise, model, here) -> None:
    path = model(CHEAP + IN_MEMORY + SLOW_WHERE_LARGE)
    options = ("--budget", "1", "--workers", "0", "--also", "bf16,batch_size=8", "--json", "report.json")
    ran = advise("--model", path, *options)
    assert ran.code == 0, ran.err
    report = read_record(here / "report.json", Report)
    precision, batch = report.variants
    assert (precision.batch_size, batch.batch_size, batch.now_batch) == (4, 8, 4)
    assert batch.step_ms / batch.now_ms == pytest.approx(2, rel=0.01)  # twice the clips
    assert precision.step_ms == pytest.approx(precision.now_ms) and "it changes training" in ran.out
    assert torch.get_default_dtype() == torch.float32


NO_GPU = torch.device("cpu")


def test_a_graph_engine_is_raced(advise, model, here, monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.variants.why_no_graph", lambda engine, device: "")
    monkeypatch.setattr("audioaug.advise.survey.why_no_graph", lambda engine, device: "")
    monkeypatch.setattr("audioaug.advise.racing.GRAPH_WARM_UP", 4)
    options = ("--budget", "2", "--workers", "0", "--also", "cuda_graph", "--json", "report.json")
    ran = advise("--model", model(SLOW + IN_MEMORY), *options)
    assert ran.code == 0, ran.err
    report = read_record(here / "report.json", Report)
    (found,) = report.variants
    assert found.name == "device_engine='cuda_graph'" and not found.changes_training and found.step_ms is not None
    assert "device_engine='cuda_graph': a step takes" in ran.out and "changes training" not in ran.out
    (twin,) = (candidate for candidate in report.candidates if candidate.device_engine == "cuda_graph")
    assert twin.status == "raced" and twin.name in {it.candidate for it in report.measurements}


def test_a_graph_engine_without_support_is_not_raced(advise, model, here) -> None:
    options = ("--budget", "1", "--workers", "0", "--also", "cuda_graph", "--json", "report.json")
    assert advise("--model", model(SLOW + IN_MEMORY), *options).code == 0
    report = read_record(here / "report.json", Report)
    assert [it.reason for it in report.variants] == ["CUDA graphs need an NVIDIA GPU."]
    assert not [candidate for candidate in report.candidates if candidate.device_engine == "cuda_graph"]


def test_an_engine_that_fails_in_the_race_says_why() -> None:
    failed = {"all on the device (torch_compile), 0 workers": "no compiler"}
    (found,) = raced_engines(planted_report(), NO_GPU, ["torch_compile"], failed)
    assert (found.step_ms, found.reason) == (None, "no compiler")
    (found,) = raced_engines(planted_report(), NO_GPU, ["torch_compile"], {})
    assert found.reason == "no candidate with our ops on the device was raced."


def test_a_race_has_the_best_with_our_ops_on_the_device_and_its_twins() -> None:
    slower, best = raced(0, 2, 12.0, predicted_ms=12.0), raced(1, 4, 10.0, predicted_ms=10.0)
    candidates = [slower, best, raced(3, 4, 9.0, predicted_ms=9.0)]
    ours, twin = with_engines(candidates, ["cuda_graph"])
    assert ours == best
    assert twin.name == replace(best, device_engine="cuda_graph").name and twin.measured_ms is None
    assert with_engines(candidates, []) == [] == with_engines(candidates[2:], ["cuda_graph"])


def test_an_engine_is_in_the_plan_where_it_wins() -> None:
    found = Variant("device_engine='cuda_graph'", 32, 10.0, 32, 8.0, (7.9, 8.1), changes_training=False)
    for engine, words in (("cuda_graph", "it is in the plan."), ("batched", "it is not faster here.")):
        plan = Recommendation("gpu", 0, device_engine=engine)
        (printed,) = variant_sentences(replace(planted_report(), variants=(found,), recommendation=plan))
        assert printed.endswith(words)


def test_a_plan_is_raced_with_other_start_methods(model, monkeypatch) -> None:
    starts = {None: (0.1, 0.01), "spawn": (4.0, 0.02)}  # planted: how long is the machine's
    monkeypatch.setattr(
        "audioaug.advise.variants.start_and_gap", lambda job, candidate, clock: starts[candidate.start_method]
    )
    job = load_training_job(model(CHEAP + IN_MEMORY), torch.device("cpu"))
    racer = Racer(job, clock_for(job.device), 1.0, notice=lambda *_: None)
    plan = Candidate("cpu", 1, num_workers=1, measured_ms=10.0)
    spawned, forked = race_starts(racer, plan, "fork", ("spawn", "fork"), 0.0, tick=lambda *_: None)
    assert spawned.reason == "" and spawned.ci_ms[0] < spawned.step_ms < spawned.ci_ms[1]
    assert (spawned.start_seconds, spawned.now_start_seconds) == (4.0, 0.1)
    assert "workers by spawn: a step takes" in variant_sentences(replace(planted_report(), variants=(spawned,)))[0]
    assert (forked.step_ms, forked.reason) == (None, "it is the default.")


def test_the_step_of_another_start_method_follows_the_ratio_of_the_race(monkeypatch) -> None:
    monkeypatch.setattr("audioaug.advise.variants.start_and_gap", lambda *_: (1.0, 0.5))
    plan = Candidate("cpu", 1, num_workers=2, measured_ms=10.0)
    names = (plan.name, replace(plan, start_method="spawn").name)
    found = dict(
        zip(names, (blocks(name, [ms] * 4) for name, ms in zip(names, (20.0, 24.0), strict=True)), strict=True)
    )
    job = SimpleNamespace(batch_size=4, dataset=[], collate_fn=None, chain=Chain([ops.Gain()], 16000))
    racer = SimpleNamespace(job=job, clock=None, failed={}, run=lambda *_: found)
    (variant,) = race_starts(racer, plan, "fork", ("spawn",), 1.0, tick=lambda *_: None)
    assert variant.step_ms == pytest.approx(12.0) and variant.ci_ms == pytest.approx((12.0, 12.0))
    assert (variant.now_ms, variant.batch_size, variant.now_batch) == (10.0, 4, 4)
    found |= {name: blocks(name, [20.0]) for name in names}
    (once,) = race_starts(racer, plan, "fork", ("spawn",), 1.0, tick=lambda *_: None)
    (printed,) = variant_sentences(replace(planted_report(), variants=(once,)))
    assert printed.startswith("workers by spawn was not measured: there was time for one round only.")


def test_unavailable_start_methods_have_a_reason(model) -> None:
    job = load_training_job(model(CHEAP + IN_MEMORY + "collate_fn = lambda batch: batch\n"), torch.device("cpu"))
    racer = Racer(job, clock_for(job.device), 1.0, notice=lambda *_: None)

    def why(workers: int) -> str:
        plan = Candidate("cpu", 1, num_workers=workers, measured_ms=10.0)
        return race_starts(racer, plan, "fork", ["spawn"], 1.0, tick=lambda *_: None)[0].reason

    assert "`collate_fn` (<lambda>) does not pickle" in why(2)
    assert why(0) == "the plan has no workers."


def test_a_train_step_of_your_own_chooses_its_precision(advise, model, here) -> None:
    own = "def train_step(model, batch, optimizer):\n    pass\n"
    path = model(CHEAP + IN_MEMORY + own)
    assert (
        advise("--model", path, "--budget", "1", "--workers", "0", "--also", "bf16", "--json", "report.json").code == 0
    )
    (found,) = read_record(here / "report.json", Report).variants
    assert found.step_ms is None and "`train_step` sets the precision itself" in found.reason


def test_the_sentence_says_what_loading_would_need() -> None:
    faster = Variant("bf16", 32, 10.0, 32, 2.0, (1.9, 2.1))
    report = replace(planted_report(), variants=(faster,), current=raced(3, 4, 10.0))
    (text,) = variant_sentences(report)
    assert "takes 2.00 ms (1.90 .. 2.10) instead of 10.0 ms" in text and "5.00x (measured)" in text
    assert text.endswith("would then be the bottleneck, with 4.60 ms a batch (predicted).")
    larger = replace(report, variants=(replace(faster, batch_size=64, step_ms=6.0),))
    assert "with 9.20 ms a batch (predicted)." in variant_sentences(larger)[0]  # twice the clips
    slower = replace(faster, step_ms=8.0, ci_ms=(7.0, 9.0))
    assert "bottleneck" not in variant_sentences(replace(report, variants=(slower,)))[0]
    failed = Variant("fp16", 32, 10.0, 32, reason="it is not supported.")
    assert variant_sentences(replace(report, variants=(failed,))) == ("fp16 was not measured: it is not supported.",)
