"""Process-wide changes: one module has them all, each has its effect, AUDIOAUG_PATCHES=off disables each of them."""

import ast
import atexit
import gc
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import audioaug
from audioaug import process
from audioaug.process import SWITCH, Interrupt, patches_enabled, skip_last_collection

PACKAGE = Path(audioaug.__file__).parent
CALLS = {"signal.signal", "gc.freeze", "gc.disable", "library.mallopt", "ForkingPickler.register", "threadpool_limits"}
ASSIGNMENTS = {"sys.excepthook", "sys.unraisablehook", "threading.excepthook", "sys.stdout", "sys.stderr"}

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such limits")


def run(code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a new process and return what it prints."""
    # With an empty cache folder, imports ask for so much memory that glibc keeps some by itself.
    inherited = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.check_output(command, text=True, env=inherited | environment, timeout=500)


# One module


def changes(code: str) -> set[str]:
    """Return the process-wide changes in a module's code: calls and assignments."""
    nodes = list(ast.walk(ast.parse(code)))
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assigned = {
        ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return (called & CALLS) | (assigned & ASSIGNMENTS)


def test_no_other_module_changes_the_process():
    others = [file for file in PACKAGE.rglob("*.py") if file.name != "process.py"]
    found = {str(file.relative_to(PACKAGE)): names for file in others if (names := changes(file.read_text()))}
    assert not found


@pytest.mark.parametrize("line", ["signal.signal(2, f)", "a, sys.excepthook = b, f", "gc.freeze()"])
def test_a_planted_change_is_found(line):
    assert len(changes(f"import gc, signal, sys\ndef f(): ...\n{line}\n")) == 1


def test_the_documentation_lists_every_function():
    functions = [node.name for node in ast.parse(Path(process.__file__).read_text()).body if hasattr(node, "name")]
    public = {name for name in functions if not name.startswith("_")}
    helpers = {"patches_enabled", "raise_dropped_interrupt", "raise_postponed_death", "keep_freed_memory"}
    assert {name for name in public - helpers if f"``{name}``" not in (process.__doc__ or "")} == set()


# One switch


@pytest.mark.parametrize(
    ("value", "enabled"),
    [(None, True), ("", True), ("1", True), ("on", True), ("0", False), ("off", False), (" OFF ", False)],
)
def test_values_of_the_switch(value, enabled, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    assert patches_enabled() is enabled


TRAINING = """
import gc, json, multiprocessing, os, signal, sys, time
import torch
from audioaug import Chain, Loader, Plan, ops

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it
frozen = gc.get_freeze_count()  # Python 3.12 freezes a few hundred objects when it starts

class State:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        assert gc.isenabled()
        state = {
            "start_worker: SIGINT": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
            "start_worker: excepthook": sys.excepthook is not sys.__excepthook__,
            "start_worker: gc": gc.get_freeze_count() > frozen,
        }
        return {"audio": torch.ones(100), **state}

def train():
    return [batch for _ in range(2) for batch in loader]

plan = Plan(cut=1, num_workers=2, persistent_workers=sys.argv[1] == "persistent", start_method="fork")
loader = Loader(State(), Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=2, device="cpu")
batches = train()
found = {name: bool(value.all()) for name, value in batches[0].items() if name != "audio"}
found["explain_worker_deaths"] = not signal.getsignal(signal.SIGCHLD).__module__.startswith("torch.")
found["listen_for_interrupts"] = sys.unraisablehook is not sys.__unraisablehook__
found["share_temporary_folder"] = "tempdir" in multiprocessing.current_process()._config
failed = False
try:
    for step, batch in enumerate(loader):
        if step == 0:
            worker = multiprocessing.active_children()[0]
            worker.kill()
            time.sleep(60)  # in which torch's signal handler raises; join would hide the death from it
except RuntimeError as error:  # a WorkerError, or torch's own from its signal handler
    failed = "killed by" in str(error)
later = train()
print(json.dumps([found, len(batches), failed, len(later)]))
"""


@pytest.mark.parametrize("lifetime", ["persistent", "one epoch"])
@pytest.mark.parametrize("switch", ["on", "off"])
def test_training_with_the_switch_on_or_off(switch, lifetime):
    found, batches, failed, later = json.loads(run(TRAINING, lifetime, **{SWITCH: switch}).splitlines()[-1])
    assert len(found) == 6 and set(found.values()) == {switch == "on"}, found
    assert batches == later == 8 and failed


DROPPED = """
import os, signal
import torch
from audioaug import Chain, Loader, ops

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

for step, _ in enumerate(Loader([torch.ones(9)] * 4, Chain([ops.Gain(p=1.0)], 16000), device="cpu")):
    print(step, flush=True)
    held = Held()
    del held
"""


def test_switched_off_an_interrupt_that_python_drops_is_lost():
    assert run(DROPPED, **{SWITCH: "off"}).split() == ["0", "1", "2", "3"]


IN_TEMPFILE = """
import os, signal, tempfile
from audioaug.process import explain_worker_deaths, raise_postponed_death

def handler(number, frame):
    raise RuntimeError("killed")

def open_while_a_worker_dies(*arguments):
    file = opened(*arguments)
    signal.raise_signal(signal.SIGCHLD)
    return file

signal.signal(signal.SIGCHLD, handler)
explain_worker_deaths(lambda: None)
opened, os.open = os.open, open_while_a_worker_dies
with tempfile.NamedTemporaryFile():
    os.open = opened
try:
    raise_postponed_death()
except RuntimeError as error:
    print(error, os.listdir(tempfile.gettempdir()))
"""


def test_the_error_about_a_death_is_postponed_until_a_temporary_file_can_be_removed(tmp_path):
    assert run(IN_TEMPFILE, TMPDIR=str(tmp_path)) == "killed []\n"


def test_switched_off_interrupt_installs_nothing_and_ctrl_c_still_raises(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with Interrupt() as interrupt:
        assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
        interrupt.check()
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


@pytest.mark.parametrize(
    ("switch", "imported", "expected"), [("on", False, ["frozen"]), ("on", True, []), ("off", False, [])]
)
def test_the_last_collection_is_skipped_unless_switched_off_or_triton_would_complain(
    switch, imported, expected, monkeypatch
):
    registered, frozen = list[Any](), list[str]()
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("frozen"))
    monkeypatch.setenv(SWITCH, switch)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    if imported:
        monkeypatch.setitem(sys.modules, "triton", sys)
    skip_last_collection()
    for each in registered:
        each()
    assert frozen == expected


def test_switched_off_no_temporary_folder_is_created(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.delitem(config, "tempdir", raising=False)
    process.share_temporary_folder()
    assert "tempdir" not in config


# Memory

KEPT = """
import sys
import numpy as np, psutil
from audioaug.process import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
before = psutil.Process().memory_info().rss
block = np.ones(16_000_000)
del block
print(psutil.Process().memory_info().rss - before)
"""

FAULTS = """
import resource, torch
from audioaug.process import keep_some_freed_memory

def faults_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        batches = [torch.ones(2_000_000) for _ in range(5)]
        del batches
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20

keep_some_freed_memory()
faults_of_a_batch()
print(faults_of_a_batch())
"""


@on_glibc
def test_a_worker_keeps_freed_memory_unless_switched_off():
    assert float(run(KEPT, "keep")) > 100e6
    assert float(run(KEPT, "do nothing")) < 20e6
    assert float(run(KEPT, "keep", **{SWITCH: "off"})) < 20e6


@on_glibc
def test_a_batch_reuses_the_memory_of_the_previous_one():
    assert float(run(FAULTS)) < 100  # of 10,000


@pytest.mark.parametrize(("switch", "sizes"), [("on", [process.LARGEST_KEPT_BLOCK]), ("off", [])])
def test_a_large_block_is_allocated_once_unless_switched_off(switch, sizes, monkeypatch):
    allocated: list[int] = []
    monkeypatch.setattr(torch, "empty", lambda size, dtype: allocated.append(size))
    monkeypatch.setenv(SWITCH, switch)
    process.keep_some_freed_memory.cache_clear()
    process.keep_some_freed_memory()
    process.keep_some_freed_memory()
    assert allocated == sizes


@on_glibc
def test_limits_of_the_user_are_kept():
    limits = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    assert float(run(FAULTS, **limits)) > 1000
