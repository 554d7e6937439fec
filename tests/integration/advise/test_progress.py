"""Ctrl-C: exit code 130, no traceback, no process left behind, and partial results in the file."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from audioaug.advise.progress import Outputs, Progress
from audioaug.process import Interrupt
from audioaug.records import Report, from_json, read_record
from tests.helpers.planted_reports import planted_report

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0
"""Seconds: a limit against hanging only."""
HELD = """
import os, time
from pathlib import Path
from audioaug import ops
from audioaug.advise.progress import Progress

augment = [ops.Gain(p=1.0)]
here, stage = os.getpid(), Progress.stage

def hold(self, name, seconds):
    if name.startswith("{stage}"):
        Path("hold").touch()
    return stage(self, name, seconds)

Progress.stage = hold

class Slow:
    reads, reader = 0, here

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.reads = self.reads + 1 if os.getpid() == self.reader else 1
        self.reader = os.getpid()
        time.sleep(0.004)  # planted: storage that takes 4 ms a clip, so that there is something to measure
        while self.reader != here and self.reads > 4 and Path("hold").exists():
            time.sleep(0.01)
        return torch.full((1, 4000), 0.1)

dataset = Slow()
"""
"""From the start of a stage on, each worker sends one batch and then waits: the stage cannot end before the Ctrl-C."""


NO_SIGINT = pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT of this kind")


@pytest.fixture
def advisor(model, here):
    """Start the advisor in its own session; end remaining processes afterwards."""
    started = []

    def start(stage: str, *arguments: str) -> subprocess.Popen[str]:
        held = model(HELD.replace("{stage}", stage))
        command = [sys.executable, "-m", "audioaug.advise", "--model", held, "--json", "report.json", *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_stage(process: subprocess.Popen[str], name: str) -> str:
    """Read the advisor's output until this stage begins."""
    printed = ""
    for line in process.stderr:
        printed += line
        if line.startswith(name):
            return printed
    raise AssertionError(f"the stage {name!r} never began: {printed}")


def wait_for_workers(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """Return the advisor's processes once their number is ``count`` and stable."""
    deadline, before = time.monotonic() + PATIENCE, []
    while time.monotonic() < deadline:
        workers = psutil.Process(process.pid).children(recursive=True)
        if len(workers) >= count and workers == before:
            return workers
        before = workers
        time.sleep(0.1)  # between two looks at another process
    raise AssertionError(f"{count} workers never were there")


def interrupted(process: subprocess.Popen[str], printed: str, everyone: bool, left: list[psutil.Process]) -> Report:
    """Send Ctrl-C (to ``everyone`` as a terminal does), check how the advisor ends, and return its report."""
    (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
    Path("hold").unlink()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in printed + err and "Exception ignored" not in err, err
    assert err.splitlines()[-1].startswith("interrupted: partial results are in the output files")
    assert out == ""
    _, alive = psutil.wait_procs(left, timeout=PATIENCE)
    assert not alive
    report = read_record("report.json", Report)
    assert not report.complete and report.recommendation is None and report.verdict == ""
    return report


@NO_SIGINT
def test_interrupt_in_the_middle(advisor) -> None:
    process = advisor("the loader alone", "--budget", "8", "--workers", "0,2")
    printed = wait_for_stage(process, "the loader alone")
    report = interrupted(process, printed, False, wait_for_workers(process, 2))
    assert report.ceiling is not None and report.current.measured_ms > 0
    assert {stage.name for stage in report.stages} >= {"decode", "Gain", "collate"}
    assert report.candidates == () and [candidate.candidate for candidate in report.measurements] == [
        report.current.name
    ]


@NO_SIGINT
def test_interrupt_in_a_race_with_many_workers(advisor) -> None:
    process = advisor("racing", "--budget", "5", "--workers", "4")
    printed = wait_for_stage(process, "racing")
    report = interrupted(process, printed, True, wait_for_workers(process, 8))
    assert len({cost.cut for cost in report.loader_costs}) == 2
    assert {candidate.status for candidate in report.candidates} <= {
        "predicted",
        "raced",
    } and report.candidates  # some had their screening


def test_a_dumb_terminal_gets_a_line_a_stage(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with Progress() as progress, progress.stage("a stage", 1.0) as tick:
        tick()
    assert capsys.readouterr().err == "a stage ...\n"


def test_an_interrupt_that_python_dropped_is_raised_at_the_next_check() -> None:
    with Interrupt() as interrupt, Progress(interrupt.check, quiet=True) as progress:
        interrupt.check()
        with pytest.raises(KeyboardInterrupt), progress.stage("a stage", 1.0) as tick:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            tick()
        with pytest.raises(KeyboardInterrupt), progress.stage("a stage", 1.0):
            pass


def test_dropped_interrupts_are_not_printed_but_other_exceptions_are(monkeypatch) -> None:
    class Dropping:
        def __init__(self, work):
            self.work = work

        def __del__(self):
            self.work()

    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    with Interrupt() as interrupt:
        Dropping(lambda: signal.raise_signal(signal.SIGINT))
        Dropping(lambda: 1 / 0)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    assert seen == [ZeroDivisionError]


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before[0] and sys.unraisablehook is not before[1]
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_worker_ignores_the_interrupt() -> None:
    with Interrupt():
        child = os.fork()
        if child == 0:  # in the child: 0 if nothing is raised
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_gets_one_report(tmp_path) -> None:
    pipe, received = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    outputs = Outputs(json=str(pipe))
    outputs.update(planted_report())
    outputs.update(planted_report(model=11.0), last=True)
    reader.join(PATIENCE)
    assert from_json(received[0], Report) == planted_report(model=11.0)
