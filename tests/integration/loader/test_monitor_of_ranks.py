"""A monitor names the slowest of several ranks and what it waits for, without a collective."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from audioaug import Monitor
from audioaug.loader import processes

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    """Let torchrun train with two ranks; return what the monitor of each returned, and all that was printed."""
    out = tmp_path_factory.mktemp("out")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.integration.loader.slow_rank_run", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)], done.stderr


@pytest.mark.timeout(600)  # some seconds where nothing else runs
def test_summary_names_the_slowest_rank_and_what_it_waits_for(trained):
    (first, second), _ = trained
    for found in (first["early"], first["late"], second["late"]):
        assert (found["ranks"], found["slowest_rank"]) == (2, 1)
        assert found["slowest_rank/wait_share"] > 0.5
        assert found["slowest_rank/bottleneck/main_thread_bound"] > 0.2
    assert first["late"]["wait_share"] < 0.5 < second["late"]["wait_share"]
    assert first["late"]["step_ms"] == pytest.approx(second["late"]["step_ms"], rel=0.5)  # it names no rank


@pytest.mark.timeout(600)
def test_closing_line_of_the_first_rank_names_the_slowest(trained):
    lines = [line for line in trained[1].splitlines() if line.startswith("audioaug.Monitor: ")]
    assert len(lines) == 1
    assert "The slowest of 2 ranks is rank 1, which waits for data " in lines[0]
    assert lines[0].endswith(
        "its main bottleneck was the training process, which loads, copies or augments between steps."
    )


class Broken:
    """A store whose server is gone."""

    def set(self, *_: str) -> None:
        raise RuntimeError("Connection reset by peer")

    compare_set = set


def test_store_that_cannot_be_reached_ends_nothing(monkeypatch):
    monkeypatch.setattr(processes, "process_group_store", Broken)
    with Monitor([torch.ones(4)] * 3, device="cpu", live=False) as monitor:
        assert len(list(monitor)) == 3
    assert monitor.summary()["steps"] == 3 and "ranks" not in monitor.summary()


def test_rank_that_has_left_nothing_is_not_waited_for(monkeypatch):
    store = torch.distributed.HashStore()
    monkeypatch.setattr(processes, "process_group_store", lambda: store)
    monkeypatch.setattr(processes, "rank_and_size", lambda: (0, 3))
    processes.leave_for_ranks("x", b"0")
    monkeypatch.setattr(processes, "rank_and_size", lambda: (2, 3))
    processes.leave_for_ranks("x", b"2")
    assert processes.values_of_ranks("x") == {0: b"0", 2: b"2"}
    assert processes.values_of_ranks("y") == {}
