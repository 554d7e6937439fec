"""Cached results of an earlier run, with real runs of a tiny model."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from audioaug.advise import survey as survey_module
from audioaug.advise.cache import Cache
from audioaug.advise.model_file import load_training_job
from audioaug.advise.progress import Progress
from audioaug.advise.survey import Options, Survey
from audioaug.engine import WorkerChain
from audioaug.records import Report, read_record
from tests.helpers.planted_reports import planted_report, raced
from tests.helpers.planted_time import CLOCK

CHAIN = """
from audioaug import ops

augment = [ops.Gain(p=1.0), ops.PitchShift(p=1.0)]
dataset = [torch.randn(1, 8000) for _ in range(16)]
"""
BRIEF = ("--budget", "3", "--workers", "0,1", "--json", "report.json")
STAGES = ["each transform in a worker, ", "each transform on the device, "]


def notices(path: Path) -> dict[str, str]:
    return {notice["id"]: notice["text"] for notice in json.loads(path.read_text())["notices"]}


def test_a_second_run_uses_cached_stages_and_races(advise, model, here, monkeypatch) -> None:
    monkeypatch.setattr(survey_module, "CHANGED", 1000.0)  # however fast the machine is at the moment
    path = model(CHAIN)
    first = advise("--model", path, *BRIEF)
    assert first.code == 0 and all(stage in first.err for stage in STAGES)
    assert "cached" not in notices(here / "report.json")
    before = read_record(here / "report.json", Report)

    second = advise("--model", path, *BRIEF)
    assert second.code == 0 and not any(stage in second.err for stage in STAGES)
    assert "racing " in second.err and "ceiling and current configuration" in second.err
    text = notices(here / "report.json")["cached"]
    assert " ago (" in text and str(here / "cache") in text and "--fresh measures everything again." in text
    after = read_record(here / "report.json", Report)
    assert (after.stages, after.loader_costs, after.contention) == (
        before.stages,
        before.loader_costs,
        before.contention,
    )
    assert after.complete and after.current.measured_ms != before.current.measured_ms
    assert {candidate.candidate for candidate in after.measurements} == {
        it.name for it in after.candidates if it.measured_ms is not None
    }

    for changed, more in ((1000.0, ("--fresh",)), (0.0, ())):
        monkeypatch.setattr(survey_module, "CHANGED", changed)
        again = advise("--model", path, *BRIEF, *more)
        assert again.code == 0 and all(stage in again.err for stage in STAGES)
        assert "cached" not in notices(here / "report.json")


@pytest.mark.parametrize(("before", "now", "changed"), [(9.0, 13.0, False), (14.0, 9.0, True), (9.0, 14.0, True)])
def test_results_of_a_run_with_other_steps_are_not_used(model, before, now, changed) -> None:
    job = load_training_job(model(CHAIN), torch.device("cpu"))
    survey = Survey(job, Options(3.0), Progress(quiet=True), lambda _: None)
    survey.report = replace(survey.report, current=raced(2, 0, now))
    assert survey._has_changed(replace(survey.report, current=raced(2, 0, before))) == changed


def test_compiling_does_not_count_as_time_for_measuring(advise, model, planted_time, monkeypatch) -> None:
    monkeypatch.setattr(WorkerChain, "warm_up", lambda worker: CLOCK.advance(1000.0))
    clips = "from tests.helpers.planted_time import Clips\n\ndataset = Clips(0.01)\n"
    found = advise("--model", model(CHAIN + clips), *BRIEF)
    assert found.code == 0 and found.err.startswith("transforms, which are compiled once on a machine ...")
    assert json.loads(Path("report.json").read_text())["cost_seconds"] < 100


def test_another_model_chain_or_batch_is_not_cached(advise, model, here) -> None:
    path = model(CHAIN)
    assert advise("--model", path, *BRIEF).code == 0
    model(CHAIN + "\n# another file\n")
    assert advise("--model", path, *BRIEF, "--batch-size", "2").code == 0
    assert len(list((here / "cache" / "audioaug").iterdir())) == 2
    assert "cached" not in notices(here / "report.json")


def test_the_fingerprint_depends_on_all_that_the_stages_depend_on(model) -> None:
    def found(more="", budget=3.0, workers=(0, 1), today=0, shape=(4, 1, 4000), cores=None, device=None, **named):
        job = load_training_job(model(CHAIN + more), torch.device("cpu"), **named)
        survey = Survey(job, Options(budget, workers), Progress(quiet=True), lambda _: None)
        host = replace(survey.report.host, effective_cores=cores)
        survey.report = replace(survey.report, host=replace(host, cpu=device or host.cpu), current=raced(2, today, 9.0))
        survey.bench = replace(survey.bench, batches=[torch.zeros(shape)])
        return survey._fingerprint()

    usual = found()
    assert usual == found() == found(cores=1.5)  # measured anew in each run
    others = {
        "file": found("# another file\n"),
        "budget": found(budget=4.0),
        "workers": found(workers=(0, 2)),
        "today": found(today=1),
        "shape": found(shape=(4, 1, 8000)),
        "machine": found(device="another"),
        "batch": found(batch_size=2),
        "precision": found(precision="bf16"),
    }
    assert len({usual, *others.values()}) == 1 + len(others), others


def test_the_fingerprint_depends_on_what_the_model_file_imports_from_its_folder(model, here) -> None:
    def found(seconds):
        (here / "part" / "mydata.py").write_text(f"SECONDS = {seconds}\n")
        path = model(CHAIN + "import importlib, part.mydata\nimportlib.reload(part.mydata)\n")
        job = load_training_job(path, torch.device("cpu"))
        survey = Survey(job, Options(3.0), Progress(quiet=True), lambda _: None)
        survey.report = replace(survey.report, current=raced(2, 0, 9.0))
        survey.bench = replace(survey.bench, batches=[torch.zeros(4, 1, 4000)])
        return survey._fingerprint()

    (here / "part").mkdir()
    try:
        assert found(1) == found(1) != found(2)
    finally:
        sys.modules.pop("part.mydata"), sys.modules.pop("part")


def test_the_cache_returns_a_report_and_its_age(here) -> None:
    cache = Cache("abc")
    assert cache.path == here / "cache" / "audioaug" / "survey-abc.json" and cache.load() is None
    cache.save(planted_report())
    os.utime(cache.path, (cache.path.stat().st_atime, cache.path.stat().st_mtime - 90))
    report, age = cache.load()
    assert report == planted_report() and 90 <= age < 3600


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema_version": 99}', b"\xff"])
def test_a_broken_cache_file_is_ignored(here, content) -> None:
    cache = Cache("abc")
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(content)
    assert cache.load() is None


def test_an_unwritable_cache_folder_is_not_an_error(here) -> None:
    (here / "cache").write_text("a file where the folder should be")
    Cache("abc").save(planted_report())
    assert Cache("abc").load() is None


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache("abc").path == tmp_path / ".cache" / "audioaug" / "survey-abc.json"


SLOW = """
import time
from audioaug import ops

augment = [ops.Gain(p=1.0), ops.LowPassFilter(p=1.0)]
dataset = [torch.randn(1, 8000) for _ in range(16)]
num_workers = WORKERS

def train_step(model, batch, optimizer):
    time.sleep(SECONDS)
    with open("steps.txt", "a") as steps:
        steps.write("x")
    return model(batch).mean()
"""


@pytest.mark.parametrize(("seconds", "workers"), [(0.2, 0), (0.2, 2), (0.6, 2)])
def test_with_slow_steps_a_survey_takes_at_most_twice_its_budget(advise, model, here, seconds, workers) -> None:
    """Counted in steps, since other stages hardly take any time here."""
    path = model(SLOW.replace("SECONDS", str(seconds)).replace("WORKERS", str(workers)))
    found = advise("--model", path, "--budget", "5", "--workers", "0,1,2", "--json", "report.json", "--fresh")
    assert found.code == 0 and "allows only a few" in found.err
    steps = len(Path("steps.txt").read_text())
    assert 3 <= steps <= 2 * 5 / seconds
    assert {"few_steps"} <= notices(Path("report.json")).keys()
    assert not list(here.glob("cache/audioaug/survey-*"))  # from which more steps could not be predicted
    if seconds > 0.5:  # nothing fits
        assert json.loads(Path("report.json").read_text())["verdict"].startswith("A step takes")


def test_after_a_slow_first_step_no_smaller_budget_is_suggested() -> None:
    said: list[str] = []
    survey: Any = SimpleNamespace(
        budget=SimpleNamespace(leave_out=lambda names: None),
        options=SimpleNamespace(budget=1.0),
        progress=SimpleNamespace(note=said.append),
        report=SimpleNamespace(ceiling=1.0),
        today=SimpleNamespace(measured_ms=16.0),
        _notice=lambda *_: None,
    )
    Survey._plan_few_steps(survey)
    assert said[0].startswith("The first step or batch took over 20 ms, so a budget of 1.0 s allows only a few: ")
    assert said[0].endswith("Run this again: a step, with its data, takes less by now.")


SLOW_DATA = """
import time
from audioaug import ops

class Data:
    def __len__(self):
        return 64

    def __getitem__(self, number):
        with open("read.txt", "a") as read:
            read.write("x")
        time.sleep(0.2)
        return torch.zeros(1, 400)

augment = [ops.Gain(p=1.0)]
dataset = Data()
batch_size = 4
num_workers = 2
"""


def test_with_slow_data_a_step_takes_its_share_of_the_batches_that_workers_deliver_together(
    advise, model, here
) -> None:
    """Both workers need 0.8 s for a batch, so a step takes 0.4 s: of two steps, one hardly waits, the other 0.8 s."""
    found = advise("--model", model(SLOW_DATA), "--budget", "5", "--workers", "0,2", "--json", "report.json", "--fresh")
    assert found.code == 0 and "allows only a few" in found.err
    report = read_record(here / "report.json", Report)
    assert report.current.measured_ms > 300 and report.cause in ("decode_bound", "fetch_bound")
    assert len(Path("read.txt").read_text()) * 0.2 <= 2 * 2 * 5  # two workers, twice the budget


def test_audio_that_is_not_finite_is_named(advise, model, here) -> None:
    clips = "from audioaug import ops\naugment = [ops.Gain(p=1.0)]\ndataset = [torch.full((1, 4000), torch.nan)] * 8\n"
    assert advise("--model", model(clips), *BRIEF).code == 0
    assert "since the audio itself has NaN or infinite values." in notices(here / "report.json")["nan_loss"]
