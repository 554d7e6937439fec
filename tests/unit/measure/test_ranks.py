"""Which rank this process is, what it refuses, and whose CPU time counts."""

import subprocess
import sys

import psutil
import pytest
import torch

from audioaug.errors import MeasurementError, UsageError
from audioaug.measure import ranks, usage
from audioaug.measure.ranks import device_of_rank, link_to_rank_0, links_of_rank_0, local_rank
from audioaug.measure.usage import all_cpu_seconds, own_processes

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


@pytest.fixture
def environment(monkeypatch):
    """Set torchrun's variables, with these changes."""

    def set_variables(**changes: str | None) -> None:
        for name, value in {**TORCHRUN, **changes}.items():
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)

    return set_variables


def connect_rank_0(count=None) -> list:
    with links_of_rank_0(count, ()) as links:
        return links


def test_rank_of_a_process(environment) -> None:
    environment()
    assert local_rank() == 1
    environment(LOCAL_WORLD_SIZE=None)
    assert local_rank() == 0
    environment(LOCAL_RANK=None)
    assert local_rank() == 0


def test_each_rank_has_a_gpu_of_its_own(environment, monkeypatch) -> None:
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    environment()
    assert device_of_rank("auto") == "cuda:1" and device_of_rank("cpu") == "cpu" and chosen == [1]
    environment(LOCAL_WORLD_SIZE=None)
    assert device_of_rank("auto") == "auto"


@pytest.mark.parametrize("count", [None, 1])
def test_nothing_is_connected_for_one_process(count, environment) -> None:
    environment(LOCAL_WORLD_SIZE=None)
    assert connect_rank_0(count) == []


def test_ranks_are_not_started_within_torchrun(environment) -> None:
    environment(LOCAL_RANK="0")
    with pytest.raises(UsageError, match=r"^--ranks 3: torchrun has already started 2 ranks\. Leave it out\."):
        connect_rank_0(3)


def test_several_machines_are_refused(environment) -> None:
    environment(LOCAL_RANK="0", WORLD_SIZE="4")
    with pytest.raises(UsageError, match=r"^4 ranks train on several machines, .* Use --ranks 2 on one machine"):
        connect_rank_0()


def test_variables_that_are_missing_are_named(environment) -> None:
    environment(LOCAL_RANK="0", MASTER_ADDR=None, MASTER_PORT=None)
    with pytest.raises(UsageError, match=r"^LOCAL_WORLD_SIZE is 2, but MASTER_ADDR, MASTER_PORT is not set"):
        connect_rank_0()


def test_a_rank_without_rank_0(environment, monkeypatch) -> None:
    environment()
    monkeypatch.setattr(ranks, "JOINING", 0.1)
    with pytest.raises(MeasurementError, match=r"^Rank 0 cannot be reached\."), link_to_rank_0():
        pass


def test_a_rank_that_ends_while_it_starts(environment) -> None:
    environment(LOCAL_WORLD_SIZE=None)
    with pytest.raises(MeasurementError, match=r"^Rank 1 ended while it started\."):
        with links_of_rank_0(2, ["no_such_module"]):
            pass


def test_other_ranks_are_neither_ours_nor_foreign(monkeypatch) -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        used = all_cpu_seconds()
        assert psutil.Process(other.pid) in own_processes()
        monkeypatch.setattr(usage, "other_ranks", {other.pid})
        assert psutil.Process(other.pid) not in own_processes()
        assert own_processes()[0] == psutil.Process()
        assert all_cpu_seconds() >= used  # its half second still counts
        other.communicate(b"\n")
