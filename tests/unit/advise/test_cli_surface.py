import json
import os
import re
import sys
from dataclasses import replace

import click
import pytest

from audioaug.advise.__main__ import advise as command
from audioaug.records import SHARED_FIELDS, Plan, Report, from_json, read_record, write_record
from audioaug.report.sounds import NOT_SAVED
from tests.helpers.planted_reports import EVERY_KNOB

OPTIONS = {
    "--model": "FILE.py[:NAME]",
    "--augment": "FILE",
    "--allow-code": None,
    "--data": "PATH",
    "--batch-size": None,
    "--sample-rate": None,
    "--clip-seconds": None,
    "--audio-key": "KEY",
    "--device": None,
    "--workers": None,
    "--ranks": None,
    "--precision": None,
    "--budget": None,
    "--quick": None,
    "--fresh": None,
    "--verify": "PLAN",
    "--what-if": "K=V,...",
    "--also": "A,B",
    "--json": "FILE|-",
    "--markdown": "FILE",
    "--html": "FILE",
    "--plan": "FILE",
    "--load": "FILE",
}


def test_the_options_are_frozen() -> None:
    assert all(isinstance(option, click.Option) for option in command.params)
    found = {option.opts[0]: option.metavar for option in command.params}
    assert found == OPTIONS
    assert not any(option.required or len(option.opts) > 1 for option in command.params)


def test_every_option_is_explained(advise) -> None:
    ran = advise("--help")
    assert (ran.code, ran.err) == (0, "")
    assert all(f"\n  {name} " in ran.out for name in OPTIONS)
    assert all(option.help for option in command.params)


@pytest.mark.usefixtures("nothing_measured")
def test_load_shows_a_report_without_measuring(advise, saved) -> None:
    ran = advise("--load", saved)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Use split at 1, 2 workers: 20.0 ms a step instead of 40.0 ms")
    assert "Op1" in ran.out


def test_load_writes_requested_files(advise, saved, report, here) -> None:
    files = ("--json", "again.json", "--html", "page.html", "--markdown", "page.md", "--plan", "plan.json")
    ran = advise("--load", saved, *files)
    assert ran.code == 0
    assert ran.err.splitlines() == [f"note: {NOT_SAVED}"] and NOT_SAVED in (here / "page.html").read_text()
    assert read_record(here / "again.json", Report) == report
    assert "split at 1" in (here / "page.html").read_text() and "split at 1" in (here / "page.md").read_text()
    assert Plan.load(here / "plan.json") == Plan(cut=1, num_workers=2, chain_hash="hash")


def test_paths_are_relative_to_the_folder_in_which_the_command_started(
    advise, saved, report, here, monkeypatch
) -> None:
    (here / "elsewhere").mkdir()

    def survey_that_moves(*_, **options):
        os.chdir("elsewhere")  # as a model file may
        options["on_update"](report)
        return report

    monkeypatch.setattr("audioaug.advise.survey.survey", survey_that_moves)
    ran = advise("--model", "m.py", "--what-if", "gpu=saved.json", "--json", "x.json", "--plan", "x.plan")
    assert ran.code == 0, ran.err
    assert {"x.json", "x.plan"} < {file.name for file in here.iterdir()} and not list((here / "elsewhere").iterdir())


def test_a_written_plan_has_every_field_of_the_recommendation(advise, report, here) -> None:
    plan = replace(EVERY_KNOB, chain_hash="hash")
    advice = replace(report.recommendation, **{name: getattr(plan, name) for name in SHARED_FIELDS})
    special = replace(report, recommendation=advice, workload=replace(report.workload, precision="bf16"))
    write_record(special, here / "special.json")
    assert advise("--load", "special.json", "--plan", "plan.json").code == 0
    assert Plan.load(here / "plan.json") == plan


def test_load_and_what_if(advise, saved) -> None:
    out = advise("--load", saved, "--what-if", "cores=2,step_ms=1").out
    assert "With cores = 2, step_ms = 1," in out
    assert "With cores" not in advise("--load", saved).out


def test_json_to_stdout_is_nothing_but_json(advise, saved, report) -> None:
    ran = advise("--load", saved, "--json", "-")
    assert from_json(ran.out, Report) == report
    assert next(iter(json.loads(ran.out))) == "schema_version"


def test_no_colour_without_a_terminal(advise, saved) -> None:
    assert "\x1b" not in advise("--load", saved).out


def test_a_dumb_terminal_gets_no_colour(advise, saved, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in advise("--load", saved).out


@pytest.mark.parametrize(("refused", "colour"), [(False, True), (True, False)])
def test_colour_on_a_terminal_unless_no_color(advise, saved, monkeypatch, refused, colour) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    monkeypatch.delenv("NO_COLOR", raising=False)
    if refused:
        monkeypatch.setenv("NO_COLOR", "1")
    out = advise("--load", saved).out
    assert ("\x1b[" in out) is colour and "Use split at 1" in out
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in out.splitlines()) <= 80
