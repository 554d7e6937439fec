"""Resource usage: CPU seconds that were really used, memory that was really allocated."""

import mmap
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest
import torch

from audioaug.measure import (
    FakeClock,
    MemoryLimit,
    VramPeak,
    cpu_seconds,
    page_faults,
    peak_extra_bytes,
    sample,
    usage,
)
from audioaug.measure.interference import PageFaults

CPU = torch.device("cpu")


def burn(seconds: float) -> None:
    """Use this much CPU time of this process."""
    process = psutil.Process()
    end = sum(process.cpu_times()[:2]) + seconds
    while sum(process.cpu_times()[:2]) < end:
        sum(range(10_000))


def test_cpu_seconds_are_those_burnt() -> None:
    before, used = cpu_seconds(children=False), time.process_time()
    burn(0.1)
    found = cpu_seconds(children=False) - before
    assert 0.09 <= found <= time.process_time() - used + 0.03  # the kernel counts in hundredths


def test_live_children_count() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it has burnt its share and waits
        assert cpu_seconds() - cpu_seconds(children=False) > 0.15
        child.communicate(b"\n")


def test_a_child_that_ends_meanwhile_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise psutil.NoSuchProcess(1)

    alive = SimpleNamespace(pid=1, cpu_times=lambda: SimpleNamespace(user=1.0, system=0.5))
    monkeypatch.setattr(usage, "own_processes", lambda: [alive, SimpleNamespace(pid=2, cpu_times=gone)])
    assert cpu_seconds() == 1.5


def test_sample_of_a_machine_without_gpu() -> None:
    before = cpu_seconds(children=False)
    seen = sample(CPU)
    assert before <= seen.cpu_seconds[psutil.Process().pid] <= cpu_seconds(children=False)
    assert 0 < seen.ram_percent < 100
    assert seen.ram_bytes >= psutil.Process().memory_info().rss * 0.5
    assert seen.gpu_percent is None and seen.vram_bytes is None


@pytest.mark.parametrize(
    ("limit", "used"),
    [(None, 60.0), (MemoryLimit(500, 100), 80.0), (MemoryLimit(500, 450), 20.0), (MemoryLimit(9000, 8000), 60.0)],
)
def test_used_ram_is_that_of_the_tighter_limit(monkeypatch: pytest.MonkeyPatch, limit, used: float) -> None:
    monkeypatch.setattr(usage.psutil, "virtual_memory", lambda: SimpleNamespace(total=1000, available=400))
    monkeypatch.setattr(usage, "memory_limit", lambda: limit)
    assert usage._ram_percent() == pytest.approx(used)


def test_the_peak_on_a_gpu_includes_what_other_libraries_add(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"free": 900, "reserved": 60, "peak": 50}  # of 1,000: 40 are outside of torch from the start
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (gpu["free"], 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: gpu["reserved"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: gpu["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: gpu.update(peak=50))
    peak = VramPeak(torch.device("cuda"))
    gpu.update(peak=70, reserved=90, free=870)  # torch alone
    assert peak.look() == 70
    gpu.update(free=670)  # and 200 for plans of FFTs, which stay
    assert peak.look() == peak.look() == 250


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_peak_counts_freed_memory() -> None:
    device = torch.device("cuda")
    before, peak = torch.cuda.memory_allocated(device), VramPeak(device)
    torch.zeros(1 << 24, device=device)
    assert peak.look() - before >= 1 << 26 > torch.cuda.memory_allocated(device) - before


# What work needs besides what is there


@pytest.mark.parametrize(
    ("work", "tensors"),
    [
        (lambda: torch.empty(250_000), 1),
        (lambda: torch.ones(250_000).exp().exp(), 2),  # the first is gone when the third comes
        (lambda: [torch.ones(250_000) for _ in range(5)], 5),
        (lambda: None, 0),
    ],
    ids=["its result", "two together", "five kept", "nothing"],
)
def test_extra_memory_is_the_simultaneous_peak(work: Callable[[], object], tensors: int) -> None:
    kept = torch.ones(1000)
    assert peak_extra_bytes(work, CPU) == pytest.approx(tensors * 1_000_000, abs=2000)
    assert len(kept) == 1000


def test_the_kernel_s_share_is_that_of_the_cpu_time_meanwhile(monkeypatch, clock: FakeClock) -> None:
    looks = iter([(7, 1.0, 5.0), (607, 2.0, 8.0)])

    def getrusage(who):
        return SimpleNamespace(**dict(zip(("ru_minflt", "ru_stime", "ru_utime"), next(looks), strict=True)))

    planted = SimpleNamespace(RUSAGE_SELF=0, getrusage=getrusage)
    monkeypatch.setattr("audioaug.measure.interference.resource", planted)
    assert page_faults(lambda: clock.advance(1.0), clock, 3.0) == PageFaults(per_call=200.0, kernel_share=0.25)


def test_fresh_pages_are_counted(clock: FakeClock) -> None:
    pages = 2000

    def asks() -> None:
        clock.advance(1.0)
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1

    found = page_faults(asks, clock, 20.0)
    assert found is not None
    assert pages <= found.per_call < 1.1 * pages and 0.0 <= found.kernel_share <= 1.0


def test_work_that_takes_no_memory_asks_for_no_pages(clock: FakeClock) -> None:
    found = page_faults(lambda: clock.advance(sum(range(1000)) / 499_500), clock, 100.0)
    assert found is not None and found.per_call < 10
