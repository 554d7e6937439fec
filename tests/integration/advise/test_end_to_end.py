"""Real runs with real audio, a model of a few parameters and a few seconds."""

import json
import os
import re
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
import soundfile
import torch

from audioaug import Chain, Loader
from audioaug.audio.demo import demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.decide.predict import threads_beside, worker_engines
from audioaug.loader.processes import torch_threads
from audioaug.records import Plan, Report, from_json, read_record
from audioaug.units import plural

pytestmark = pytest.mark.timeout(900)  # real runs: some seconds, minutes beside other load

BRIEF = ("--budget", "2", "--workers", "0,1")
KEYS = {
    "schema_version",
    "verdict",
    "cause",
    "host",
    "chain",
    "ceiling",
    "stages",
    "candidates",
    "current",
    "recommendation",
    "cost_seconds",
    "break_even_steps",
    "notices",
}
CANDIDATE_KEYS = {
    "placement",
    "cut",
    "worker_engine",
    "device_engine",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "predicted_ms",
    "predicted_ci_ms",
    "measured_ms",
    "measured_ci_ms",
    "clips_per_second",
    "stall",
    "vram_bytes",
    "cpu_seconds_per_step",
    "status",
    "reason",
}
IN_MEMORY = "dataset = [torch.randn(1, 4000) for _ in range(16)]\n"
PLANTED = "from tests.helpers.planted_time import CLOCK, Clips\n"
PLANTED_STEP = "def loss(output, batch):\n    CLOCK.advance({})\n    return output.mean()\n"
CHEAP = "from audioaug import ops\naugment = [ops.PolarityInversion(p=1.0)]\n"


def has_the_keys_of_the_contract(content) -> None:
    assert KEYS <= content.keys() and next(iter(content)) == "schema_version"
    assert {"step_ms", "clips_per_second"} <= content["ceiling"].keys()
    assert all({"name", "where", "ms_per_batch", "ci_ms"} <= stage.keys() for stage in content["stages"])
    assert content["candidates"] and all(
        content["candidates"][i].keys() >= CANDIDATE_KEYS for i in range(len(content["candidates"]))
    )
    assert content["current"].keys() >= CANDIDATE_KEYS
    assert content["recommendation"].keys() >= CANDIDATE_KEYS | {"tie_with", "because"}


def makes_sense(report: Report) -> None:
    """Check what holds for every finished report."""
    assert report.complete and report.verdict.endswith((".", ")")) and report.cause
    raced = {candidate.name: candidate for candidate in report.candidates if candidate.status == "raced"}
    assert report.recommendation.name in raced and report.current.name in raced
    assert set(report.recommendation.tie_with) <= raced.keys()
    assert {candidate.candidate for candidate in report.measurements} == raced.keys()
    free = 1 - (report.signals.foreign_share or 0.0)  # beside other programs, intervals are extended
    for candidate in report.measurements:
        assert len(candidate.step.seconds) == len(candidate.wait.seconds) >= 1 and min(candidate.step.seconds) > 0
        share = raced[candidate.candidate].measured_ms / candidate.step.ms  # in a round like the median one
        low, high = (share * ms for ms in candidate.step.ci_ms)
        found = raced[candidate.candidate].measured_ci_ms
        assert found[1] == pytest.approx(high) and found[0] in (pytest.approx(low), pytest.approx(free * low))
    for candidate in report.candidates:
        assert (candidate.measured_ms is not None) == (candidate.status == "raced")
        assert bool(candidate.reason) == (candidate.status == "infeasible")
        for ms, ci in (
            (candidate.predicted_ms, candidate.predicted_ci_ms),
            (candidate.measured_ms, candidate.measured_ci_ms),
        ):
            assert (ms is None) == (ci is None)
            assert ms is None or 0 < ci[0] <= ms * (1 + 1e-9) <= ci[1] * (1 + 2e-9)  # rounded
    for part in (report.before, report.after):
        assert min(part.model_ms, part.augment_ms, part.wait_ms) >= 0
    assert report.before.total_ms == pytest.approx(report.current.measured_ms)
    assert report.after.total_ms == pytest.approx(report.recommendation.measured_ms)


def stages(printed: str) -> list[str]:
    """The stages of these lines of progress; each line says how much time is left."""
    return re.findall(r"^(.*?), (?:at most )?[\d.]+ m?s left \.\.\.$", printed, re.MULTILINE)


def test_from_a_model_alone_to_a_loader_that_trains(advise, model, here, demo) -> None:
    files = ("--json", "report.json", "--plan", "plan.json", "--html", "page.html", "--markdown", "page.md")
    ran = advise("--model", model(), *BRIEF, *files, "--what-if", "cores=16")
    assert ran.code == 0
    assert stages(ran.err)[:4] == [
        "ceiling and current configuration",
        "each transform in a worker",
        "each transform on the device",
        "the loader alone and beside training",
    ]
    report = read_record(here / "report.json", Report)
    assert ran.out.startswith(report.verdict[:60]) and " ..." not in ran.out.splitlines()[0]
    has_the_keys_of_the_contract(json.loads((here / "report.json").read_text()))
    makes_sense(report)
    began = datetime.fromisoformat(report.date)
    assert timedelta(0) <= datetime.now(timezone.utc) - began < timedelta(hours=1)
    assert report.workload.sources["dataset"] == "demo data" and report.workload.clips == len(
        AudioFolder(demo_folder("speech"), 1)
    )
    assert {stage.name for stage in report.stages} >= {
        "decode",
        "collate",
        "ApplyImpulseResponse",
        "AddBackgroundNoise",
    }
    assert {(rate.cut, rate.num_workers) for rate in report.loader_costs} == {(0, 0), (0, 1), (6, 0), (6, 1)}
    assert any("With cores = 16" in line for line in report.what_if)
    page = (here / "page.html").read_text()
    assert report.verdict in page and report.verdict in (here / "page.md").read_text()
    assert page.count("<details>") == 4 < page.count("<audio") <= 3 * 4
    assert ">kept</td>" in page and ">broken" not in page
    again = advise("--load", "report.json")
    assert again.out == ran.out

    chain, plan = Chain.from_dict(report.chain.declaration), Plan.load(here / "plan.json")
    assert plan.chain_hash == chain.hash and plan.cut == report.recommendation.cut
    loader = Loader(AudioFolder(demo / "speech", 16000, 0.25), chain, plan, batch_size=4, device="cpu")
    wave, _ = next(iter(loader))
    assert wave.shape == (4, 1, 4000) and bool(wave.isfinite().all())

    ran = advise("--model", "mymodel.py", *BRIEF, "--verify", "plan.json", "--json", "-")
    assert ran.code == 0 and stages(ran.err) == ["ceiling, current configuration, and the plan"]
    verified = from_json(ran.out, Report)  # nothing else on stdout
    makes_sense(verified)
    raced = {(candidate.cut, candidate.num_workers) for candidate in verified.candidates}
    assert raced == {(6, 0), (plan.cut, plan.num_workers)}


@pytest.mark.usefixtures("planted_time")
def test_every_cut_and_all_engines_get_training_steps(advise, model, here) -> None:
    chain = "from audioaug import ops\naugment = [ops.Gain(p=1.0), ops.LowPassFilter(p=1.0), ops.Reverse(p=1.0)]\n"
    path = model(PLANTED + "dataset = Clips(0.001)\n" + chain + PLANTED_STEP.format(0.004))
    ran = advise("--model", path, "--budget", "30", "--workers", "0,1", "--json", "report.json")
    assert ran.code == 0 and "screening " in ran.err
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    ways = {
        (candidate.cut, candidate.worker_engine, candidate.device_engine)
        for candidate in report.candidates
        if candidate.status == "raced"
    }
    assert ways == {(cut, worker, "batched") for cut in range(4) for worker in worker_engines(report, cut)}
    timed = {(stage.engine, stage.op) for stage in report.stages if stage.where == "worker" and stage.op is not None}
    assert timed == {(engine, op) for engine in ("audiomentations", "batched") for op in range(3)}
    assert not [notice for notice in report.notices if notice.id == "only_predicted"]


@pytest.mark.usefixtures("planted_time")
def test_with_hardly_any_waiting_one_pilot_is_enough(advise, model, here) -> None:
    drifting = "from itertools import cycle\ntimes = cycle((0.15, 0.25, 0.2))\n" + PLANTED_STEP.format("next(times)")
    path = model(PLANTED + IN_MEMORY + CHEAP + drifting)
    ran = advise("--model", path, "--budget", "20", "--json", "report.json")
    assert ran.code == 0 and stages(ran.err) == ["ceiling and current configuration"]
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    assert report.cause == "model_bound" and "the most you could gain is" in report.verdict
    assert 0.98 < report.ceiling.step_ms / report.current.measured_ms < 1
    assert report.current.cpu_seconds_per_step is not None


TELLS_THREADS = """
from audioaug import ops
augment = [ops.LowPassFilter(p=1.0)]
def loss(output, batch):
    with open("threads", "a") as file:
        print(torch.get_num_threads(), file=file)
    return output.mean()
"""


@pytest.mark.usefixtures("planted_time")
def test_workers_race_with_a_thread_for_each_remaining_core(advise, model, here) -> None:
    path, threads = model(PLANTED + "dataset = Clips(0.001)\n" + TELLS_THREADS), max(2, os.cpu_count() or 1)
    with torch_threads(threads):
        ran = advise("--model", path, "--budget", "2", "--workers", "1", "--json", "report.json")
        assert ran.code == 0 and torch.get_num_threads() == threads
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    beside = threads_beside(report, 1)
    assert beside is not None
    raced = {
        (candidate.num_workers, candidate.threads) for candidate in report.candidates if candidate.status == "raced"
    }
    assert (0, None) in raced and (1, beside) in raced
    assert {int(line) for line in (here / "threads").read_text().split()} == {threads, beside}
    steps = {stage.engine for stage in report.stages if stage.where == "model"}
    assert steps == {plural(threads, "thread"), plural(beside, "thread")}


@pytest.fixture
def mixed(here, demo):
    """A folder with real speech at several rates and channel counts."""
    (here / "mixed").mkdir()
    speech = sorted((demo / "speech").rglob("*.flac"))[:4]
    for file, rate, channels in zip(speech, (8000, 16000, 44100, 48000), (1, 2, 1, 6), strict=True):
        x, _ = soundfile.read(file)
        soundfile.write(here / "mixed" / f"{rate}.wav", np.repeat(x[:, None], channels, axis=1), rate)
    return here / "mixed"


def test_a_corrupt_file_among_others_of_all_kinds(advise, model, mixed, here) -> None:
    (mixed / "broken.wav").write_bytes(b"RIFF and nothing more")
    ran = advise("--model", model(CHEAP), *BRIEF, "--data", mixed, "--json", "report.json")
    assert ran.code == 0 and "Traceback" not in ran.err
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    reported = [notice.text for notice in report.notices if "broken.wav" in notice.text]
    assert reported and len(reported) == len(set(reported)) and "cannot be decoded" in reported[0]
    assert "broken.wav" in re.sub(r"\s", "", ran.out)  # a long path is wrapped
    assert report.workload.clips == 5 and report.workload.setup.on_error == "skip"


def test_only_corrupt_files(advise, model, here) -> None:
    (here / "audio").mkdir()
    (here / "audio" / "broken.wav").write_bytes(b"RIFF and nothing more")
    ran = advise("--model", model(CHEAP), *BRIEF, "--data", "audio")
    assert ran.code == 2 and "No example of the dataset could be read" in ran.err and "broken.wav" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.usefixtures("planted_time")
@pytest.mark.parametrize("share", [0.01, 0.03])
def test_a_cheap_chain_beside_a_planted_slow_step_is_left_as_it_is(advise, model, here, share) -> None:
    step = PLANTED_STEP.format(0.2) + f"batch_size = 1\ndataset = Clips({share * 0.2})\n"
    files = ("--json", "report.json", "--plan", "p.json")
    ran = advise("--model", model(PLANTED + CHEAP + step), "--budget", "15", "--workers", "0,1", *files)
    assert ran.code == 0 and ("racing" in ran.err) is (share > 0.02)
    assert ran.out.startswith("Leave it as it is")
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    assert report.break_even_steps is None and report.before == report.after
    assert Plan.load(here / "p.json").num_workers == 0


@pytest.mark.usefixtures("planted_time")
def test_planted_slow_storage_wants_workers(advise, model, here) -> None:
    path = model(PLANTED + CHEAP + "dataset = Clips(0.02)\nnum_workers = 0\n")
    ran = advise("--model", path, "--budget", "6", "--workers", "0,4", "--json", "report.json")
    assert ran.code == 0
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    assert report.recommendation.num_workers == 4
    assert report.verdict.startswith("Use ") and report.break_even_steps > 0
    assert report.cause == "fetch_bound"
    assert report.recommendation.measured_ms < 0.5 * report.current.measured_ms
    assert report.stages[0].name == "decode" and report.stages[0].ms_per_batch == pytest.approx(80, rel=0.02)


@pytest.mark.usefixtures("planted_time")
def test_a_codec_keeps_the_start_of_the_chain_in_the_workers(advise, model, here, demo) -> None:
    rooms = str(demo / "rooms")
    chain = (
        "from audioaug import ops\n"
        f"augment = [ops.Gain(p=1.0), ops.Mp3Compression(p=1.0), ops.ApplyImpulseResponse(ir_path={rooms!r}, p=1.0)]\n"
    )
    ran = advise("--model", model(PLANTED + "dataset = Clips(0.001)\n" + chain), *BRIEF, "--json", "report.json")
    assert ran.code == 0
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    assert report.chain.device_from == 2
    impossible = {
        candidate.cut: candidate.reason
        for candidate in report.candidates
        if candidate.status == "infeasible" and candidate.cut < 2
    }
    assert impossible.keys() == {0, 1} and all("Mp3Compression" in reason for reason in impossible.values())
    assert min(candidate.cut for candidate in report.candidates if candidate.status != "infeasible") == 2


RAGGED = f"""
{PLANTED}
from audioaug import ops

augment = [ops.PolarityInversion(), ops.AdjustDuration(duration_samples=2000, p=1.0), ops.Gain(p=1.0)]
dataset = Clips(0.001, lambda index: 2000 + 50 * index)

def collate_fn(examples):
    return torch.stack(examples)
"""


@pytest.mark.usefixtures("planted_time")
def test_a_collate_fn_runs_after_ops_that_change_lengths(advise, model, here) -> None:
    ran = advise("--model", model(RAGGED), *BRIEF, "--json", "report.json")
    assert ran.code == 0 and "fail" not in ran.err
    report = read_record(here / "report.json", Report)
    makes_sense(report)
    reported = "AdjustDuration changes the length of clips, and collate_fn must see the final lengths."
    assert {
        (candidate.cut, candidate.reason) for candidate in report.candidates if candidate.status == "infeasible"
    } >= {(0, reported), (1, reported)}
    assert {candidate.cut for candidate in report.candidates if candidate.status != "infeasible"} == {2, 3}


NEW_SHAPES = f"""
{PLANTED}
from collections import deque
from audioaug import ops

augment, pad, batch_size = [ops.PolarityInversion(p=1.0)], True, 1
dataset = Clips(0.0001, lambda index: 2000 + 50 * index)
known = deque(maxlen=16)

def train_step(model, batch, optimizer):
    shape = batch[0].shape
    CLOCK.advance(0.05 if shape in known else 0.15)
    known.append(shape)
"""


@pytest.mark.usefixtures("planted_time")
def test_batches_of_new_shapes_are_as_slow_in_a_race_as_in_training(advise, model, here) -> None:
    ran = advise("--model", model(NEW_SHAPES), "--workers", "0", "--budget", "60", "--json", "report.json")
    assert ran.code == 0, ran.err
    report = read_record(here / "report.json", Report)
    raced = [it.measured_ms for it in report.candidates if it.status == "raced"]
    assert len(raced) > 1 and min(raced) > 110  # 130 on average; 50 for shapes that a candidate before has had
    assert report.current.measured_ms > 110


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("model = nn.Linear(7, 2)\n", "mat1 and mat2 shapes cannot be multiplied"),
        ("def loss(output, batch):\n    raise ValueError('no loss')\n", "ValueError: no loss (line"),
        ("def loss(output, batch):\n    return 3.0\n", "no attribute 'backward'"),
        ("def train_step(model, batch, optimizer):\n    raise ValueError('no step')\n", "ValueError: no step (line"),
        ("def loss(output, batch):\n    raise SystemExit(3)\n", "SystemExit: 3 (line"),
    ],
)
def test_a_model_that_rejects_the_batch(advise, model, more, words) -> None:
    ran = advise("--model", model(CHEAP + IN_MEMORY + more), *BRIEF)
    assert (ran.code, ran.out) == (2, "") and "Traceback" not in ran.err
    assert "mymodel.py: the first step, on a batch of shape (4, 1, 4000), torch.float32, fails: " in ran.err
    assert words in ran.err and "(batch, channels, time)" in ran.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("dataset = []\n", "The dataset is empty."),
        ("dataset = [None] * 9\n", "The last one: Example 7 is None."),
        ("dataset = [{'label': 3}] * 9\n", "Example 7 is a dict with 'label' (int): no field can be audio"),
        ("def collate_fn(examples):\n    raise ValueError('no batch')\n", "ValueError: no batch (line"),
        ("def collate_fn(examples):\n    return None\n", "NoneType"),
        (
            "class Data(list):\n    def __getitem__(self, i):\n        return {}['x']\ndataset = Data([1])\n",
            "KeyError: 'x'",
        ),
    ],
)
def test_data_that_cannot_be_loaded(advise, model, more, words) -> None:
    ran = advise("--model", model(CHEAP + IN_MEMORY + more), *BRIEF)
    assert (ran.code, ran.out) == (2, "") and "Traceback" not in ran.err
    assert words in ran.err


@pytest.mark.parametrize(
    ("raised", "words"), [("ValueError('tired')", "ValueError: tired"), ("SystemExit", "SystemExit (line ")]
)
def test_training_that_fails_half_way_fails_in_one_sentence(advise, model, here, raised, words) -> None:
    later = (
        "calls = []\ndef loss(output, batch):\n    calls.append(1)\n"
        f"    if len(calls) > 20:\n        raise {raised}\n    return output.mean()\n"
    )
    ran = advise("--model", model(CHEAP + IN_MEMORY + later), *BRIEF, "--json", "report.json")
    assert (ran.code, ran.out) == (1, "") and "Traceback" not in ran.err
    assert words in ran.err
    assert read_record(here / "report.json", Report).complete is False


def test_an_exit_in_the_dataset_fails_in_one_sentence(advise, model) -> None:
    data = "class Data(list):\n    def __getitem__(self, i):\n        raise SystemExit\ndataset = Data([1])\n"
    ran = advise("--model", model(CHEAP + data), *BRIEF)
    assert (ran.code, ran.out) == (1, "")
    assert "mymodel.py: a measurement failed: SystemExit (line " in ran.err


def test_torch_settings_are_restored(advise, model) -> None:
    threads, state = torch.get_num_threads(), np.random.get_state()[1].tolist()
    assert advise("--model", model(CHEAP + IN_MEMORY), *BRIEF).code == 0
    assert torch.get_num_threads() == threads
    assert np.random.get_state()[1].tolist() == state
