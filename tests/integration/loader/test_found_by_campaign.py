"""What the fault campaign (tests/campaign) found: each has a test that failed before its fix."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
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
from tests.integration.loader.test_failures_of_workers import Deadly, finally_none, loader_of, nothing_left

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


def test_line_feed_in_the_name_of_a_file_is_escaped(tmp_path):
    (tmp_path / "a\nb.wav").write_bytes(b"no audio")
    with pytest.raises(DataError, match=r"/a\\nb\.wav cannot be decoded"):
        AudioFolder(tmp_path, 16000)[0]


def test_model_file_that_raises_generator_exit_is_one_sentence(tmp_path):
    (tmp_path / "mymodel.py").write_text("raise GeneratorExit")
    with pytest.raises(ModelFileError, match=r"mymodel\.py cannot be imported"):
        load_module(str(tmp_path / "mymodel.py"))


class Held:
    """Something whose deletion drops a Ctrl-C."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


def test_prefetch_raises_a_dropped_ctrl_c_at_the_next_batch():
    batches = prefetch([torch.zeros(2, 9)] * 4, "cpu", build_device(CHAIN))
    next(batches)
    held = Held()
    del held
    with pytest.raises(KeyboardInterrupt):
        next(batches)


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
