"""What the fault campaign (tests/campaign) found: each has a test that failed before its fix."""

import errno
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import train
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from audioaug import AudioFolder, Chain, Loader, Monitor, Plan, build_device, ops, prefetch
from audioaug.advise.model_file import load_module
from audioaug.errors import DataError, ModelFileError, OutputError, UsageError, WorkerError
from audioaug.loader.failures_of_examples import is_unreadable
from tests.integration.loader.test_failures_of_workers import Deadly, finally_none, loader_of, nothing_left

DEMO = Path(__file__).parents[3] / "datasets" / "demo"
CHAIN = Chain([ops.Gain(p=1.0)], 16000)


@pytest.fixture(autouse=True)
def hook_of_its_own(monkeypatch):
    """Let each test wrap ``sys.unraisablehook`` anew: others have put the one before back."""
    monkeypatch.setattr("audioaug.process._listening", threading.Event())
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)


@pytest.mark.parametrize(
    ("wave", "what"),
    [
        (torch.zeros(9, device="meta"), "on meta"),
        (torch.zeros(9).to_sparse(), "torch.sparse_coo"),
        (torch.zeros(9, dtype=torch.bfloat16), "torch.bfloat16"),
    ],
)
def test_tensor_that_numpy_cannot_hold_is_a_data_error(wave, what):
    with pytest.raises(DataError, match=f"Expected the audio of an example to be a dense .*{what}"):
        list(Loader([torch.zeros(9), wave], CHAIN, Plan(cut=1), device="cpu"))


ODD_STATES: dict[str, tuple[Any, str]] = {
    "None": (None, "Expected the state of a Loader, .* got a NoneType"),
    "list": ([1], "got a list"),
    "negative": ({"batch": -2}, "has batch=-2, but expected a whole number from 0"),
    "text": ({"epoch": "x"}, "has epoch='x'"),
    "huge": ({"epoch": 10**400}, "has epoch=1000"),
    "boolean": ({"offset": True}, "has offset=True"),
    "sizes": ({"batch": 1, "batch_size": None}, "has batch_size=None, but expected a whole number from 1"),
}


@pytest.mark.parametrize("name", ODD_STATES)
def test_state_that_is_none_is_a_usage_error(name):
    change, message = ODD_STATES[name]
    loader = Loader([torch.zeros(9)] * 8, CHAIN, batch_size=2, device="cpu")
    with pytest.raises(UsageError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change} if isinstance(change, dict) else change)


@pytest.mark.parametrize("persistent", [True, False])
def test_worker_that_ends_with_exit_code_0_is_reported_and_replaced(persistent, tmp_path):
    with nothing_left():
        loader = loader_of(Deadly(lambda: os._exit(0), tmp_path / "x"), persistent_workers=persistent)
        with pytest.raises(WorkerError, match=r"^A worker \(pid \d+\) ended before its work was done\."):
            list(loader)
        (tmp_path / "x").unlink()
        assert sum(len(indices) for _, indices in loader) == 40
        del loader


def test_persistent_worker_that_ended_between_epochs_is_replaced(tmp_path):
    loader = loader_of([(torch.zeros(9), k) for k in range(40)], persistent_workers=True)
    assert len(list(loader)) == 20
    worker = next(each for each in multiprocessing.active_children() if each.pid in loader.workers)
    worker.terminate()  # torch's handler of SIGTERM exits with code 0 if the parent process sends it
    worker.join(60)
    assert len(list(loader)) == 20


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_in_collate_fn_does_not_end_the_epoch(workers):
    def collate(examples: list[Any]) -> Any:
        raise StopIteration

    with pytest.raises(RuntimeError, match="collate_fn raised StopIteration"):
        list(Loader([torch.zeros(9)] * 4, CHAIN, Plan(cut=1, num_workers=workers), device="cpu", collate_fn=collate))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_in_the_dataset_does_not_end_the_epoch(workers, on_error):
    class Ending(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            raise StopIteration

    plan = Plan(cut=1, num_workers=workers)
    with pytest.raises(RuntimeError, match="the dataset, or the key function, raised StopIteration"):
        list(Loader(Ending([0] * 4), CHAIN, plan, device="cpu", on_error=on_error))


def test_line_feed_in_the_name_of_a_file_is_escaped(tmp_path):
    (tmp_path / "a\nb.wav").write_bytes(b"no audio")
    with pytest.raises(DataError, match=r"/a\\nb\.wav cannot be decoded"):
        AudioFolder(tmp_path, 16000)[0]


def test_model_file_that_raises_generator_exit_is_one_sentence(tmp_path):
    (tmp_path / "mymodel.py").write_text("raise GeneratorExit")
    with pytest.raises(ModelFileError, match=r"mymodel\.py cannot be imported"):
        load_module(str(tmp_path / "mymodel.py"))


def test_limit_of_memory_in_a_worker_is_one_sentence_and_leaves_no_file(tmp_path):
    def collate(examples: list[Any]) -> Any:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, before[1]))
        try:
            return torch.empty(0).new_empty(2**23).share_memory_()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    with nothing_left(), pytest.raises(WorkerError, match="Too little memory is left for a batch"):
        loader = Loader([torch.zeros(9)] * 4, CHAIN, Plan(cut=1, num_workers=1), device="cpu", collate_fn=collate)
        list(loader)


@pytest.fixture
def next_file() -> Iterator[int]:
    """The number of the next file that is opened: all numbers below are in use, which the limit counts from."""
    gc.collect()
    highest, filled = max(map(int, os.listdir("/proc/self/fd"))), list[int]()
    while (file := os.open(os.devnull, os.O_RDONLY)) < highest:
        filled.append(file)
    os.close(file)
    yield file
    for each in filled:
        os.close(each)


def test_too_many_open_files_are_one_sentence(next_file):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    loader = Loader([torch.zeros(9000)] * 40, CHAIN, Plan(cut=1, num_workers=1), batch_size=2, device="cpu")
    used = next_file
    for spare, held in ((1, []), (12, [])):  # no worker can be started; batches cannot be received
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, before[1]))
        try:
            with pytest.raises(WorkerError, match=f"too many open files: .* the limit is {used + spare}"):
                for batch in loader:
                    held.append(batch)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list(loader)) == 20


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_example_is_left_out_for_too_many_open_files(number):
    assert not is_unreadable(OSError(number, os.strerror(number), "a.wav"))
    assert is_unreadable(OSError(errno.EIO, os.strerror(errno.EIO), "a.wav"))


def test_no_file_is_left_out_for_too_many_open_files(next_file):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    loader = Loader(AudioFolder(DEMO / "odd", 16000, 0.1), CHAIN, device="cpu", on_error="skip")
    assert len(list(loader)) == 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, before[1]))
    try:
        with pytest.raises(UsageError, match=r"^/.* cannot be read: there are too many open files\. Raise the limit"):
            list(loader)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list(loader)) == 3 and not loader.skipped


STOPPED = """
import os, signal, torch
from audioaug import Chain, Loader, Plan, ops

class Stopping(list):
    def __getitem__(self, index):
        if index == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.zeros(9)

plan = Plan(cut=1, num_workers=1, prefetch_factor=1, start_method="fork")
loader = Loader(Stopping([0] * 8), Chain([ops.Gain()], 16000), plan, batch_size=1, device="cpu")
for _ in loader:
    (worker,) = loader.workers
    while open(f"/proc/{worker}/stat").read().split()[2] != "T":
        pass
    break
"""


def test_stopped_worker_does_not_keep_python_from_exiting():
    subprocess.run([sys.executable, "-c", STOPPED], check=True, timeout=60)


WAITING = """
import os, signal, subprocess, torch
from audioaug import Chain, Loader, Plan, ops

torch.set_num_threads(1)  # or the signal may be delivered to another thread
signal.signal(signal.SIGINT, signal.default_int_handler)
plan = Plan(cut=1, num_workers=1, persistent_workers=True)
loader = Loader([torch.zeros(9)] * 8, Chain([ops.Gain()], 16000), plan, device="cpu")
list(loader)
(worker,) = loader.workers
os.kill(worker, signal.SIGSTOP)
with subprocess.Popen(["sh", "-c", f"sleep 1; kill -INT {os.getpid()}; sleep 10; kill -CONT {worker}"]):
    try:
        list(loader)
    except KeyboardInterrupt:
        print("interrupted", open(f"/proc/{worker}/stat").read().split()[2])
"""


def test_ctrl_c_ends_the_wait_for_a_stopped_persistent_worker():
    found = subprocess.run([sys.executable, "-c", WAITING], check=True, timeout=90, stdout=subprocess.PIPE, text=True)
    assert found.stdout.split() == ["interrupted", "T"]  # while the worker is stopped


class Held:
    """Something whose deletion drops a Ctrl-C."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


def test_dropped_ctrl_c_does_not_end_a_much_later_loop(monkeypatch):
    batches = prefetch([torch.zeros(2, 9)] * 4, "cpu", build_device(CHAIN))
    next(batches)
    held = Held()
    del held
    batches.close()  # before the next batch
    monkeypatch.setattr("audioaug.process.LATE", 0.0)
    assert len(list(prefetch([torch.zeros(2, 9)] * 4, "cpu", build_device(CHAIN)))) == 4


DIES_IN_PUT = """
import multiprocessing, sys, threading, time, torch
from audioaug import Chain, Loader, Plan, build_device, ops, prefetch

chain, start, killed = Chain([ops.Gain(p=1.0)], 16000), threading.Thread.start, []

def start_and_kill(self):
    start(self)
    if not multiprocessing.parent_process() and self.name == "QueueFeederThread" and not killed:
        killed.append(multiprocessing.active_children()[0])
        killed[0].kill()
        time.sleep(1)  # in which torch's signal handler would raise

dataset = [torch.zeros(9)] * 40
multiprocessing.set_start_method("fork")
if sys.argv[1] == "Loader":
    batches = Loader(dataset, chain, Plan(cut=1, num_workers=2, persistent_workers=True), batch_size=2, device="cpu")
else:
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=2)
    batches = prefetch(loader, "cpu", build_device(chain))
threading.Thread.start = start_and_kill
try:
    list(batches)
except RuntimeError as error:
    print(type(error).__name__, "killed by" in str(error))
del batches
deadline = time.monotonic() + 20
while len(threading.enumerate()) > 1 and time.monotonic() < deadline:
    time.sleep(0.1)
print(threading.enumerate()[1:])
"""


@pytest.mark.parametrize(("target", "error"), [("Loader", "WorkerError"), ("prefetch", "RuntimeError")])
def test_worker_that_dies_while_its_queue_is_filled_leaves_no_thread(target, error):
    output = subprocess.check_output([sys.executable, "-c", DIES_IN_PUT, target], text=True, timeout=120)
    assert output.splitlines() == [f"{error} True", "[]"]


def test_prefetch_raises_a_dropped_ctrl_c_at_the_next_batch():
    batches = prefetch([torch.zeros(2, 9)] * 4, "cpu", build_device(CHAIN))
    next(batches)
    held = Held()
    del held
    with pytest.raises(KeyboardInterrupt):
        next(batches)


def test_prefetch_prefers_a_dropped_ctrl_c_to_torchs_error():
    def dying() -> Any:
        yield torch.zeros(2, 9)
        held = Held()
        del held
        raise RuntimeError("DataLoader worker (pid(s) 1) exited unexpectedly")

    with pytest.raises(KeyboardInterrupt):
        list(prefetch(dying(), "cpu", build_device(CHAIN)))


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``: a shell lets what it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_prefetch_raises_ctrl_c_if_torchs_error_takes_its_place():
    def dying() -> Any:
        yield torch.zeros(2, 9)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(9)
        finally:  # as torch's handler of a worker's death, while Ctrl-C is on its way
            raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")

    with pytest.raises(KeyboardInterrupt):
        list(prefetch(dying(), "cpu", build_device(CHAIN)))


GARBAGE = """
import gc, os, torch
from audioaug import Chain, Loader, Plan, ops

class Garbage:
    def __del__(self):
        print("collected in", "worker" if os.getpid() != parent else "training", flush=True)

parent, chain = os.getpid(), Chain([ops.Gain()], 16000)
loader = Loader([torch.zeros(9)] * 4, chain, Plan(cut=1, num_workers=1, start_method="fork"), device="cpu")
os.register_at_fork(before=lambda: made.append(Garbage()) or setattr(made[0], "itself", made.pop()))
os.register_at_fork(after_in_child=lambda: [[k] for k in range(100_000)])
made = []
list(loader)
gc.collect()
"""


def test_worker_collects_no_garbage_of_training():
    found = subprocess.run([sys.executable, "-c", GARBAGE], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert set(found.stdout.splitlines()) == {"collected in training"}


@pytest.mark.filterwarnings("error")
def test_iterator_whose_workers_could_not_be_started_is_deleted_silently():
    list(Loader([torch.zeros(9)] * 4, CHAIN, device="cpu"))
    half_made = object.__new__(_MultiProcessingDataLoaderIter)
    del half_made  # pytest makes a warning of what torch prints
    gc.collect()


ORPHAN = """
import multiprocessing, os, signal, sys, time
from audioaug.process import start_worker

def work():
    while os.getppid() == parent:
        time.sleep(0.01)
    start_worker(0)
    time.sleep(10)
    open(sys.argv[1], "w").close()

parent = os.getpid()
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
print(process.pid, flush=True)
os.kill(parent, signal.SIGKILL)
"""


def test_worker_ends_if_training_ended_while_it_started(tmp_path):
    command = [sys.executable, "-c", ORPHAN, str(tmp_path / "survived")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
    assert not finally_none(lambda: psutil.pid_exists(worker) and psutil.Process(worker).status() != "zombie")
    assert not (tmp_path / "survived").exists()


def test_tensorboard_folder_that_cannot_be_made_is_an_output_error(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot write to .*file/runs: Not a directory\."):
        Monitor([], device="cpu", live=False, tensorboard=tmp_path / "file" / "runs")


ARGUMENTS = ("--device", "cpu", "--examples", "8", "--batch-size", "4", "--epochs", "1", "--checkpoint")


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_train_refuses_a_file_that_is_no_checkpoint(content, tmp_path, capsys):
    (tmp_path / "c.pt").write_bytes(content)
    assert train.main([*ARGUMENTS, str(tmp_path / "c.pt"), "--resume"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith(f"error: --resume: {tmp_path}/c.pt is no checkpoint of this program") and said.count("\n") == 1
    )


def test_train_says_that_a_checkpoint_cannot_be_written(tmp_path, capsys, monkeypatch):
    def save(state: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 54528 vs 54424")

    monkeypatch.setattr(torch, "save", save)
    assert train.main([*ARGUMENTS, str(tmp_path / "c.pt")]) == 2
    assert "error: Cannot write" in capsys.readouterr().err and not list(tmp_path.iterdir())
