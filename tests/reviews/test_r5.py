"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import json
from pathlib import Path

import pytest

from audioaug import Plan
from audioaug.advise.cli import main
from audioaug.errors import PlanError, UsageError
from audioaug.records import to_json
from tests.decide.planted import planted_report

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
