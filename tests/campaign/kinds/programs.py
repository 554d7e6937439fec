"""Whole programs under signals: a training loop, scripts/train.py, the advisor; and commands whose stdout is closed."""

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from audioaug.__main__ import main as audioaug_main
from audioaug.advise.__main__ import main as advise
from tests.campaign.case import COUNT, LOADERS, Case, check_all, check_once, clip, indices
from tests.campaign.faults import Attack, Violation, kind
from tests.campaign.kinds.data_files import texts
from tests.campaign.system import mount, own_mounts

MODEL = Path(__file__).parents[3] / "scripts/models/keyword_cnn.py"


def slow_clip(index: int) -> dict[str, Any]:
    """Take a moment to read an example."""
    time.sleep(0.002)
    return clip(index)


def train(case: Case) -> str:
    """Train until something happens, and print what is delivered."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    batches = case.batches(slow_clip)
    case.note("ready")
    while True:
        for batch in batches:
            print(*batch["index"].tolist(), flush=True)
        print("epoch", flush=True)


def train_again(case: Case) -> str:
    """Train for an epoch without a fault."""
    check_all(indices(case.batches()))
    return "delivered"


def send(name: str, everyone: bool, times: int = 1) -> Callable[[Case, int], None]:
    """Return an attack: a signal at a random time, to the program or to all its processes, as a terminal does."""

    def start(case: Case, pid: int) -> None:
        chance = case.fault.chance("attack")
        case.wait_for("ready", pid)
        for _ in range(times):
            time.sleep(chance.uniform(0, case.values.get("within", 0.5)))
            chosen = signal.Signals[name or case.values["signal"]]
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if everyone else os.kill)(pid, chosen)

    return start


def check_epochs(case: Case, ending: Any) -> None:
    """Check what was printed: nothing twice, and nothing missing in a whole epoch."""
    *whole, last = [part.split() for part in ending.stdout.split("epoch\n")]
    for epoch in whole:
        check_all([int(index) for index in epoch])
    check_once([int(index) for index in last], range(COUNT))


def interrupted(case: Case, ending: Any) -> str:
    """Judge a training loop after Ctrl-C: it ends as Python programs do, and its workers say nothing."""
    if ending.code != -signal.SIGINT:
        raise Violation("exit code", f"{ending.code}: {ending.stderr[-1500:]}")
    lines = ending.stderr.rstrip().splitlines()
    if case.has_workers_of_torch:
        lines = [each for each in lines if each == "KeyboardInterrupt"]
    elif "_worker_loop" in ending.stderr or "Process " in ending.stderr:
        raise Violation("traceback", ending.stderr[-1500:])
    if case.values.get("times") != 2 and lines[-1:] != ["KeyboardInterrupt"]:
        raise Violation("sentence", ending.stderr[-1500:])
    check_epochs(case, ending)
    return "KeyboardInterrupt"


def ended_by_signal(case: Case, ending: Any) -> str:
    """Judge a training loop that a signal ends."""
    name = case.values["signal"]
    if ending.code != -signal.Signals[name]:
        raise Violation("exit code", f"{ending.code} after {name}: {ending.stderr[-800:]}")
    if "Traceback" in ending.stderr and not case.peer and not case.has_workers_of_torch:
        raise Violation("traceback", ending.stderr[-1500:])
    check_epochs(case, ending)
    return name


WORKERS: dict[str, Any] = {"workers": (0, 1, 2, 2), "persistent": (True, False)}
LOOPS = [*LOADERS]
kind("Ctrl-C", LOOPS, weight=2, peer=True, attack=Attack(send("SIGINT", True), interrupted, train_again), **WORKERS)(
    train
)
kind(
    "Ctrl-C twice",
    LOOPS[:4],
    weight=1.2,
    peer=True,
    times=(2,),
    within=(0.05, 0.3),
    attack=Attack(send("SIGINT", True, 2), interrupted, train_again),
    **WORKERS,
)(train)
kind(
    "program ended by a signal",
    LOOPS,
    weight=1.2,
    peer=True,
    signal=("SIGTERM", "SIGHUP", "SIGKILL", "SIGQUIT"),
    attack=Attack(send("", False), ended_by_signal, train_again),
    **WORKERS,
)(train)
kind(
    "terminal closed",
    LOOPS[:2],
    weight=0.5,
    peer=True,
    signal=("SIGHUP", "SIGTERM"),
    attack=Attack(send("", True), ended_by_signal, train_again),
    **WORKERS,
)(train)


def interrupt_stopped(case: Case, pid: int) -> None:
    """Stop a worker, press Ctrl-C, and continue it, or not: then SIGTERM does not end it."""
    chance = case.fault.chance("attack")
    case.wait_for("ready", pid)
    time.sleep(chance.uniform(0.1, 0.5))
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        chance.choice(psutil.Process(pid).children()).suspend()
    time.sleep(0.2)
    for name in (signal.SIGINT, signal.SIGCONT) if case.values["continued"] else (signal.SIGINT,):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, name)
        time.sleep(chance.uniform(0, 1))


kind(
    "Ctrl-C, a worker stopped",
    LOOPS[:4],
    weight=0.3,
    peer=True,
    workers=(1, 2),
    persistent=(True, False),
    continued=(True, False),
    attack=Attack(interrupt_stopped, interrupted, train_again),
)(train)


# scripts/train.py

ARGUMENTS = ("--device", "cpu", "--examples", "16", "--batch-size", "4", "--epochs", "3", "--checkpoint", "c.pt")


def train_script(case: Case) -> str:
    """Run scripts/train.py."""
    import train as program

    signal.signal(signal.SIGINT, signal.default_int_handler)
    case.note("ready")
    sys.exit(program.main(ARGUMENTS))


def resume_script(case: Case) -> str:
    """Continue from the checkpoint, if there is one."""
    import train as program

    (case.folder / "c.pt.new").unlink(missing_ok=True)  # of a program that was killed
    resume = ["--resume"] if (case.folder / "c.pt").exists() else []
    if code := program.main([*ARGUMENTS, *resume]):
        raise Violation("next run", f"exit code {code}")
    updates = torch.load(case.folder / "c.pt", weights_only=True)["updates"]
    if updates != 12:
        raise Violation("lost or twice", f"{updates} updates of 12")
    return "resumed"


def script_stopped(case: Case, ending: Any) -> str:
    """Judge scripts/train.py after a signal: Ctrl-C keeps all in a checkpoint."""
    name = case.values["signal"]
    has_ended_first = ending.code == -signal.SIGINT and "epoch 2:" in ending.stderr  # and Python was about to exit
    if ending.code == 0 or has_ended_first:
        return "done before"
    expected = 130 if name == "SIGINT" else -signal.Signals[name]
    if ending.code != expected:
        raise Violation("exit code", f"{ending.code} after {name}: {ending.stderr[-1500:]}")
    if "Traceback" in ending.stderr:
        raise Violation("traceback", ending.stderr[-1500:])
    if name == "SIGINT" and "interrupted" not in ending.stderr:
        raise Violation("sentence", ending.stderr[-500:])
    return f"exit code {ending.code}"


kind(
    "scripts/train.py stopped",
    ["scripts/train.py"],
    weight=0.6,
    limit=120,
    signal=("SIGINT", "SIGINT", "SIGTERM", "SIGKILL"),
    within=(0.3, 1.5, 3.0),
    attack=Attack(send("", True), script_stopped, resume_script),
)(train_script)


def make_folder(path: Path) -> None:
    """Replace a file by a folder."""
    path.unlink()
    path.mkdir()


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: path.write_bytes(b"") and None,
    "text": lambda path: path.write_text("no checkpoint") and None,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]) and None,
    "overwritten": lambda path: (
        path.write_bytes(path.read_bytes()[:2000] + bytes(500) + path.read_bytes()[2500:]) and None
    ),
    "another program's": lambda path: torch.save({"state_dict": {}}, path),
    "a list": lambda path: torch.save([1, 2, 3], path),
    "other weights": lambda path: torch.save({**torch.load(path, weights_only=True), "model": {}}, path),
    "other loader": lambda path: torch.save({**torch.load(path, weights_only=True), "loader": {"epoch": 1}}, path),
    "code": lambda path: torch.save({"model": print}, path),
    "folder": make_folder,
}


@kind("hostile checkpoint", ["scripts/train.py"], weight=0.8, limit=120, checkpoint=tuple(CHECKPOINTS))
def checkpoint(case: Case) -> str:
    """Resume scripts/train.py from a file that is none of its checkpoints."""
    import train as program

    short = [*ARGUMENTS[:-3], "1", *ARGUMENTS[-2:]]
    path, err = case.folder / "c.pt", io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        program.main(short)
    good = path.read_bytes()
    CHECKPOINTS[case.values["checkpoint"]](path)
    with contextlib.redirect_stderr(err):
        code = program.main([*short, "--resume"])
    said = err.getvalue()
    if code != 2 or not said.startswith("error: ") or said.count("\n") != 1:
        raise Violation("sentence", f"{code}: {said[-800:]}")
    if path.is_dir():
        path.rmdir()
    path.write_bytes(good)
    if code := program.main([*short, "--resume"]):
        raise Violation("next run", f"exit code {code}")
    return "exit code 2"


@kind("full disk, checkpoint", ["scripts/train.py"], weight=0.4, limit=120, kilobytes=(0, 64, 300))
def checkpoint_on_full_disk(case: Case) -> str:
    """The disk fills up before the checkpoint is written; an old one is kept."""
    import train as program

    disk = case.folder / "disk"
    if not own_mounts() or not mount(disk, f"size={case.values['kilobytes'] + 4}k"):
        return "no right to mount"
    err, path = io.StringIO(), disk / "c.pt"
    short = [*ARGUMENTS[:-3], "1", "--checkpoint", str(path)]
    with contextlib.redirect_stderr(err):
        code = program.main(short)
    said = err.getvalue().splitlines()
    if code != 2 or not said[-1].startswith("error: ") or "Traceback" in err.getvalue():
        raise Violation("sentence", f"{code}: {err.getvalue()[-800:]}")
    if list(disk.iterdir()):
        raise Violation("left behind", str(list(disk.iterdir())))
    mount(disk, "remount", "size=50m")
    if code := program.main(short):
        raise Violation("next run", f"exit code {code}")
    return "exit code 2"


# The advisor


def advisor(case: Case) -> str:
    """Run the advisor on the example model."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["XDG_CACHE_HOME"] = str(case.folder / "cache")
    case.note("ready")
    sys.exit(advise(["--model", str(MODEL), "--budget", "8", "--device", "cpu", "--fresh", "--json", "r.json"]))


def advised_or(ending: Any, code: int, word: str) -> str:
    """Judge an end of the advisor: a recommendation, or this exit code with a sentence that has this word."""
    if "Traceback" in ending.stderr:
        raise Violation("traceback", ending.stderr[-1500:])
    if ending.code not in (0, code):
        raise Violation("exit code", f"{ending.code}: {ending.stderr[-1500:]}")
    if ending.code == code and word not in ending.stderr:
        raise Violation("sentence", ending.stderr[-500:])
    return f"exit code {ending.code}"


def advisor_stopped(case: Case, ending: Any) -> str:
    """Judge the advisor after Ctrl-C."""
    return advised_or(ending, 130, "interrupted")


kind(
    "advisor, Ctrl-C",
    ["advise"],
    weight=0.25,
    limit=120,
    within=(1.0, 4.0, 12.0),
    attack=Attack(send("SIGINT", True), advisor_stopped),
)(advisor)


def kill_a_worker(case: Case, pid: int) -> None:
    """Kill a worker of the program, as soon as there is one: no compiler, which would leave its own files."""
    deadline, chance = time.monotonic() + 30, case.fault.chance("attack")
    time.sleep(chance.uniform(0, 6))
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error, IndexError):
            children = [each for each in psutil.Process(pid).children() if each.name().startswith(("python", "pt_"))]
            children[0].kill()
            return
        time.sleep(0.02)


def advisor_without_worker(case: Case, ending: Any) -> str:
    """Judge the advisor after the death of a worker: a sentence, or a recommendation all the same."""
    return advised_or(ending, 1, "error: ")


kind(
    "advisor, a worker killed",
    ["advise"],
    weight=0.15,
    limit=120,
    attack=Attack(kill_a_worker, advisor_without_worker),
)(advisor)

# Closed stdout

COMMANDS: dict[str, list[str]] = {
    "report": ["advise", "--load", "report.json"],
    "help": ["advise", "--help"],
    "doctor": ["doctor", "--json"],
    "page": ["advise", "--load", "report.json", "--json", "-"],
    "version": ["--help"],
}


def closed_stdout(case: Case) -> str:
    """Run a command whose reader has gone, or that has no stdout."""
    (case.folder / "report.json").write_text(texts()["report"])
    if case.values["stdout"] == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python has it then
    elif case.values["stdout"] == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    else:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        os.close(writer)
    case.note("ready")
    sys.argv = ["audioaug", *COMMANDS[case.values["command"]]]
    sys.exit(audioaug_main())


def quiet(case: Case, ending: Any) -> str:
    """Judge a command without a reader: it says nothing of it, or one sentence."""
    if "Traceback" in ending.stderr or "Exception ignored" in ending.stderr:
        raise Violation("traceback", ending.stderr[-1500:])
    if ending.code not in (0, 1, 2, -signal.SIGPIPE, 128 + signal.SIGPIPE):
        raise Violation("exit code", f"{ending.code}: {ending.stderr[-800:]}")
    return f"exit code {ending.code}"


kind(
    "closed stdout",
    ["advise, doctor"],
    weight=1,
    command=tuple(COMMANDS),
    stdout=("pipe", "pipe", "closed", "full"),
    attack=Attack(lambda case, pid: None, quiet),
)(closed_stdout)
