"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import importlib.util
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import audiomentations
import click
import numpy as np
import pytest
import torch

import audioaug
from audioaug import AudioFolder, Chain, Frames, Loader, Plan, ops
from audioaug.advise.__main__ import advise as command
from audioaug.advise.__main__ import main
from audioaug.advise.candidates import cached_batches, candidate_at, open_loader
from audioaug.advise.listen import listen
from audioaug.advise.model_file import load_training_job, misspelt
from audioaug.advise.settings import resizing_op
from audioaug.advise.training_job import TrainingJob, UsualLoss, workload
from audioaug.decide.causes.case import Case
from audioaug.decide.causes.loading import augment_cpu_bound
from audioaug.decide.what_if import NUMBERS, PROFILE
from audioaug.errors import AudioaugWarning, ChainError, DataError, ModelFileError, PlanError, UsageError
from audioaug.records import (
    Candidate,
    LoaderSetup,
    MonitoredRun,
    Recommendation,
    Report,
    Window,
    from_json,
    plan_of,
    to_json,
)
from audioaug.report.monitor import known_meters, share_on_target
from audioaug.report.page import training
from audioaug.report.parts import spread
from audioaug.report.snippet import chain_lines, plan_arguments, snippet
from audioaug.units import format_seconds
from tests.helpers.planted_reports import EVERY_KNOB, planted_report, raced
from tests.integration.loader.material import DEMO
from tests.unit.advise.conftest import TINY

RATE = 16000
DOCS = Path(__file__).parents[3] / "docs"
MODEL = f"{TINY}\nfrom audioaug import Chain, Frames, ops\n"
STREAM = """
import os

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for place in range(6):
            print("reading", place)
            os.write(1, b"below Python\\n")
            yield {"wav": torch.full((1, 4000), 0.1), "active": torch.arange(5)}

dataset, targets = Stream(), {"active": Frames(0.05)}
augment = [ops.TimeStretch(leave_length_unchanged=False, p=1.0), ops.Reverse(p=1.0)]
print("loaded")
optimiser = None

def loss(output, batch):
    return output.mean() * float("nan")
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load a model file with these lines more."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(more: str, **options: Any) -> TrainingJob:
        (tmp_path / "r5model.py").write_text(MODEL + more)
        return load_training_job(str(tmp_path / "r5model.py"), torch.device("cpu"), **options)

    yield load
    for name in ("r5model", "audioaug_model_file"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str]:
    """The report of a real run on a stream that prints, and what it wrote to stderr."""
    folder = tmp_path_factory.mktemp("streamed")
    (folder / "model.py").write_text(MODEL + STREAM)
    asked = ("--model", "model.py", "--budget", "1", "--workers", "0,1", "--json", "-")
    ran = subprocess.run(
        [sys.executable, "-m", "audioaug.advise", *asked], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return from_json(ran.stdout, Report), ran.stderr


def setting(job: TrainingJob) -> Report:
    """A report of that training in which nothing was measured."""
    return replace(planted_report(), workload=workload(job), chain=replace(planted_report().chain, hash="abc"))


IN_MEMORY = "dataset = [(torch.full((1, 8000), 0.1), 3)] * 8\n"


@pytest.mark.parametrize(
    "op", ["ops.TimeStretch(leave_length_unchanged=False, p=1.0)", "ops.RoomSimulator(p=1.0, use_ray_tracing=False)"]
)
def test_r5_04_a_chain_that_changes_lengths_is_padded(loaded: Any, op: str) -> None:
    job = loaded(f"{IN_MEMORY}augment = [{op}]\n")
    assert job.pad and "which changes clips' lengths" in job.sources["pad"]
    wave, _, lengths = cached_batches(job, candidate_at(job.chain, 0, 0), 1)[0][0]
    assert len(wave) == 4 and len(set(lengths.tolist())) > 1


def test_r5_04_a_chain_that_gives_all_clips_one_length_is_not_padded(loaded: Any) -> None:
    fixed = "ops.TimeStretch(leave_length_unchanged=False), ops.AdjustDuration(duration_samples=900, p=1.0)"
    assert not loaded(
        f"{IN_MEMORY}augment = [{fixed}, ops.Resample(min_sample_rate=8000, max_sample_rate=8000, p=1.0)]\n"
    ).pad
    assert resizing_op(Chain([ops.AdjustDuration(duration_samples=900, p=0.5)], 16000), 1000) == "AdjustDuration"
    assert resizing_op(Chain([ops.Trim(p=0.5)], 16000), 1000) == "Trim"


def test_r5_04_the_model_file_may_say_how_to_pad(loaded: Any) -> None:
    ragged = "dataset = [{'audio': torch.ones(1, 9000), 'n': 4000 + n} for n in range(8)]\naugment = []\n"
    job = loaded(f"{ragged}lengths = 'n'\n")
    assert job.pad and job.clip_seconds == (0.25, 4007 / 16000)
    assert next(iter(open_loader(job, Candidate("cpu", 0))))["n"].max() <= 4007
    assert loaded(f"{IN_MEMORY}pad = True\naugment = []\n").sources["pad"] == "model file"


def test_r5_05_every_field_travels_from_the_report_to_the_plan_and_the_snippet() -> None:
    shared = {name: value for name, value in vars(EVERY_KNOB).items() if name in Recommendation.__dataclass_fields__}
    advice = Recommendation("split", **shared)
    assert plan_of(advice, EVERY_KNOB.chain_hash, "bf16") == EVERY_KNOB
    plain = Plan()
    assert all(getattr(EVERY_KNOB, name) != getattr(plain, name) for name in vars(plain) if name != "schema_version")
    report = planted_report()
    setup = replace(report.workload.setup, augment="chain")
    report = replace(
        report,
        workload=replace(report.workload, precision="bf16", setup=setup),
        chain=replace(report.chain, hash=EVERY_KNOB.chain_hash),
    )
    assert eval(f"Plan({', '.join(plan_arguments(report, advice))})", {"Plan": Plan}) == EVERY_KNOB


COMPOSE = (
    "import audiomentations as am\naugment = am.Compose([am.TimeStretch(leave_length_unchanged=False), am.Gain()])"
)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (COMPOSE, ["Chain.from_audiomentations(augment, sample_rate=16000)", "pad=True"]),
        ("augment = ops.Gain(p=1.0)\ncollate_fn = torch.utils.data.default_collate", ["collate_fn=collate_fn"]),
        ("augment = [ops.Gain(p=1.0)]\npad = True", ["chain = audioaug.Chain(augment, sample_rate=16000)"]),
        ("augment = Chain([ops.Gain(p=1.0)], 16000)\nlengths = 'n'", ["chain = augment", 'lengths="n"']),
        ("augment = [ops.Shift(p=1.0)]\ntargets = {'active': Frames(0.1)}", ["targets=targets", 'audio_key="wav"']),
    ],
)
def test_r5_05_snippet_runs_the_raced_configuration(loaded: Any, more: str, words: list[str]) -> None:
    examples = "{'wav': torch.full((1, 8000), 0.1), 'n': 7000, 'active': torch.arange(5)}"
    job = loaded(f"dataset = [{examples}] * 8\n{more}\n")
    report = replace(setting(job), chain=replace(planted_report().chain, hash=job.chain.hash))
    advice = Recommendation("cpu", job.chain.worker_until, threads=1)
    text = snippet(replace(report, host=replace(report.host, device="cpu")), advice)
    assert all(word in text for word in [*words, "threads=1"])
    names = {**vars(sys.modules["r5model"]), "epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of audiomentations
        exec(text, names)
    raced = open_loader(job, advice, [[0, 1, 2, 3]])
    assert names["batch"].keys() == next(iter(raced)).keys()
    assert names["loader"].plan == raced.plan


def test_r5_06_a_loader_takes_an_audiomentations_compose():
    compose = audiomentations.Compose([audiomentations.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)])
    [batch] = Loader([torch.ones(100)] * 2, compose, sample_rate=RATE, device="cpu", batch_size=2)
    torch.testing.assert_close(batch, torch.full((2, 100), 10**0.3))


def test_r5_08_two_sample_rates_are_refused(loaded: Any) -> None:
    with pytest.raises(
        ChainError, match=r"The chain's rate is 44\.1 kHz, but `sample_rate` in the model file is 16000\."
    ):
        loaded("augment = Chain([ops.Gain()], 44100)\n")
    assert loaded("augment = Chain([ops.Gain()], 44100)\n", sample_rate=8000).chain.sample_rate == 8000


@pytest.mark.parametrize(
    ("lengths", "words"), [((48000, 48000), "4 clips of 3 s at"), ((8000, 51200), "4 clips of 0.5 to 3.2 s at")]
)
def test_r5_09_reports_say_how_long_clips_really_are(loaded: Any, lengths: tuple[int, int], words: str) -> None:
    job = loaded(f"dataset = [torch.zeros(1, n) for n in {lengths}]\naugment = []\n")
    assert words in training(setting(job)) and "clip_seconds" not in job.sources


@pytest.mark.parametrize(("seconds", "cut"), [(9, True), (1, False)])
def test_r5_09_listen_reports_shortened_clips(loaded: Any, seconds: int, cut: bool) -> None:
    found = listen(loaded(f"dataset = [torch.ones(1, {16000 * seconds})] * 4\naugment = [ops.Gain(p=1.0)]\n"))
    assert found.examples
    assert ("s of clips of up to 9 s are played and compared." in found.lines[0].text) is cut
    assert all((example.name.endswith(" of 9 s")) is cut for example in found.examples)


def test_r5_12_a_loss_that_is_not_finite_is_seen(loaded: Any) -> None:
    batch = (torch.ones(4, 1, 8), torch.zeros(4, dtype=torch.long))
    for more, words in (
        ("def loss(output, batch):\n    return output.mean() * float('nan')\n", "The loss is nan"),
        ("def train_step(model, batch, optimizer):\n    return float('inf')\n", "The loss is inf"),
        (
            "def train_step(model, batch, optimizer):\n    model.head.bias.data[0] = float('nan')\n",
            "head.bias is not fin",
        ),
        ("", ""),
    ):
        job = loaded(f"{IN_MEMORY}augment = []\n{more}")
        job.step(batch)
        assert words in job.why_not_finite() and bool(job.why_not_finite()) is bool(words)


def test_r5_13_an_unpicklable_dataset_under_spawn_is_named():
    class Local(list):  # type: ignore[type-arg]
        pass

    loader = Loader(
        Local([torch.ones(100)]), [], Plan(num_workers=1, start_method="spawn"), sample_rate=RATE, device="cpu"
    )
    with pytest.raises(DataError, match=r"`dataset` \(.*Local\) does not pickle"):
        list(loader)


def test_r5_16_report_names_the_train_step(loaded: Any) -> None:
    sources = loaded("def train_step(model, batch, optimizer):\n    pass\n").sources
    assert sources["train_step"] == "model file" and "loss" not in sources


def test_r5_16_misspelt_names_are_pointed_out(loaded: Any) -> None:
    job = loaded("def colate_fn(examples): ...\noptimiser = None\nlenghts = 'n'\n")
    assert [notice.text.partition("defines ")[2] for notice in job.notices] == [
        "'colate_fn', which the advisor does not use. Did you mean 'collate_fn'?",
        "'optimiser', which the advisor does not use. Did you mean 'optimizer'?",
        "'lenghts', which the advisor does not use. Did you mean 'lengths'?",
    ]
    assert dict(misspelt({"batchsize": 3})) == {"batchsize": "batch_size"}


def test_r5_16_ordinary_names_make_no_noise() -> None:
    ordinary = "target length models losses dataset2 dataset_ train_steps mode path lr epochs Dataset step weights"
    assert not dict(misspelt(dict.fromkeys(ordinary.split(), 3) | {"Dataset": int, "datasets": np, "collate": len}))
    assert not dict(misspelt({"batch_size": 3, "batch_sizes": 4}))


def test_r5_16_an_error_names_its_file(loaded: Any) -> None:
    job = loaded(f"{IN_MEMORY}augment = []\ndef loss(output, batch):\n    raise ValueError('tired')\n")
    with pytest.raises(ModelFileError, match=r"ValueError: tired \(line \d+ of r5model\.py\)\."):
        job.try_step((torch.ones(4, 1, 8), torch.zeros(4)))


def test_r5_16_string_labels_are_named(loaded: Any) -> None:
    scores, batch = torch.randn(4, 7), (torch.ones(4, 1, 8), ("dog", "cat", "dog", "owl"))
    with pytest.warns(
        AudioaugWarning, match="The labels are strings, such as 'dog', which the default loss cannot use"
    ):
        UsualLoss()(scores, batch)
    own = "def loss(output, batch):\n    return nn.functional.cross_entropy(output, batch[1])\n"
    with pytest.raises(
        ModelFileError, match="The labels are strings, such as 'dog': if the loss fails, convert them to integers"
    ):
        loaded(f"{IN_MEMORY}augment = []\n{own}").try_step(batch)


def test_r5_16_an_interval_is_printed_as_two_numbers_and_never_below_0() -> None:
    assert spread(402.0, (-72.0, 876.0)) == "402 (0 .. 876)"
    assert spread(40.1, (39.82, 40.3)) == "40.1 (39.8 .. 40.3)"


def test_r5_16_without_workers_no_share_of_a_workers_time_is_named() -> None:
    for workers, words in ((0, "50 % of the time to load a batch is spent in Op1"), (1, "50 % of a worker's time")):
        today = raced(3, workers, 40.0)
        report = replace(planted_report(), current=today, candidates=(today,))
        assert augment_cpu_bound(Case(report, today, None)).startswith(words)


def test_r5_16_long_times_are_in_hours() -> None:
    assert format_seconds(337 * 60 + 57) == "5 h 37 min"


def test_r5_16_unused_memory_is_not_a_missed_target() -> None:
    windows = [Window(1.0, 10, 10, 5.0, 0.0, ram_percent=12.0)]
    (ram,) = [meter for meter in known_meters(MonitoredRun(planted_report().host), windows) if meter.name == "RAM"]
    assert share_on_target(ram, windows) == 1.0


def test_r5_18_the_audio_may_have_another_key():
    for key in ("wav", "input_values"):
        [batch] = Loader([{key: torch.ones(100), "label": 3}] * 2, [], sample_rate=RATE, device="cpu", batch_size=2)
        assert batch[key].shape == (2, 100)


def test_r5_18_undecoded_audio_of_hugging_face_is_decoded():
    file = AudioFolder(DEMO / "speech", RATE).files[0]
    [wave] = Loader([{"audio": {"bytes": None, "path": file}}], [], sample_rate=RATE, device="cpu")
    assert wave["audio"].shape[1] > RATE // 4


@pytest.mark.skipif(importlib.util.find_spec("torchcodec") is not None, reason="torchcodec is installed")
def test_r5_18_without_torchcodec_there_is_one_sentence():
    datasets = pytest.importorskip("datasets", "4")
    files = {"audio": [AudioFolder(DEMO / "speech", RATE).files[0]]}
    dataset = datasets.Dataset.from_dict(files).cast_column("audio", datasets.Audio())
    with pytest.raises(UsageError, match=r"needs torchcodec.* Install torchcodec and FFmpeg, or .*decode=False"):
        list(Loader(dataset, [], sample_rate=RATE, device="cpu"))


def test_r5_18_the_audio_may_be_under_any_key(loaded: Any) -> None:
    one = "{'wav': torch.ones(1, 800), 'clean': torch.zeros(1, 800)}"
    for more, options in (("audio_key = 'wav'\n", {}), ("", {"audio_key": "wav"})):
        job = loaded(f"dataset = [{one}] * 8\naugment = [ops.Gain(p=1.0)]\n{more}", **options)
        assert job.audio_key == "wav" and job.sources["audio_key"] != "the examples"
        batch = cached_batches(job, Candidate("gpu", 0), 1)[0][0]
        assert batch.keys() == {"wav", "clean"} and not torch.equal(job.wave_of(batch), torch.ones(4, 1, 800))
    found = loaded("dataset = [{'wav': torch.ones(1, 800), 'speaker': 3}] * 8\naugment = []\n")
    assert (found.audio_key, found.sources["audio_key"]) == ("wav", "the examples")
    assert training(setting(found)).endswith("list (8 clips, audio at 'wav')")


def test_r5_18_a_stream_with_targets_is_advised(streamed: tuple[Report, str]) -> None:
    report, _ = streamed
    assert report.complete and report.recommendation is not None and report.workload.clips is None
    setup = report.workload.setup
    assert (setup.is_stream, setup.audio_key, setup.pad, setup.targets) == (True, "wav", True, True)
    assert {stage.name for stage in report.stages} >= {"decode", "collate"} and report.signals.examples is not None
    assert "Stream (a stream, audio at 'wav')" in training(report)


def test_r5_12_and_16_are_notices_of_the_report(streamed: tuple[Report, str]) -> None:
    said = {notice.id: notice.text for notice in streamed[0].notices}
    assert said["nan_loss"].startswith("The loss is nan after today's training steps.")
    assert "Did you mean 'optimizer'?" in said["unknown_name"]


def test_r5_11_print_does_not_reach_stdout(streamed: tuple[Report, str]) -> None:
    _, err = streamed
    assert "loaded\n" in err and min(err.count("reading "), err.count("below Python")) > 100


def test_r5_18_a_stream_that_ends_is_started_again(loaded: Any) -> None:
    job = loaded(STREAM)
    batches = iter(open_loader(job, candidate_at(job.chain, 2, 0)))
    assert [len(next(batches)["wav"]) for _ in range(5)] == [4] * 5  # of 6 examples


def test_r5_18_raced_loaders_transform_targets(loaded: Any) -> None:
    one = "{'audio': torch.ones(1, 8000), 'active': torch.arange(5)}"
    more = (
        f"dataset = [{one}] * 8\ntargets = {{'active': Frames(0.1)}}\naugment = [ops.Trim(p=1.0), ops.Reverse(p=1.0)]\n"
    )
    job = loaded(more + "pad = False\n")
    assert isinstance(job.targets["active"], Frames) and job.least_cut == 1
    batch = cached_batches(job, candidate_at(job.chain, 1, 0), 1)[0][0]
    assert batch["active"][0].tolist() == [4, 3, 2, 1, 0]


def test_r5_18_what_if_documents_each_name() -> None:
    shown = command.get_help(click.Context(command))
    page = (DOCS / "advisor.md").read_text(encoding="utf-8")
    for name in (*NUMBERS, PROFILE):
        assert f"{name}=" in shown and f"| `{name}` |" in page


ROOT = Path(__file__).resolve().parents[3]


def test_r5_16_generated_sections_are_marked_in_the_source():
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    below = [
        (name, found) for name, text in pages.items() for found in re.findall(r"<!-- generated: .* -->\n(.*)", text)
    ]
    assert len(below) > 8
    assert [(name, line) for name, line in below if "`make docs` puts" not in line] == []


def test_r5_18_the_package_is_a_command():
    declared = re.search(r'^audioaug = "audioaug.__main__:main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    done = subprocess.run([sys.executable, "-m", "audioaug", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert declared and done.stdout.rstrip().endswith(audioaug.__version__), done.stderr


# 7. Plans that are none

NO_PLANS = {
    '{"hello": 1}': "Unknown field 'hello' in a plan. Known: chain_hash, cut,",
    '{"cut": 1, "num_worker": 2}': "Unknown field 'num_worker' in a plan. Did you mean num_workers?",
    to_json(planted_report()): "This is a report, not a plan. audioaug advise --load FILE shows it",
    '{"cut": "three"}': "Expected `int`, got `str` - at `$.cut`",
    '{"cut": 1, "num_workers": -2}': "num_workers is -2, but it must be an integer from 0 to 1024",
    '{"cut": 1, "num_workers": 1000000000}': "num_workers is 1000000000, but it must be an integer from 0 to 1024",
    '{"cut": 1, "threads": 1000000000}': "threads is 1000000000, but it must be an integer from 1 to 1024",
    '{"cut": 1, "prefetch_factor": 0}': "prefetch_factor is 0, but",
    f'{{"cut": 1{"0" * 400}}}': "cut is 1000000000000000000000000000000000000000, but it must be below 2**63.",
    '{"cut": 1, "device_engine": "magic"}': "Invalid enum value 'magic' - at `$.device_engine`",
    '{"cut": 1, "start_method": "spwan"}': "unknown start method 'spwan'. Did you mean spawn?",
}


@pytest.mark.parametrize("text", NO_PLANS, ids=lambda text: text[:30])
def test_r5_07_a_plan_file_is_read_strictly(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        Plan.load(tmp_path / "plan.json")
    assert str(caught.value).startswith(f"{tmp_path}/plan.json: ") and NO_PLANS[text] in str(caught.value)


@pytest.mark.parametrize("option", ["--verify", "--load"])
def test_r5_07_a_report_and_a_plan_are_not_confused(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(to_json(planted_report() if option == "--verify" else Plan(cut=1)))
    Path("mymodel.py").write_text("raise AssertionError('the model file was run')\n")
    assert main(["--model", "mymodel.py", option, "plan.json"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert ("This is a report, not a plan." if option == "--verify" else "This is a plan, not a report.") in said


@pytest.mark.parametrize("arguments", [{"cut": "3"}, {"cut": 1.5}, {"num_workers": None}, {"threads": True}])
def test_r5_07_numbers_of_another_type_are_refused_in_python_too(arguments):
    with pytest.raises(PlanError, match="but it must be an integer"):
        Plan(**arguments)


def test_r5_07_a_plan_keeps_loading(tmp_path):
    plan = Plan(cut=3, num_workers=4, prefetch_factor=8, threads=2, start_method="spawn")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert len(json.loads((tmp_path / "plan.json").read_text())) == 12


def test_r5_16_misspelt_name_is_reported_when_the_run_fails(tmp_path, capsys) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nmodel = torch.nn.Linear(1, 1)\ndef colate_fn(batch): ...\n"
        "dataset = [{'audio': torch.ones(1, 8000), 'n': torch.ones(k + 1)} for k in range(8)]\n"
    )
    assert main(["--model", str(tmp_path / "m.py"), "--budget", "1"]) != 0
    assert "note: " in (said := capsys.readouterr().err) and "Did you mean 'collate_fn'?" in said


def test_r5_05_the_code_to_paste_allows_code_where_that_was_allowed() -> None:
    setup = LoaderSetup(augment="yaml", augment_name="chain.yaml", allow_code=True)
    [line] = chain_lines(replace(planted_report().workload, setup=setup))
    assert line == 'chain = audioaug.Chain.from_yaml("chain.yaml", code=True)'
