"""The process that makes faults happen: it forks a process for each, attacks it, waits, and judges what is left.

It has imported everything once, so that a fault costs some 0.1 s. It reads numbers of faults from stdin and writes a
JSON line on each to stdout. Where it may, it has a /dev/shm of its own, which must be empty after each fault.
"""

import contextlib
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TextIO

import psutil
import torch

from tests.campaign.case import PATIENCE, Case, has_ended, indices, nothing_left
from tests.campaign.faults import KINDS, Fault, Kind, Violation, draw
from tests.campaign.kinds import load
from tests.campaign.system import become_reaper, mount, own_mounts

SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code (a negative one is a signal), and what it has printed."""

    code: int
    stdout: str
    stderr: str


def prepare(planted: bool) -> bool:
    """Import and compile what faults need, once; return whether /dev/shm is this process's own."""
    torch.set_num_threads(1)
    load(planted)
    resource_tracker.ensure_running()
    become_reaper()
    own = own_mounts() and mount("/dev/shm", "size=256m")
    for target in ("Loader, map", "Loader, bucketed", "prefetch"):
        indices(Case(Fault(0, 0, "none", target), Path()).batches())
    gc.collect()
    gc.freeze()  # not collected, and not copied, in each process
    return own


def serve(seed: int, names: list[str], answers: TextIO, own: bool, peer: bool) -> Callable[[], None] | None:
    """Run the faults whose numbers come from stdin; in a process that was forked for one, return what it has to do."""
    kinds = [KINDS[name] for name in names]
    for line in sys.stdin:
        fault = draw(seed, int(line), kinds)
        folder = Path(tempfile.mkdtemp(prefix="campaign-"))
        (folder / "tmp").mkdir()
        case, kind, begin = Case(fault, folder, peer), KINDS[fault.kind], time.monotonic()
        if (pid := fork(folder)) == 0:
            answers.close()
            return partial(run_program if kind.attack else run_and_tell, case, kind.run)
        ended, violations = watch(case, kind, pid, own)
        if not violations and kind.attack and kind.attack.again and not peer:
            if (pid := fork(folder)) == 0:
                answers.close()
                return partial(run_and_tell, case, kind.attack.again)
            _, again = watch(case, kind, pid, own, judged=False)
            violations = [{**each, "verdict": "next run"} for each in again]
        shutil.rmtree(folder, ignore_errors=True)
        record = {"number": fault.number, "kind": fault.kind, "target": fault.target, "values": dict(fault.values)}
        record |= {"ended": ended, "seconds": round(time.monotonic() - begin, 3), "violations": violations}
        print(json.dumps(record), file=answers, flush=True)
    return None


# In the process of a fault


def fork(folder: Path) -> int:
    """Fork; in the new process, which leads a session of its own, connect stdin, stdout and stderr to files."""
    for name in ("result", "ready", "stdout", "stderr"):
        (folder / name).unlink(missing_ok=True)
    if pid := os.fork():
        return pid
    os.setsid()
    for number, name in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.chdir(folder)
    for ignored in (signal.SIGHUP, signal.SIGQUIT):  # by nohup, and by a shell in the background
        signal.signal(ignored, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
    warnings.simplefilter("ignore")
    random.seed(0)
    return 0


def run_program(case: Case, run: Callable[[Case], str]) -> None:
    """Run a program: it ends as programs do."""
    run(case)


def run_and_tell(case: Case, run: Callable[[Case], str]) -> None:
    """Run a fault and leave a note of how it ended, and what it violated."""
    ended, violations = "", []
    try:
        with nothing_left(case):
            ended = run(case)
    except Violation as violation:
        violations.append({"verdict": violation.verdict, "seen": violation.seen})
    except BaseException as error:
        shown = "".join(traceback.format_exception(error))
        violations.append({"verdict": "traceback", "seen": shown[-1500:]})
    case.note("result", {"ended": ended, "violations": violations})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the interpreter's own end takes a second


# In the process that watches


def watch(case: Case, kind: Kind, pid: int, own: bool, judged: bool = True) -> tuple[str, list[dict[str, str]]]:
    """Attack a process and wait until it has ended; return how, and what it violated."""
    ended, violations = "", []
    try:
        if judged and kind.attack:
            kind.attack.start(case, pid)
        ending = wait(case, pid, kind.limit)
        if judged and kind.attack:
            ended = kind.attack.judge(case, ending)
        else:
            ended = judge(case, kind, ending, violations)
        check_left(case, own, ending)
    except Violation as violation:
        ended = ended or violation.verdict
        violations.append({"verdict": violation.verdict, "seen": violation.seen})
    finally:
        end_all()
    return ended, violations


def wait(case: Case, pid: int, limit: float) -> Ending:
    """Return how a process ended; after the limit it is a hang, and its stack is shown."""
    deadline, pause = time.monotonic() + limit, 0.002
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            texts = (read(case.folder / name) for name in ("stdout", "stderr"))
            return Ending(os.waitstatus_to_exitcode(status), *texts)
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)
            time.sleep(0.5)
            raise Violation("hang", f"after {limit:g} s: {read(case.folder / 'stderr')[-1500:]}")
        time.sleep(pause)
        pause = min(0.05, pause * 1.2)


def read(file: Path) -> str:
    """Return what was printed."""
    return file.read_text(errors="replace") if file.exists() else ""


def judge(case: Case, kind: Kind, ending: Ending, violations: list[dict[str, str]]) -> str:
    """Return how a fault ended by the note that it has left."""
    note = case.folder / "result"
    if ending.code or not note.exists():
        raise Violation("exit code", f"{ending.code}: {ending.stderr[-1000:]}")
    may_print = case.has_workers_of_torch or case.peer
    if kind.of_world and not may_print and "Traceback (most recent call last)" in ending.stderr:
        violations.append({"verdict": "traceback", "seen": ending.stderr[-1500:]})
    result = json.loads(note.read_text())
    violations.extend(result["violations"])
    return str(result["ended"])


def check_left(case: Case, own: bool, ending: Ending) -> None:
    """Check that no process, shared memory or temporary file is left."""
    deadline = time.monotonic() + PATIENCE
    while left := what_is_left(case, own, ending):
        if time.monotonic() > deadline:
            raise Violation("left behind", ", ".join(left))
        time.sleep(0.02)


def what_is_left(case: Case, own: bool, ending: Ending) -> list[str]:
    """Name processes that have not ended, shared memory and temporary files.

    A process that a signal ends at any time, unlike Ctrl-C, may leave a semaphore that it was about to unlink.
    """
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    ended_anywhere = ending.code < 0 and ending.code != -signal.SIGINT
    processes = [each for each in psutil.Process().children(recursive=True) if each.pid != tracker]
    files = [*(case.folder / "tmp").iterdir(), *case.folder.rglob(".audioaug-*.new")]
    return [
        *(f"process {each.pid} {name_of(each)}" for each in processes if not has_ended(each.pid)),
        *(
            f"shared memory {each.name}"
            for each in (SHARED.iterdir() if own else ())
            if not (ended_anywhere and each.name.startswith("sem."))
        ),
        *(f"temporary {each.name}" for each in files if not each.name.startswith("pymp-")),
    ]


def name_of(process: psutil.Process) -> str:
    """Return the name of a process, if it is still there."""
    with contextlib.suppress(psutil.Error):
        return process.name()
    return "?"


def end_all() -> None:
    """End whatever a fault has left, so that the next one starts clean."""
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    for process in psutil.Process().children(recursive=True):
        if process.pid != tracker:
            with contextlib.suppress(psutil.Error):
                process.kill()
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
    for file in SHARED.glob("*") if os.environ.get("CAMPAIGN_OWN_SHM") else ():
        file.unlink(missing_ok=True)


def main() -> None:
    """Serve; a process that was forked for a fault does its work here, and ends as a program."""
    answers = os.fdopen(os.dup(1), "w")
    seed, peer, *names = json.loads(sys.argv[1])
    own = prepare(planted=any(name.startswith("planted") for name in names))
    if own:
        os.environ["CAMPAIGN_OWN_SHM"] = "1"
    print(json.dumps({"own shared memory": own}), file=answers, flush=True)
    work = serve(seed, names, answers, own, peer)
    if work is not None:
        work()


if __name__ == "__main__":
    main()
