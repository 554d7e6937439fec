"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import audiomentations
import pytest
import torch

import audioaug
from audioaug import AudioFolder, Loader, Plan
from audioaug.advise.cli import main
from audioaug.errors import DataError, PlanError, UsageError
from audioaug.records import to_json
from tests.decide.planted import planted_report
from tests.train.material import DEMO

ROOT = Path(__file__).resolve().parents[2]


def test_r5_16_a_section_that_the_site_generates_says_so_in_the_file():
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
    '{"hello": 1}': "A plan has no field 'hello'. Known: chain_hash, cut,",
    '{"cut": 1, "num_worker": 2}': "A plan has no field 'num_worker'. Did you mean num_workers?",
    to_json(planted_report()): "This is a report, not a plan. python -m audioaug.advise --load FILE shows it",
    '{"cut": "three"}': "Expected `int`, got `str` - at `$.cut`",
    '{"cut": 1, "num_workers": -2}': "num_workers is -2, but it must be a whole number from 0 to 1024",
    '{"cut": 1, "num_workers": 1000000000}': "num_workers is 1000000000, but it must be a whole number from 0 to 1024",
    '{"cut": 1, "threads": 1000000000}': "threads is 1000000000, but it must be a whole number from 1 to 1024",
    '{"cut": 1, "prefetch_factor": 0}': "prefetch_factor is 0, but",
    f'{{"cut": 1{"0" * 400}}}': "cut is 1000000000000000000000000000000000000000, but it must be below 2**63.",
    '{"cut": 1, "device_engine": "magic"}': "Invalid enum value 'magic' - at `$.device_engine`",
    '{"cut": 1, "start_method": "spwan"}': "there is no start method 'spwan'. Did you mean spawn?",
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
    with pytest.raises(PlanError, match="but it must be a whole number"):
        Plan(**arguments)


def test_r5_07_a_plan_keeps_loading(tmp_path):
    plan = Plan(cut=3, num_workers=4, prefetch_factor=8, threads=2, start_method="spawn")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert len(json.loads((tmp_path / "plan.json").read_text())) == 12


RATE = 16000


def test_r5_06_a_loader_takes_an_audiomentations_compose():
    compose = audiomentations.Compose([audiomentations.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)])
    [batch] = Loader([torch.ones(100)] * 2, compose, sample_rate=RATE, device="cpu", batch_size=2)
    torch.testing.assert_close(batch, torch.full((2, 100), 10**0.3))


def test_r5_13_an_unpicklable_dataset_under_spawn_is_named():
    class Local(list):  # type: ignore[type-arg]
        pass

    loader = Loader(
        Local([torch.ones(100)]), [], Plan(num_workers=1, start_method="spawn"), sample_rate=RATE, device="cpu"
    )
    with pytest.raises(DataError, match=r"`dataset` \(.*Local\) does not pickle"):
        list(loader)


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
