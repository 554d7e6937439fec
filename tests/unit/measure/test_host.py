"""What the machine is, what may be used of it, and what its cores do together."""

import os
import threading
from pathlib import Path

import psutil
import pytest
import torch

from audioaug.measure import FakeClock, WallClock, effective_cores, host, host_facts, usable_cores
from audioaug.measure.host import _rate
from audioaug.records import HostFacts, from_json, to_json

CPU = torch.device("cpu")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plant a machine with 16 allowed cores, a quota of 6.5, and 2 GiB of memory."""
    monkeypatch.setattr(host, "allowed_cores", lambda: list(range(16)))
    for name, text in {
        "proc/self/cgroup": "0::/job",
        "proc/cpuinfo": "processor : 0\nmodel name : Planted CPU @ 3 GHz\nprocessor : 1\nmodel name : other",
        "sys/fs/cgroup/job/cpu.max": "650000 100000",
        "sys/fs/cgroup/job/memory.max": str(2 << 30),
        "sys/fs/cgroup/job/memory.current": str(1536 << 20),
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "cores"),
    [
        ({}, 6.5),
        ({"SLURM_CPUS_PER_TASK": "4"}, 4.0),
        ({"SLURM_CPUS_PER_TASK": "32"}, 6.5),
        ({"LOCAL_WORLD_SIZE": "4"}, 1.625),
        ({"SLURM_CPUS_PER_TASK": "6", "LOCAL_WORLD_SIZE": "4"}, 1.5),
        ({"SLURM_CPUS_PER_TASK": "", "LOCAL_WORLD_SIZE": "0"}, 6.5),
        ({"SLURM_CPUS_PER_TASK": "many", "LOCAL_WORLD_SIZE": "-1"}, 6.5),
    ],
)
def test_usable_cores(machine: Path, environ: dict[str, str], cores: float) -> None:
    assert usable_cores(machine, environ) == cores


def test_affinity_limits_where_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7}, raising=False)
    assert usable_cores(tmp_path, {}) == 3.0


def test_facts_of_a_planted_machine(machine: Path) -> None:
    facts = host_facts(CPU, machine, {"LOCAL_WORLD_SIZE": "2"})
    assert facts.cpu == facts.device_name == "Planted CPU @ 3 GHz"
    assert facts.usable_cores == 3.25 and facts.local_ranks == 2
    assert facts.ram_bytes == min(2 << 30, psutil.virtual_memory().total)
    assert facts.ram_available_bytes <= 512 << 20
    assert facts.shm_bytes is None  # none was planted


def test_facts_of_this_machine() -> None:
    facts = host_facts(CPU)
    assert 0 < facts.usable_cores <= facts.logical_cores
    assert 0 < facts.ram_available_bytes <= facts.ram_bytes <= psutil.virtual_memory().total
    versions = facts.versions["torch"], torch.__version__  # either may lack the build, as in 2.13.0+cpu
    assert len({version.partition("+")[0] for version in versions}) == 1
    assert facts.cpu and facts.start_method in {"fork", "spawn", "forkserver"} and facts.vram_bytes is None
    assert not facts.has_gpu
    assert from_json(to_json(facts), HostFacts) == facts


def test_looking_does_not_choose_a_start_method() -> None:
    import multiprocessing

    before = multiprocessing.get_start_method(allow_none=True)
    host_facts(CPU)
    assert multiprocessing.get_start_method(allow_none=True) == before


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_facts_of_a_gpu() -> None:
    facts = host_facts(torch.device("cuda"))
    assert facts.has_gpu and facts.device_name == torch.cuda.get_device_name()
    assert facts.vram_bytes and facts.versions["nvidia driver"] != "unknown"


def test_one_core_is_one():
    assert effective_cores(1, WallClock()) == 1.0


def test_threads_do_at_least_the_work_of_one():
    assert effective_cores(2, WallClock(), seconds=0.3) >= 1.0


@pytest.mark.parametrize("threads", [1, 3])
def test_the_blocks_of_all_threads_count(threads):
    """Each reading of the clock, and so each block, takes 1 ms in any thread."""
    clock, lock = FakeClock(), threading.Lock()

    def look() -> float:
        with lock:
            clock.advance(1e-3)
            return FakeClock.now(clock)

    clock.now = look
    assert _rate(threads, clock, 0.2) == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize(("cores", "rates", "expected"), [(4, {1: 10.0, 4: 30.0}, 3.0), (2, {1: 10.0, 2: 8.0}, 1.0)])
def test_effective_cores_are_the_ratio_of_the_rates(monkeypatch, cores, rates, expected):
    monkeypatch.setattr("audioaug.measure.host._rate", lambda threads, clock, seconds: rates[threads])
    assert effective_cores(cores, WallClock()) == expected
