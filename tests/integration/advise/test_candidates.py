"""Limits of machines: each gives one correct sentence. Limits are real unless a test says that a fact is injected."""

import gc
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import audioaug.advise.candidates
from audioaug.advise.candidates import (
    POOL,
    EndlessBatches,
    Reader,
    candidate_at,
    open_loader,
    sample_indices,
    why_unpicklable,
)
from audioaug.advise.model_file import load_training_job
from audioaug.advise.stages import readable
from audioaug.advise.today import Memory
from audioaug.records import Candidate, Report, read_record

pytestmark = pytest.mark.timeout(900)  # real runs: some seconds, minutes beside other load

ROOT = Path(__file__).parents[3]
BRIEF = ("--budget", "2", "--workers", "0,1,2", "--json", "report.json")
CHEAP = "from audioaug import ops\naugment = [ops.PolarityInversion(p=1.0)]\n"
IN_MEMORY = "dataset = [torch.randn(1, 4000) for _ in range(16)]\n"
TWO_WORKERS = "num_workers = 2\n"
PLANTED = "from tests.helpers.planted_time import Clips\ndataset = Clips(0.005)\n"
"""Clips that make training wait, in planted time: the current configuration is not the answer."""
SLEEPING = "import time\ndef train_step(model, batch, optimizer):\n    time.sleep(0.002)\n"
HOLDS_A_FUNCTION = """
class Data:
    def __init__(self):
        self.reader = lambda index: torch.zeros(1, 4000)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.reader(index)

dataset = Data()
"""
ENDLESS = """
class Data:
    def __len__(self):
        return 10**12

    def __iter__(self):
        raise AssertionError("the dataset was listed")

    def __getitem__(self, index):
        assert 0 <= index < 10**12
        return torch.full((1, 4000), 0.1)

dataset = Data()
"""


def found(here) -> Report:
    report = read_record(here / "report.json", Report)
    assert report.complete and report.verdict.startswith(
        ("Use ", "Leave it as it is", "The machine was too busy", "Too few steps to tell")
    )
    return report


@pytest.fixture
def spawned():
    """Start workers by spawn during the test."""
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def one_core():
    """Allow one core during the test."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def allow_files():
    """Allow this many more open files than there are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow(more: int) -> None:
        gc.collect()  # closes files that earlier tests have left
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, hard))

    yield allow
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Small versions, in this process


@pytest.mark.usefixtures("one_core")
def test_one_core(advise, model, here) -> None:
    ran = advise("--model", model(CHEAP + IN_MEMORY + SLEEPING), "--budget", "1", "--json", "report.json")
    assert ran.code == 0
    report = found(here)
    assert report.host.usable_cores == 1.0 and report.host.cores == 1.0
    assert {candidate.num_workers for candidate in report.candidates} <= {0, 1}


@pytest.mark.usefixtures("planted_time")
def test_few_open_files_are_reported_before_workers_start(advise, model, here, allow_files) -> None:
    path = model(CHEAP + PLANTED + TWO_WORKERS)
    allow_files(36)  # two workers keep up to 6 messages, of 3 tensors each
    ran = advise("--model", path, *BRIEF)
    assert ran.code == 0 and "Too many open files" not in ran.err
    report = found(here)
    assert report.cause == "fd_limit"
    text = report.recommendation.because
    assert "Only 1 worker can run" in text and "ulimit -n" in text and "instead of 2" in text
    assert report.current.num_workers == 1
    refused = [candidate for candidate in report.candidates if candidate.num_workers == 2]
    assert refused and all(
        candidate.status == "infeasible" and "Only 1 worker can run" in candidate.reason for candidate in refused
    )


@pytest.mark.usefixtures("planted_time")
def test_little_shared_memory_is_reported_before_workers_start(advise, model, here, monkeypatch) -> None:
    monkeypatch.setattr(audioaug.advise.candidates, "free_shared_memory", lambda: 100_000)  # injected; mounted below
    assert advise("--model", model(CHEAP + PLANTED + TWO_WORKERS), *BRIEF).code == 0
    report = found(here)
    assert report.cause == "shm_too_small" and report.current.num_workers == 0
    assert "in /dev/shm, where 97.7 KiB are free" in report.recommendation.because


@pytest.mark.usefixtures("spawned")
def test_unpicklable_objects_are_named(advise, model, here) -> None:
    assert advise("--model", model(CHEAP + HOLDS_A_FUNCTION + TWO_WORKERS), *BRIEF).code == 0
    report = found(here)
    assert report.cause == "not_picklable" and report.current.num_workers == 0
    assert "`dataset.reader` (Data.__init__.<locals>.<lambda>) does not pickle" in report.recommendation.because
    assert {candidate.num_workers for candidate in report.candidates if candidate.status != "infeasible"} == {0}


def test_the_innermost_unpicklable_object_is_named(model) -> None:
    inside = "class Inner:\n    def __init__(self):\n        self.file = open(__file__)\n"
    outside = (
        "dataset = [1]\nclass Data(list):\n    pass\ndataset = Data([torch.zeros(1, 8)])\ndataset.inner = Inner()\n"
    )
    job = load_training_job(model(CHEAP + inside + outside), torch.device("cpu"))
    assert why_unpicklable(job, "spawn").startswith("`dataset.inner.file` (TextIOWrapper) does not pickle (")
    job.dataset.inner.file.close()
    assert why_unpicklable(load_training_job(model(CHEAP + IN_MEMORY), torch.device("cpu")), "spawn") == ""


def test_too_many_tensors_are_counted_without_opening_files(model, monkeypatch) -> None:
    many = "dataset = [(torch.zeros(1, 8), 0) for _ in range(300)]\n"
    job, before = load_training_job(model(CHEAP + many), torch.device("cpu")), len(os.listdir("/proc/self/fd"))
    assert why_unpicklable(job, "forkserver").startswith("`dataset` holds 300 tensors, and a fork server")
    assert why_unpicklable(job, "spawn") == "" and len(os.listdir("/proc/self/fd")) == before
    monkeypatch.setattr(torch.multiprocessing, "get_sharing_strategy", lambda: "file_system")  # sends names of files
    assert why_unpicklable(job, "forkserver") == ""


PARSES = """
import argparse

argparse.ArgumentParser().parse_args()

class Data:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.zeros(1, 4000)

dataset = Data()
"""


def test_a_worker_that_is_not_forked_imports_a_model_file_with_its_own_command_line(model, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["audioaug", "advise", "--model", "mymodel.py"])
    job = load_training_job(model(CHEAP + PARSES), torch.device("cpu"))
    candidate = replace(candidate_at(job.chain, 1, workers=1), start_method="spawn")
    assert job.wave_of(next(iter(open_loader(job, candidate)))).shape == (4, 1, 4000)


@pytest.mark.usefixtures("planted_time")
def test_a_dataset_too_large_to_list(advise, model, here) -> None:
    ran = advise("--model", model(CHEAP + ENDLESS), "--budget", "1", "--workers", "0", "--json", "report.json")
    assert ran.code == 0, ran.err
    report = found(here)
    assert report.workload.clips == 10**12 and len(report.signals.examples.samples) >= 32


def test_examples_are_sampled_from_the_whole_dataset_and_fewer_are_a_prefix() -> None:
    indices = sample_indices(10**12, 1000)
    assert (
        len(set(indices)) == 1000
        and indices[:16] == sample_indices(10**12, 16)
        and indices != sample_indices(10**12, 1000, seed=1)
    )
    assert 0.4e12 < sum(indices) / 1000 < 0.6e12
    assert sorted(sample_indices(5, 100)) == [0, 1, 2, 3, 4]
    batches = iter(EndlessBatches(10**12, 32))
    assert len({index for _ in range(POOL // 32) for index in next(batches)}) == POOL


def test_an_unreadable_dataset_is_not_scanned_completely() -> None:
    class Broken:
        tried = 0

        def __len__(self):
            return 10**12

        def __getitem__(self, index):
            self.tried += 1
            raise OSError("gone")

    data = Broken()
    assert readable(Reader(data), torch.as_tensor) == [] and data.tried < 1000


def test_a_candidate_out_of_memory_is_infeasible_and_the_race_continues(racer_with) -> None:
    def step(batch) -> None:
        if torch.get_num_threads() == 3:  # the greedy candidate's
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")  # injected

    reported: list[tuple[str, str]] = []
    racer = racer_with(step, lambda *notice: reported.append(notice))
    candidates = [Candidate("cpu", 1), Candidate("cpu", 1, threads=3)]
    raced = racer.screen(candidates, {candidate.name: 0.01 for candidate in candidates}, tick=lambda *_: None)
    assert set(raced) == {"all in the loader, 0 workers"}
    assert [name for name, _ in reported] == ["vram_limit"] and "20.00 GiB" in reported[0][1]
    assert racer.failed.keys() == {candidates[1].name}


def test_memory_that_only_warms_up_does_not_grow() -> None:
    for sizes, grows in (((0, 100, 150, 160), False), ((0, 100, 200, 400, 800), True), ((5, 5, 5, 5), False)):
        memory = Memory()
        memory._seen = [(4 * 2**place, size) for place, size in enumerate(sizes)]
        assert bool(memory.growth_bytes) is grows
    assert Memory().growth_bytes is None


# As a user meets them: the command under each limit


def command(model: str, here: Path, *before: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the advisor as a command, with a prefix."""
    line = [*before, sys.executable, "-m", "audioaug.advise", "--model", model, "--quick", "--budget", "6", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*line, "--json", "report.json"], cwd=here, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.slow
def test_under_taskset(model, here) -> None:
    ran = command(model(CHEAP + IN_MEMORY + TWO_WORKERS), here, "taskset", "-c", "0")
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
    report = found(here)
    assert report.host.usable_cores == 1.0 and "1 of" in ran.stdout
    assert {candidate.num_workers for candidate in report.candidates if candidate.status != "infeasible"} <= {0, 1, 2}


@pytest.mark.slow
def test_under_ulimit(model, here) -> None:
    ran = command(model(CHEAP + IN_MEMORY + TWO_WORKERS), here, "sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    assert ran.returncode == 0 and "Too many open files" not in ran.stderr, ran.stderr
    assert found(here).host.open_files == 256


@pytest.mark.slow
def test_with_another_busy_program(model, here) -> None:
    chain = (
        "from audioaug import ops\nimport time\ndef spin(samples, sample_rate):\n    end = time.thread_time() + 0.005\n"
        "    while time.thread_time() < end:\n        pass\n    return samples\n"
        "augment = [ops.Lambda(transform=spin, p=1.0)]\n"
    )
    path = model(chain + IN_MEMORY + SLEEPING + TWO_WORKERS)
    code = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        ran = command(path, here)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
    report = found(here)
    reported = {notice.id: notice.text for notice in report.notices} | {report.cause: report.recommendation.because}
    assert "Other programs used" in reported["foreign_load"] and "which were fully loaded" in reported["foreign_load"]


@pytest.mark.slow
def test_with_a_megabyte_of_shared_memory(model, here) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no private mounts")
    mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    large = "dataset = [torch.randn(1, 40000) for _ in range(16)]\nclip_seconds = 2.5\n"
    ran = command(model(CHEAP + large + TWO_WORKERS), here, "unshare", "-m", "sh", "-c", mount, "sh")
    assert ran.returncode == 0 and "SIGBUS" not in ran.stderr + ran.stdout, ran.stderr
    report = found(here)
    assert report.host.shm_bytes == 2**20 and report.cause == "shm_too_small"
    assert "Only 0 workers can run" in ran.stdout.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("pickles", [True, False])
def test_workers_by_spawn(model, here, pickles) -> None:
    data = HOLDS_A_FUNCTION if not pickles else HOLDS_A_FUNCTION.replace("lambda index: torch.zeros(1, 4000)", "None")
    data = data if not pickles else data.replace("self.reader(index)", "torch.zeros(1, 4000)")
    spawn = "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)\n"
    ran = command(model(spawn + CHEAP + data + SLEEPING + TWO_WORKERS), here, more=("--workers", "0,2"))
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
    report = found(here)
    assert report.host.start_method == "spawn"
    assert (report.cause == "not_picklable") is not pickles
    assert report.current.num_workers == (2 if pickles else 0)
