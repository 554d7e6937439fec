"""The training program for Ray: it stops in mid-epoch and continues on another number of actors."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import train_ray

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::Warning"), pytest.mark.timeout(900)]


def run(path: Path, *more: str) -> int:
    arguments = ("--device", "cpu", "--examples", "24", "--batch-size", "8", "--epochs", "2")
    ray = pytest.importorskip("ray")
    try:
        return train_ray.main([*arguments, "--checkpoint", str(path), *more])
    finally:
        ray.shutdown()


def test_it_continues_in_mid_epoch_on_more_actors(tmp_path, monkeypatch, capsys):
    plain, seen = train_ray.Training.step, list[set[str]]()

    def step(self: Any, batch: dict[str, Any]) -> None:
        seen.append(set(batch["key"]))
        plain(self, batch)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(train_ray.Training, "step", step)
    monkeypatch.setenv("PYTHONPATH", str(Path(train_ray.__file__).parent))  # for actors
    path = tmp_path / "checkpoint.pt"
    assert run(path, "--actors", "1") == 130
    assert "with --resume continues from the checkpoint" in capsys.readouterr().err
    state = torch.load(path, weights_only=True)
    assert state["steps"] == 2 and state["batches"]["epoch"] == 0 and len(state["batches"]["keys"]) == 16
    assert run(path, "--actors", "2", "--resume") == 0
    assert "after 6 steps" in capsys.readouterr().out
    for epoch in (seen[:3], seen[3:]):
        assert len(set().union(*epoch)) == 24


def test_mistakes_are_one_sentence(tmp_path, capsys):
    assert run(tmp_path / "no.pt", "--resume") == 2
    assert capsys.readouterr().err.startswith("error: --resume: there is no checkpoint")
