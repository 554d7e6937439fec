"""The training program: real updates, a stop and a resume in mid-epoch, larger batches in parts, what it writes."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import train
from torch import nn

from audioaug import Plan
from audioaug.loader.sampling import Position
from tests.integration.loader.test_failures_of_workers import PATIENCE, nothing_left

ROOT = Path(__file__).parents[3]

ARGUMENTS = ("--device", "cpu", "--examples", "20", "--batch-size", "4", "--epochs", "2")
"""Two epochs of five updates."""


def run(path: Path, *more: str) -> int:
    return train.main([*ARGUMENTS, "--checkpoint", str(path), *more])


def state_of(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def assert_same_weights(found: Any, expected: Any) -> None:
    assert sorted(found["model"]) == sorted(expected["model"])
    for name, weights in expected["model"].items():
        assert torch.equal(found["model"][name], weights), name


@pytest.fixture
def press(monkeypatch):
    """Let Ctrl-C be pressed in the middle of some update."""

    def after(updates: int) -> None:
        plain = train.Training.update

        def update(self: Any, batches: Any) -> Any:
            if self.updates == updates:
                os.kill(os.getpid(), signal.SIGINT)
            return plain(self, batches)

        monkeypatch.setattr(train.Training, "update", update)

    yield after
    monkeypatch.undo()


@pytest.mark.parametrize("more", [(), ("--accumulate", "2", "--precision", "bf16")], ids=["plain", "accumulated"])
def test_a_run_that_was_stopped_in_mid_epoch_ends_with_the_same_weights(more, tmp_path, press, capsys):
    plan = tmp_path / "plan.json"
    Plan(cut=4, num_workers=1).save(plan)
    assert run(tmp_path / "whole.pt", *more) == 0
    whole = state_of(tmp_path / "whole.pt")
    press(whole["updates"] // 2)
    assert run(tmp_path / "parts.pt", *more) == 130
    stopped = state_of(tmp_path / "parts.pt")
    assert stopped["updates"] == whole["updates"] // 2 + 1
    place = Position(stopped["loader"]["epoch"], stopped["loader"]["batch"])
    assert place == (Position(1, 1) if not more else Position(1, 2))
    assert "--resume continues from the checkpoint" in capsys.readouterr().err
    assert run(tmp_path / "parts.pt", "--resume", *more) == 0
    resumed = state_of(tmp_path / "parts.pt")
    assert_same_weights(resumed, whole)
    assert resumed["updates"] == whole["updates"] and resumed["reached"] == whole["reached"]
    with pytest.raises(AssertionError):
        assert_same_weights(stopped, whole)


def test_an_epoch_whose_last_update_was_before_the_stop_has_no_loss_afterwards(tmp_path, press, capsys):
    press(4)
    assert run(tmp_path / "parts.pt") == 130
    capsys.readouterr()
    assert run(tmp_path / "parts.pt", "--resume") == 0
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"epoch 0: \d+% of the held-out words", said[0])
    assert re.fullmatch(r"epoch 1: loss \d\.\d\d, \d+% of the held-out words", said[1])


def test_a_plan_with_workers_leads_to_the_same_place(tmp_path):
    assert run(tmp_path / "here.pt") == 0
    Plan(cut=3, num_workers=1).save(tmp_path / "plan.json")
    assert run(tmp_path / "there.pt", "--plan", str(tmp_path / "plan.json")) == 0
    here, there = state_of(tmp_path / "here.pt"), state_of(tmp_path / "there.pt")
    # The audio differs by rounding. Of gradients that are little more than that (biases before a norm, to begin with)
    # Adam makes whole steps; after the last norm 0.005 is left. Other draws of the same ops make 0.02 of it.
    for name in ("layers.10.weight", "layers.10.bias", "head.weight", "head.bias"):
        torch.testing.assert_close(there["model"][name], here["model"][name], rtol=0, atol=0.01)


OPTIONS = {"precision": "fp32", "accumulate": 2, "compile": False, "learning_rate": 0.1, "epochs": 2}


class Batches:
    device = torch.device("cpu")

    def __len__(self) -> int:
        return 2


def weights_after(groups: list[list[train.Batch]]) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
    training = train.Training(model, Batches(), OPTIONS)
    for group in groups:
        training.update(group)
    return model[1].weight.detach()


def test_accumulated_batches_are_one_larger_batch():
    audio, label = torch.randn(7, 1, 8), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    whole = weights_after([[(audio, label)]])
    parts = weights_after([[(audio[:4], label[:4]), (audio[4:], label[4:])]])
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    separate = weights_after([[(audio[:4], label[:4])], [(audio[4:], label[4:])]])
    assert (separate - whole).abs().max() > 1e-3


def test_everything_that_can_be_asked_for(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    files = {"--trace": "trace.json", "--html": "run.html", "--tensorboard": "runs"}
    asked = [part for option, file in files.items() for part in (option, str(tmp_path / file))]
    assert run(tmp_path / "c.pt", "--precision", "fp16", *asked) == 0
    told = capsys.readouterr()
    assert "of the held-out words" in told.err and "after 10 updates" in told.out
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()
    assert "<html" in (tmp_path / "run.html").read_text()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "runs")).Reload()
    assert len(board.Scalars("train/accuracy")) == 2
    weights = state_of(tmp_path / "c.pt")["model"]
    assert all(bool(each.isfinite().all()) for each in weights.values())


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--resume",), "--resume: there is no checkpoint"),
        (("--batch-size", "64"), "20 examples make no batch of 64. Lower --batch-size."),
        (("--plan", "none.json"), "none.json"),
        (("--checkpoint", "nowhere/c.pt"), "--checkpoint: there is no folder nowhere. Make it first."),
        (("--precision", "int8"), "Invalid value for '--precision'"),
    ],
)
def test_mistakes_are_one_clear_error(more, sentence, tmp_path, capsys):
    assert run(tmp_path / "none.pt", *more) == 2
    told = capsys.readouterr().err
    assert sentence in told and "Traceback" not in told


def interrupt_after(pause: float, folder: Path) -> None:
    """Start the program with workers, press Ctrl-C for all its processes a while after the first epoch, and resume."""
    Plan(cut=3, num_workers=2).save(folder / "plan.json")
    asked = [*ARGUMENTS[:-1], "1000", "--plan", str(folder / "plan.json"), "--checkpoint", str(folder / "c.pt")]
    command, pipe = [sys.executable, "scripts/train.py", *asked], subprocess.PIPE
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=pipe, text=True, start_new_session=True) as program:
        try:
            assert program.stderr is not None and program.stderr.readline().startswith("epoch 0: ")
            workers = psutil.Process(program.pid).children(recursive=True)
            time.sleep(pause)
            os.killpg(program.pid, signal.SIGINT)
            _, told = program.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 130 and told.rstrip().endswith("continues from the checkpoint"), told
    assert "Traceback" not in told and len(workers) >= 2  # a fork server is a child, too
    assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]
    updates = state_of(folder / "c.pt")["updates"]
    place = state_of(folder / "c.pt")["loader"]
    assert updates == 5 * place["epoch"] + place["batch"] >= 5
    assert not list(folder.glob("*.new"))


def interrupts(count: int, folder: Path) -> None:
    for number in range(count):
        with nothing_left():
            interrupt_after(1.5 * random.Random(number).random(), folder)


def test_ctrl_c_a_few_times(tmp_path):
    interrupts(2, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ctrl_c_a_hundred_times(tmp_path):
    interrupts(100, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_learns_the_words(tmp_path):
    assert train.main(["--device", "cpu", "--checkpoint", str(tmp_path / "c.pt")]) == 0
    assert state_of(tmp_path / "c.pt")["reached"] > 0.5  # chance is 1 in 12
