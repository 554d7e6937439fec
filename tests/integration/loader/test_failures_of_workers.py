"""A worker that dies: one clear error, immediately, nothing left behind, and training can continue."""

import contextlib
import errno
import gc
import multiprocessing
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import WorkerError
from audioaug.loader.failures_of_workers import remove_shared_memory

ROOT = Path(__file__).parents[3]
SHARED = Path("/dev/shm")
PATIENCE = 120.0
"""Seconds after which a test fails instead of hanging."""

UNDER_WAY = 8
"""Batches that two workers may have queued when one dies: two each, of this epoch and of the next."""

SENTENCES = {
    "SIGKILL": "was killed by SIGKILL. Most likely the system was out of memory",
    "SIGBUS": "was killed by SIGBUS. Most likely /dev/shm, through which workers send batches, is full",
    "SIGSEGV": "was killed by SIGSEGV. A native library crashed",
    "SIGTERM": "was killed by SIGTERM. Another process",
    "SIGXCPU": "was killed by SIGXCPU. Try num_workers=0",
}


@pytest.fixture
def interrupts_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python drop what is raised where nothing can catch it: the error may be raised while an object is deleted.

    pytest would keep that error until the test ends, and with it the iterator of the DataLoader and its pipes.
    """
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


class Deadly:
    """Forty waves; reading number 20 ends the worker by calling ``end``, if a file exists."""

    def __init__(self, end: Any, while_there: Path) -> None:
        self.end, self.while_there = end, while_there
        while_there.touch()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 20 and self.while_there.exists():
            self.end()
        return torch.ones(100), index


def loader_of(dataset: Any, **knobs: Any) -> Loader:
    plan = Plan(cut=1, num_workers=2, **knobs)
    return Loader(dataset, Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=2, device="cpu")


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no process, shared memory or open file of the block is left."""
    resource_tracker.ensure_running()  # started once by Python, and kept
    gc.collect()
    processes, memory, files = set(psutil.Process().children(recursive=True)), orphans(), open_files()
    yield
    gc.collect()
    started = set(psutil.Process().children(recursive=True)) - processes
    assert not psutil.wait_procs(list(started), timeout=PATIENCE)[1]
    assert not finally_none(lambda: orphans() - memory)
    opened = finally_none(lambda: len(open_files()) > len(files) and open_files() - files)
    assert not opened, f"opened: {sorted(opened)}"  # a thread that sends batches closes its files when it ends


def finally_none(left: Callable[[], Any]) -> Any:
    """Return what is left after ``PATIENCE``: other processes and threads may take a moment to clean up."""
    deadline = time.monotonic() + PATIENCE
    while (found := left()) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    return found


def orphans() -> set[Path]:
    """Return the shared memory (torch_PID_...) of processes that are gone."""
    return {file for file in SHARED.glob("torch_*") if not psutil.pid_exists(int(file.name.split("_")[1]))}


def open_files() -> set[tuple[str, str]]:
    """Return the number of each open file of this process, and what it is.

    When a worker dies torch opens ten temporary files to see whether it still can, and its signal of the death may come
    before Python has noted that one is open. Those do not count.
    """
    found, folder = set(), Path("/proc/self/fd")  # of Linux
    for each in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found.add((each.name, os.readlink(each)))
    return {(name, file) for name, file in found if not file.startswith(f"{tempfile.gettempdir()}/tmp")}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only for a moment if something is left behind on purpose."""
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", 0.1)


@pytest.mark.parametrize(("strategy", "stays"), [("file_descriptor", False), ("file_system", True)])
def test_shared_memory_is_removed_unless_processes_keep_theirs(strategy, stays, monkeypatch):
    with subprocess.Popen(["true"]) as ended:
        pass
    (file := SHARED / f"torch_{ended.pid}_1_1").touch()
    monkeypatch.setattr(torch.multiprocessing, "get_sharing_strategy", lambda: strategy)
    remove_shared_memory([ended])
    assert file.exists() == stays
    file.unlink(missing_ok=True)


@pytest.mark.usefixtures("impatient")
def test_nothing_left_detects_a_process():
    with pytest.raises(AssertionError), nothing_left():
        left = subprocess.Popen(["sleep", "60"])
    left.kill()
    left.wait()


@pytest.mark.usefixtures("impatient")
def test_nothing_left_detects_an_open_file():
    with pytest.raises(AssertionError, match=r"opened: .*/dev/null"), nothing_left():
        left = os.open("/dev/null", os.O_RDONLY)
    os.close(left)


@pytest.mark.usefixtures("impatient")
def test_nothing_left_detects_shared_memory():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(AssertionError), nothing_left():
        left = SHARED / f"torch_{ended.pid}_1_1"
        left.touch()
    left.unlink()


@pytest.mark.parametrize("name", SENTENCES)
def test_error_names_signal_and_likely_cause(name, tmp_path, capfd):
    with nothing_left():
        loader = loader_of(Deadly(lambda: os.kill(os.getpid(), signal.Signals[name]), tmp_path / "x"))
        with pytest.raises(WorkerError, match=r"A worker \(pid \d+\)") as caught:
            list(loader)
        assert SENTENCES[name] in str(caught.value) and "\n" not in str(caught.value)
        del loader, caught


def test_stream_that_cannot_share_its_epoch_is_one_sentence(monkeypatch):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([torch.zeros(9)])

    def share(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_0>: Success (0)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", share)
    plan = Plan(cut=1, num_workers=1, persistent_workers=True)
    with pytest.raises(WorkerError, match="Shared memory, /dev/shm, is full"):
        Loader(Stream(), Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=4, device="cpu")


def test_error_names_exit_code(tmp_path):
    with nothing_left(), pytest.raises(WorkerError, match=r"ended with exit code 3\. Try num_workers=0"):
        list(loader_of(Deadly(lambda: os._exit(3), tmp_path / "x")))


@pytest.mark.parametrize("persistent", [True, False])
def test_training_continues_with_new_workers(persistent, tmp_path):
    with nothing_left():
        loader = loader_of(
            Deadly(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path / "x"), persistent_workers=persistent
        )
        seen: list[int] = []
        with pytest.raises(WorkerError):
            seen.extend(index for _, indices in loader for index in indices.tolist())
        (tmp_path / "x").unlink()
        loader.load_state_dict(loader.state_dict())
        seen += [index for _, indices in loader for index in indices.tolist()]
        assert seen == list(range(40))
        assert len(list(loader)) == 20
        del loader


def test_shared_memory_of_a_killed_worker_is_removed(tmp_path):
    def die() -> None:  # as between torch's shm_open and shm_unlink
        (SHARED / f"torch_{os.getpid()}_1_1").write_bytes(b"batch")
        os.kill(os.getpid(), signal.SIGKILL)

    with nothing_left(), pytest.raises(WorkerError):
        list(loader_of(Deadly(die, tmp_path / "x")))


def test_killed_worker_leaves_no_temporary_folder(tmp_path, monkeypatch):
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delitem(config, "tempdir", raising=False)
    with pytest.raises(WorkerError):
        list(loader_of(Deadly(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path / "x")))
    assert [str(folder) for folder in tmp_path.glob("pymp-*")] == [config["tempdir"]]  # which is removed at exit


@pytest.mark.parametrize("persistent", [True, False])
def test_worker_killed_while_it_checks_whether_it_should_stop(persistent, tmp_path):
    def die() -> None:  # as in `done_event.is_set()`: that of multiprocessing.Event holds a lock
        frame = sys._getframe()
        while "done_event" not in frame.f_locals:
            assert frame.f_back is not None
            frame = frame.f_back
        if (lock := getattr(frame.f_locals["done_event"], "_cond", None)) is not None:
            lock.acquire()
        os.kill(os.getpid(), signal.SIGKILL)

    with nothing_left():
        loader = loader_of(Deadly(die, tmp_path / "x"), persistent_workers=persistent)
        with pytest.raises(WorkerError, match="was killed by SIGKILL"):
            list(loader)
        (tmp_path / "x").unlink()
        assert len(list(loader)) == 20
        del loader


ODD = """
import os, signal, sys, time
import numpy as np
import torch
from multiprocessing.connection import Connection
from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import WorkerError

def half_a_message(self, buffer, write=os.write):
    if len(buffer) > 5000:
        write(self._handle, bytes(buffer[: len(buffer) // 2]))
        os._exit(0) if sys.argv[2] == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    return send(self, buffer, write)

send = Connection._send

class Waves(list):
    def __getitem__(self, index):
        if index == 20 and sys.argv[2] != "orphans":
            Connection._send = half_a_message
        return torch.zeros(100)

def collate(waves):
    return {"audio": torch.stack(waves), "more": np.zeros(200_000, np.uint8)}  # more than a pipe holds

if __name__ == "__main__":
    plan = Plan(cut=1, num_workers=2, start_method=sys.argv[1])
    chain, waves = Chain([ops.Gain(p=1.0)], 16000), Waves([0] * 64)
    loader = Loader(waves, chain, plan, batch_size=2, device="cpu", collate_fn=collate)
    try:
        for step, _ in enumerate(loader):
            if step == 1 and sys.argv[2] == "orphans":
                print(*loader.workers, flush=True)
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)
    except WorkerError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("method", "ending", "said"),
    [
        ("fork", "exit", "ended before its work was done"),  # torch's signal handler does not report that
        ("forkserver", "kill", "was killed by SIGKILL"),  # there is no signal: it is not our child
    ],
)
def test_worker_that_dies_in_the_middle_of_a_message(method, ending, said, tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    command = [sys.executable, str(tmp_path / "odd.py"), method, ending]
    assert said in subprocess.check_output(command, text=True, timeout=PATIENCE, cwd=ROOT)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_if_the_training_process_is_killed(method, tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    command = [sys.executable, str(tmp_path / "odd.py"), method, "orphans"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as training:
        assert training.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in training.stdout.readline().split()]
        try:
            assert training.wait(PATIENCE) == -signal.SIGKILL and len(workers) == 2
            assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]
        finally:
            for worker in workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()


def test_errors_of_the_dataset_that_a_broken_connection_raises_too_are_its_own():
    class Truncated(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return pickle.loads(b"")

    with pytest.raises(EOFError, match=r"in __getitem__(.|\n)*pickle\.loads"):
        list(loader_of(Truncated([0] * 4)))


def test_worker_that_cannot_open_a_file_for_a_batch_is_one_sentence():
    def collate(waves: list[torch.Tensor]) -> torch.Tensor:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        return torch.stack(waves)

    chain, plan = Chain([ops.Gain(p=1.0)], 16000), Plan(cut=1, num_workers=1)
    with pytest.raises(WorkerError, match=r"^There are too many open files: .* the limit is 3\."):
        list(Loader([torch.zeros(9000)] * 4, chain, plan, batch_size=2, device="cpu", collate_fn=collate))


def test_worker_that_cannot_hand_over_a_batch_is_one_sentence():
    def fail(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    class Failing(list[int]):
        def __getitem__(self, index: Any) -> Any:
            multiprocessing.reduction.send_handle = fail  # type: ignore[attr-defined]
            return torch.zeros(9000)

    with pytest.raises(WorkerError, match=r"^A worker could not hand over a batch\. Its error is printed above\. Most"):
        list(loader_of(Failing([0] * 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # torch opens ten files to see whether it can, and leaves them
        gc.collect()


@pytest.mark.parametrize(("method", "count"), [("spawn", 1), ("forkserver", 200_000)])
def test_script_without_a_guard_is_told_where_to_put_the_training(method, count, tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch\nfrom audioaug import Chain, Loader, Plan, ops\n"
        f"plan = Plan(cut=1, num_workers=1, start_method={method!r})\n"
        f"waves = [(torch.ones(9), b'x' * {count})] * 4\n"
        "list(Loader(waves, Chain([ops.Gain()], 16000), plan, batch_size=2, device='cpu'))\n"
    )
    command = [sys.executable, str(tmp_path / "script.py")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT).stderr
    assert re.search(r'WorkerError: A worker .*so put the training under `if __name__ == "__main__":`\.\n', said)


def kill_while_training(pause: float) -> int:
    """Kill a worker some time into training; return how many batches arrived before the error."""
    others = set(psutil.Process().children())
    loader = loader_of([torch.ones(20_000)] * 40)
    batches = iter(loader)
    next(batches)
    workers = sorted(set(psutil.Process().children()) - others, key=lambda each: each.pid)
    deadline, came = time.perf_counter() + pause, -1
    with pytest.raises(WorkerError, match="was killed by SIGKILL"):
        while True:
            if came < 0 and time.perf_counter() > deadline:
                came = 0
                random.Random(pause).choice(workers).kill()
            if next(batches, None) is None:
                batches = iter(loader)
            came += came >= 0
            torch.ones(50, 50).sum()  # a training step, in which the signal may arrive as well
    return came


def rounds(count: int) -> None:
    for number in range(count):
        with nothing_left():
            assert kill_while_training(0.3 * random.Random(number).random()) <= UNDER_WAY


@pytest.mark.usefixtures("interrupts_anything")
def test_few_kills_at_random_times():
    rounds(4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("interrupts_anything")
def test_hundred_kills_at_random_times():
    rounds(100)


TRAINING = """
import signal
import torch
from audioaug import Chain, Loader, Plan, ops

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
plan = Plan(cut=1, num_workers=2)
loader = Loader([torch.ones(20_000)] * 64, Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=4, device="cpu")
while True:
    for wave in loader:
        wave.sum()
        print("step", flush=True)
"""


def interrupt_after(pause: float, folder: Path) -> None:
    """Start a training program and send Ctrl-C a while after its first step to all its processes, as a terminal does.

    Temporary files are in this folder, and none is left there.
    """
    command, pipe, environ = [sys.executable, "-c", TRAINING], subprocess.PIPE, {**os.environ, "TMPDIR": str(folder)}
    program = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        assert program.stdout is not None and program.stdout.readline() == "step\n"
        workers = psutil.Process(program.pid).children(recursive=True)
        time.sleep(pause)
        os.killpg(program.pid, signal.SIGINT)
        _, errors = program.communicate(timeout=PATIENCE)
        assert program.returncode == -signal.SIGINT and errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]
        assert not list(folder.iterdir())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


BUSY = """
import os, signal, sys, time
from pathlib import Path
import torch
from audioaug import Chain, Loader, Plan, ops

class Busy(list):
    def __getitem__(self, index):
        if index == 1:  # the worker is ended here, as between torch's shm_open and shm_unlink
            Path(f"/dev/shm/torch_{os.getpid()}_1_1").write_bytes(b"batch")
            frame = sys._getframe()
            while "index_queue" not in frame.f_locals:
                frame = frame.f_back
            while frame.f_locals["index_queue"].get() is not None:  # until torch asks the worker to end
                pass
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(600)
        return torch.zeros(9)

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # as above
plan = Plan(cut=1, num_workers=1, persistent_workers=sys.argv[2] == "persistent", start_method="fork")
loader = Loader(Busy([0] * 8), Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=1, device="cpu")

def step():
    (worker,) = loader.workers
    print(worker, flush=True)
    while not Path(f"/dev/shm/torch_{worker}_1_1").exists():
        time.sleep(0.01)

if sys.argv[1] == "interrupted":
    for _ in loader:
        step()
        os.kill(os.getpid(), signal.SIGINT)
else:
    batches = iter(loader)
    next(batches)
    step()
"""


@pytest.mark.skipif(not SHARED.exists(), reason="no /dev/shm")
@pytest.mark.parametrize(
    ("way", "workers"), [("interrupted", "new"), ("interrupted", "persistent"), ("at exit", "new")]
)
def test_worker_ended_while_it_makes_a_batch_leaves_no_shared_memory(way, workers):
    """The second Ctrl-C comes while torch waits for the worker, which it then terminates; so does Python at exit."""
    command = [sys.executable, "-c", BUSY, way, workers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    left = [file.unlink() or file for file in SHARED.glob(f"torch_{int(done.stdout)}_*")]
    assert not left and done.returncode == (-signal.SIGINT if way == "interrupted" else 0), done.stderr
    assert done.stderr.count("Traceback") == done.stderr.count("KeyboardInterrupt") == (way == "interrupted")


DROPPED = """
import os, signal, sys
import torch
from audioaug import Chain, Loader, ops

signal.signal(signal.SIGINT, signal.default_int_handler)  # as above

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

class Other:
    def __del__(self):
        raise ValueError("another thing")

for step, _ in enumerate(Loader([torch.ones(9)] * 8, Chain([ops.Gain(p=1.0)], 16000), device="cpu")):
    print(step, flush=True)
    other = Other()
    del other
    held = Held()
    del held
"""


def test_dropped_ctrl_c_ends_training_at_the_next_batch():
    done = subprocess.run([sys.executable, "-c", DROPPED], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == -signal.SIGINT and done.stdout == "0\n"
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" in done.stderr and "ValueError: another thing" in done.stderr


def interrupts(count: int, folder: Path) -> None:
    for number in range(count):
        with nothing_left():
            interrupt_after(0.3 * random.Random(number).random(), folder)


def test_few_ctrl_c_at_random_times(tmp_path):
    interrupts(2, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hundred_ctrl_c_at_random_times(tmp_path):
    interrupts(100, tmp_path)
