"""The command line: one program, and a module for each command that is the same; help that does not wait for torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from audioaug import Monitor
from audioaug.__main__ import COMMANDS, main
from audioaug.measure import FakeClock

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
    )


def imported(stderr: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")}


PROGRAMS = [["audioaug"], *(["audioaug", name] for name in COMMANDS), *([f"audioaug.{name}"] for name in COMMANDS)]


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_help_names_the_program_as_called_and_imports_no_torch(program):
    done = run("-X", "importtime", "-m", *program, "--help")
    assert done.stdout.startswith(f"Usage: python -m {' '.join(program)} [OPTIONS]")
    modules = imported(done.stderr)
    assert "click" in modules and not {"torch", "numpy", "rich.console"} & modules


def test_imported_modules_are_seen():
    assert "torch" in imported(run("-X", "importtime", "-c", "import audioaug; audioaug.Loader").stderr)


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS) and "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Usage: "),
        (["advsie"], 2, "No such command 'advsie'"),
        (["advise"], 2, "error: Missing option --model."),
        (["advise", "--fast"], 2, "advise --help' for help"),
        (["verify", "--op", "Gian"], 2, "Did you mean Gain?"),
        (["monitor", "none.jsonl", "--html", "page.html"], 2, "Cannot read none.jsonl"),
        (["compare", "none.json", "other.json"], 2, "Cannot read none.json"),
        (["doctor"], 0, ""),
    ],
)
def test_exit_codes(arguments, code, said, capfd):
    try:
        assert main(arguments) == code
    except SystemExit as end:
        assert end.code == code
    assert said in capfd.readouterr().err


REPORT = ROOT / "datasets/profiles/report_cpu_2_cores.json"


def test_two_reports_or_two_logs_are_compared(tmp_path, capfd):
    assert main(["compare", str(REPORT), str(REPORT)]) == 0
    assert "The advice is the same, " in capfd.readouterr().out
    log = tmp_path / "run.jsonl"
    clock = FakeClock()
    with Monitor([torch.zeros(4, 1, 10)] * 90, device="cpu", live=False, log=log, clock=clock) as monitor:
        for _ in monitor:
            clock.advance(0.1)
    one_line = tmp_path / "report.json"
    one_line.write_text(json.dumps(json.loads(REPORT.read_text(encoding="utf-8"))))
    assert main(["compare", str(one_line), str(REPORT)]) == 0
    capfd.readouterr()
    hostile = tmp_path / "hostile.json"
    content = json.loads(REPORT.read_text(encoding="utf-8"))
    content["host"]["cpu"] = "\x1b]0;title\x07\nno line"
    hostile.write_text(json.dumps(content))
    assert main(["compare", str(REPORT), str(hostile)]) == 0
    assert r"before, \x1b]0;title\x07\nno line now." in capfd.readouterr().out
    assert main(["compare", str(log), str(log)]) == 0
    assert capfd.readouterr().out.startswith("A step: ")
    assert main(["compare", str(REPORT), str(log)]) == 2
    assert "Give two of the same kind." in capfd.readouterr().err


FULL = "error: Cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize(
    "arguments", ["--help", "doctor", "doctor --json", f"advise --load {REPORT}", f"advise --load {REPORT} --json -"]
)
@pytest.mark.parametrize(
    ("destination", "said"), [("> /dev/full", FULL), ("| true", ""), (">&-", None)], ids=["full", "pipe", "closed"]
)
def test_output_that_cannot_be_written_is_no_traceback(arguments, destination, said):
    command = f'set -o pipefail; trap "" INT; "$0" -m audioaug {arguments} {destination}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    if said is not None:
        assert (done.returncode, done.stderr) == (1, said)
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr


def test_the_table_of_verify_that_cannot_be_written_is_no_traceback():
    command = '"$0" -m audioaug.verify --op Identity > /dev/full'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1 and done.stderr.endswith(FULL) and "Traceback" not in done.stderr


INTERRUPTED = """
import sys
import click
from audioaug.command import run

@click.command()
def program():
    exec("raise KeyboardInterrupt")

sys.exit(run(program, []))
"""


def test_exit_code_is_130_if_ctrl_c_interrupts_an_exec(tmp_path):
    (tmp_path / "program.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "program"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


PANIC = "class Panic(BaseException): ...\n"


@pytest.mark.parametrize(
    "code",
    ["raise Panic('called unwrap')", "def build_model(): raise Panic('called unwrap')"],
    ids=["import", "model"],
)
def test_what_is_raised_but_no_exception_is_one_sentence_too(code, tmp_path, capfd):
    (tmp_path / "panics.py").write_text(PANIC + code)
    assert main(["advise", "--model", str(tmp_path / "panics.py")]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "error: Panic: called unwrap (line 2 of panics.py)."


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_report_is_printed_in_any_encoding(encoding, tmp_path):
    report = Path(REPORT).read_text().replace('"Gain"', '"Gain \u00e4 \u65e5 \U0001f50a"')
    (tmp_path / "report.json").write_text(report, encoding="utf-8")
    command = [sys.executable, "-m", "audioaug.advise", "--load", str(tmp_path / "report.json")]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    shown, as_json = (
        subprocess.run([*command, *more], cwd=ROOT, capture_output=True, env=environment, check=True).stdout
        for more in ([], ["--json", "-"])
    )
    assert b"\n-----" in shown and b"\\u65e5" in shown
    assert "Gain \u00e4 \u65e5 \U0001f50a" in json.loads(as_json.decode(encoding))["chain"]["ops"]


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be deleted")
@pytest.mark.parametrize("arguments", ["advise --model none.py", "doctor", "verify --op Gain"])
def test_a_deleted_folder_is_one_sentence(arguments, tmp_path):
    command = 'mkdir gone && cd gone && rmdir ../gone && "$0" -m audioaug $1'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    said = "error: Cannot use the current folder: No such file or directory. Change to one that exists.\n"
    assert (done.returncode, done.stderr) == (2, said)
