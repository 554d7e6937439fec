"""Workers end with their loader; a dead worker is an error, not a hang; objects that cannot be pickled are named."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import DataError
from audioaug.loader.pickling import MOST_TENSORS
from audioaug.loader.pipeline import Pipeline
from audioaug.loader.sampling import EpochSlice, Position

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0
"""Seconds after which a test fails instead of hanging."""

NO_HURRY = "torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL"
"""Seconds that torch waits for a worker before it terminates it. With a long wait, exit code 0 means: asked to end."""


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NO_HURRY, PATIENCE / 4)


def loader_of(workers: int, **knobs: Any) -> Loader:
    chain = Chain([ops.Gain(p=1.0)], sample_rate=16000)
    plan = Plan(cut=1, num_workers=workers, **knobs)
    return Loader([torch.ones(100)] * 400, chain, plan, batch_size=2, device="cpu")


class Watch:
    """Tracks the workers that were started since; as a context, checks that all of them were asked to end."""

    def __init__(self) -> None:
        gc.collect()
        self.before = set(multiprocessing.active_children())
        self.started: list[multiprocessing.Process] = []

    def look(self) -> None:
        self.started = list(set(multiprocessing.active_children()) - self.before)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        assert len(self.started) > 0
        for worker in self.started:
            worker.join(PATIENCE)
        assert {worker.exitcode for worker in self.started} == {0}


@pytest.mark.parametrize("persistent", [True, False])
def test_deleting_a_loader_mid_epoch_ends_its_workers(persistent):
    with Watch() as watch:
        loader = loader_of(2, persistent_workers=persistent)
        batches = iter(loader)
        next(batches)
        watch.look()
        assert len(watch.started) == 2
        del batches, loader


def test_loader_in_reference_cycle_ends_its_workers():
    with Watch() as watch:
        loader = loader_of(2)
        loader.itself = loader  # type: ignore[attr-defined]
        for _ in loader:
            pass
        watch.look()
        del loader
        gc.collect()


def test_closed_pipeline_starts_new_workers():
    pipeline = Pipeline(loader_of(0)._config, Plan(cut=1, num_workers=2))
    with Watch() as watch:
        assert pipeline.source.select(EpochSlice(Position(0))) == 0
        assert len(list(pipeline.worker_batches())) == 200
        watch.look()
        pipeline.close()
    pipeline.source.select(EpochSlice(Position(1)))
    assert len(list(pipeline.worker_batches())) == 200


def test_exception_in_training_loop_ends_workers():
    def train(watch: Watch) -> None:
        for _ in loader_of(2):
            watch.look()
            raise ZeroDivisionError

    with Watch() as watch, contextlib.suppress(ZeroDivisionError):
        train(watch)


def test_workers_ignore_ctrl_c():
    with Watch() as watch:
        batches = iter(loader_of(2))
        next(batches), next(batches)  # both have started
        watch.look()
        for worker in watch.started:
            os.kill(worker.pid, signal.SIGINT)
        assert len(list(batches)) == 198
        del batches


TRAINING = """
import multiprocessing, signal
import torch
from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import DataError

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
chain = Chain([ops.Gain(p=1.0), ops.Reverse(p=0.5)], sample_rate=16000)
plan = Plan(cut=1, num_workers=2, start_method="fork")
# A worker that is killed between epochs is replaced, so that training would go on.
dataset = [(torch.ones(1, 4000), 0)] * (64 if {once} else 1_000_000)
loader = Loader(dataset, chain, plan, batch_size=4, device="cpu")
model = torch.nn.Linear(4000, 1)
for step, (wave, label) in enumerate(loader):
    model(wave).mean().backward()
    if step == 2:
        print("ready", flush=True)
        workers = multiprocessing.active_children()
"""

EXIT_CODES = """
import atexit
import torch
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 30.0
atexit.register(lambda: print(*(worker.exitcode for worker in workers)))  # the first to be registered runs last
"""

PINNED = """
# What torch does for pinned memory and persistent workers, but only where there is a GPU: it waits for them at exit.
import atexit
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Iterator

plain = Iterator.__init__

def as_if_pinned(self, loader):
    plain(self, loader)
    if hasattr(self, "_register_persistent_workers_atexit"):  # torch 2.14
        return self._register_persistent_workers_atexit()
    for worker in self._workers:
        atexit.register(Iterator._clean_up_worker, worker)

Iterator.__init__ = as_if_pinned
"""


@contextlib.contextmanager
def script(text: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a process group of its own, until it says "ready"."""
    command = [sys.executable, "-c", text]
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def test_ctrl_c_ends_training_and_workers_silently():
    with script(TRAINING.format(once=False)) as program:
        workers = psutil.Process(program.pid).children(recursive=True)
        assert len(workers) == 2
        os.killpg(program.pid, signal.SIGINT)  # a terminal sends it to the whole group
        _, errors = program.communicate(timeout=PATIENCE)
        assert program.returncode == -signal.SIGINT
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert not [frame for frame in ("_worker_loop", "_bootstrap", "start_worker") if frame in errors]
        assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]


def test_killed_worker_raises_instead_of_hanging():
    with script(TRAINING.format(once=False)) as program:
        workers = psutil.Process(program.pid).children(recursive=True)
        workers[0].kill()
        _, errors = program.communicate(timeout=PATIENCE)
        assert program.returncode == 1
        assert re.search(r"WorkerError: A worker \(pid \d+\) was killed by SIGKILL\. Most likely", errors)
        assert errors.count("Traceback") == 1, errors
        assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]


CLOSER = """
import time

class Closer:
    def __del__(self):
        workers[0].kill()
        time.sleep(1.0)
"""


def test_worker_that_dies_while_an_object_is_deleted_is_reported_once():
    with script(CLOSER + TRAINING.format(once=False) + "        Closer()") as program:
        _, errors = program.communicate(timeout=PATIENCE)
        assert program.returncode == 1
        assert re.search(r"WorkerError: A worker \(pid \d+\) was killed by SIGKILL\. Most likely", errors)
        assert errors.count("Traceback") == 1, errors


HALFWAY = """
import torch, audioaug

clips = [torch.zeros(1, 400) for _ in range(64)]
chain = audioaug.Chain([audioaug.ops.Gain(p=1.0)], 16000)
batches = iter(audioaug.Loader(clips, chain, audioaug.Plan(cut=1, num_workers={workers}), batch_size=4))
next(batches)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_that_ends_in_the_middle_of_an_epoch_prints_nothing(workers):
    command = [sys.executable, "-c", HALFWAY.format(workers=workers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_workers_end_at_exit():
    with script(EXIT_CODES + PINNED + TRAINING.format(once=True)) as program:
        codes, errors = program.communicate(timeout=PATIENCE)
        assert program.returncode == 0 and errors == "" and codes.split() == ["0", "0"]


# What cannot be pickled


class Holder:
    """A dataset that holds an object."""

    def __init__(self, held: Any) -> None:
        self.held, self.itself = held, self

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(400)


def louder(samples: Any, sample_rate: int) -> Any:
    return 2 * samples


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("held", "transform", "collate_fn", "sentence"),
    [
        ([{"read": lambda: 1}], louder, None, r"`dataset\.held\[0\]\['read'\]` \(.*<lambda>\) does not pickle \("),
        (threading.Lock(), louder, None, r"`dataset\.held` \(\w+\) does not pickle \("),
        (
            None,
            lambda samples, sample_rate: samples,
            None,
            r"`chain\.ops\[0\]\.transform` \(.*<lambda>\) does not pickle",
        ),
        (None, louder, lambda examples: torch.stack(examples), r"`collate_fn` \(.*<lambda>\) does not pickle \("),
    ],
    ids=["dataset", "lock", "chain", "collate_fn"],
)
def test_unpicklable_object_is_named(method, held, transform, collate_fn, sentence):
    plan = Plan(cut=1, num_workers=2, start_method=method)
    chain = Chain([ops.Lambda(transform=transform, p=1.0)], 16000)
    loader = Loader(Holder(held), chain, plan, device="cpu", collate_fn=collate_fn)
    with pytest.raises(DataError, match=sentence) as caught:
        list(loader)
    assert str(caught.value).endswith(
        f"but workers started by {method!r} receive a pickled copy. Define it at the top level of a module, or give a "
        "Plan with start_method='fork' or num_workers=0."
    )
    assert len(list(Loader(Holder(held), chain, Plan(cut=1), device="cpu", collate_fn=collate_fn))) == 4


class Collating:
    """A ``collate_fn`` that holds tensors."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors

    def __call__(self, examples: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(examples)


@pytest.mark.parametrize(("count", "more"), [(MOST_TENSORS, 0), (244, 0), (250, 0), (300, 0), (200, 100)])
def test_too_many_tensors_for_a_fork_server_are_counted(count, more):
    tensors = [torch.ones(400) for _ in range(count)]
    chain, plan = Chain([ops.Gain(p=1.0)], 16000), Plan(cut=1, num_workers=1, start_method="forkserver")
    collate_fn = Collating([torch.ones(9) for _ in range(more)])
    loader = Loader(tensors * 2, chain, plan, batch_size=count, device="cpu", collate_fn=collate_fn)
    if count + more <= MOST_TENSORS:
        assert len(list(loader)) == 2  # each of them is sent once
        return
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value) == (
        f"`dataset` holds {count} tensors, and a fork server can pass on 240 in all, each as an open file. Stack them "
        "into one tensor, or give a Plan with start_method='fork' or num_workers=0."
    )


IN_A_NOTEBOOK = """
import torch
import audioaug
class Clips(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(400)

chain = audioaug.Chain([audioaug.ops.Gain()], 16000)
for batch in audioaug.Loader(Clips(), chain, audioaug.Plan(num_workers=1, start_method={method!r}), device="cpu"):
    print(batch.shape)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_dataset_of_a_notebook_is_named(method):
    done = subprocess.run(
        [sys.executable, "-"], input=IN_A_NOTEBOOK.format(method=method), capture_output=True, text=True
    )
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.splitlines()[-1].endswith(
        f"DataError: `dataset` (Clips) does not pickle (Clips is defined in a notebook or an interactive session), but "
        f"workers started by {method!r} receive a pickled copy. Define it at the top level of a module, or give a Plan "
        "with start_method='fork' or num_workers=0."
    )
