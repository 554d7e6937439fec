"""Faults that violate each verdict on purpose: the campaign must report them."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.campaign.case import Case, check_all, check_once, check_sentence, indices
from tests.campaign.faults import Attack, Violation, kind

MAP = ["Loader, map"]


@kind("planted hang", MAP, limit=3)
def hang(case: Case) -> str:
    threading.Event().wait(600)
    return "never"


@kind("planted traceback", MAP)
def traceback(case: Case) -> str:
    raise KeyError("planted")


@kind("planted traceback on stderr", MAP)
def traceback_on_stderr(case: Case) -> str:
    print("Traceback (most recent call last):", file=sys.stderr)
    return "delivered"


@kind("planted sentence", MAP)
def sentence(case: Case) -> str:
    from audioaug.errors import DataError

    return check_sentence(DataError("It is broken."), "clip 7.wav")


@kind("planted process", MAP)
def process(case: Case) -> str:
    subprocess.Popen(["sleep", "600"])
    return "delivered"


@kind("planted orphan", MAP)
def orphan(case: Case) -> str:
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    return "delivered"


@kind("planted file", MAP)
def file(case: Case) -> str:
    (case.folder / "tmp" / "left").touch()
    return "delivered"


@kind("planted open file", MAP)
def open_file(case: Case) -> str:
    os.open("/dev/null", os.O_RDONLY)
    return "delivered"


@kind("planted thread", MAP)
def thread(case: Case) -> str:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return "delivered"


@kind("planted shared memory", MAP)
def shared_memory(case: Case) -> str:
    Path("/dev/shm/planted").touch()
    return "delivered"


@kind("planted lost example", MAP)
def lost(case: Case) -> str:
    check_all(indices(case.batches())[1:])
    return "delivered"


@kind("planted double example", MAP)
def double(case: Case) -> str:
    found = indices(case.batches())
    check_once([*found, found[0]], range(100))
    return "delivered"


@kind("planted exit code", MAP)
def exit_code(case: Case) -> str:
    os._exit(7)


@kind("planted next run", MAP)
def next_run(case: Case) -> str:
    check_all([], verdict="next run")
    return "delivered"


def expects_130(case: Case, ending: object) -> str:
    code = getattr(ending, "code", None)
    if code != 130:
        raise Violation("exit code", str(code))
    return "interrupted"


kind("planted program", MAP, attack=Attack(lambda case, pid: None, expects_130))(lambda case: sys.exit(0))
