"""Interference: real work of this process and of others, and planted counters."""

import gc
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from audioaug.measure import FakeClock, GcPauses, WallClock, Watch, delayed_seconds
from audioaug.measure.interference import _swapped_in


def spin(seconds: float) -> None:
    """Use this much CPU time (planted work that takes time)."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def looks(monkeypatch):
    """Plant two samples: time, busy, stolen, ours, delayed, throttled, in seconds; bytes swapped in."""

    def plant(*seen):
        views = iter(seen)
        monkeypatch.setattr(Watch, "_look", lambda self: next(views))

    return plant


def test_cpu_time_of_other_programs_is_foreign(looks) -> None:
    looks((10.0, 100.0, 5.0, 50.0, 1.0, 0.0, 100.0), (12.0, 103.0, 5.5, 51.0, 1.4, 0.5, 700.0))
    found = Watch(FakeClock()).interference()
    assert found.foreign_cores == pytest.approx(1.0) and found.stolen_cores == pytest.approx(0.25)
    assert found.wanted_cores == pytest.approx(0.2) and found.throttled == pytest.approx(0.25)
    assert found.swapped_in == pytest.approx(300.0)
    assert replace(found, cores=5).foreign_share == 0.25 and replace(found, cores=1).foreign_share == 1.0


def test_a_lap_starts_where_the_last_one_ended(looks) -> None:
    looks(*((float(second), busy, 0.0, 0.0, 0.0, 0.0, 0.0) for second, busy in enumerate((0.0, 1.0, 1.5, 1.75))))
    watch = Watch(FakeClock())
    assert [watch.lap().foreign_cores, watch.lap().foreign_cores, watch.interference().foreign_cores] == [
        1.0,
        0.5,
        0.25,
    ]


def test_interference_is_never_negative(looks) -> None:
    looks((10.0, 100.0, 0.0, 50.0, 3.0, 0.0, 0.0), (11.0, 100.5, 0.0, 51.5, 1.0, 4.0, 0.0))
    found = Watch(FakeClock()).interference()
    assert (found.foreign_cores, found.wanted_cores, found.throttled) == (0.0, 0.0, 1.0)


def test_swapped_bytes_come_from_vmstat(tmp_path) -> None:
    assert _swapped_in(tmp_path) == 0.0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 77\npswpin 3\npswpout 5\n")
    assert _swapped_in(tmp_path) == 3 * os.sysconf("SC_PAGE_SIZE")


def test_our_own_children_are_ours() -> None:
    """Also if they have ended before the second sample."""
    watch = Watch(WallClock())
    before = watch._look()
    child = multiprocessing.get_context("fork").Process(target=spin, args=(0.2,))
    child.start()
    child.join()
    after = watch._look()
    assert after[3] - before[3] > 0.15  # the kernel counts in hundredths
    assert watch.interference().foreign_cores >= 0.0


def test_a_program_that_is_not_ours_is_foreign() -> None:
    """A grandchild whose parent has ended is not a child of this process. Other load only adds to it."""
    clock = FakeClock()
    watch = Watch(clock)
    loop = "import time; exec('while time.process_time() < 0.5: pass'); print(flush=True)"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {loop!r}])"
    with subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE) as parent:
        assert parent.wait(120) == 0 and parent.stdout.readline()  # the orphan has used its half second
    clock.advance(1.0)
    assert watch.interference().foreign_cores >= 0.25


def test_pauses_of_the_garbage_collector_add_up() -> None:
    with GcPauses(WallClock()) as pauses:
        heap = [[number] for number in range(100_000)]
        gc.collect()
    found = pauses.seconds
    assert found > 0
    gc.collect()
    assert pauses.seconds == found and len(heap) == 100_000


def test_pauses_are_measured_by_the_clock() -> None:
    clock = FakeClock()
    pauses = GcPauses(clock)
    for seconds in (0.5, 0.25):
        pauses._on_collection("start", {})
        clock.advance(seconds)
        pauses._on_collection("stop", {})
    assert pauses.seconds == pytest.approx(0.75)


def test_delayed_seconds_reads_the_kernels_schedstat(tmp_path) -> None:
    assert delayed_seconds(tmp_path) == 0.0
    (tmp_path / "proc/thread-self").mkdir(parents=True)
    (tmp_path / "proc/thread-self/schedstat").write_text("7000000000 2500000000 99\n")
    assert delayed_seconds(tmp_path) == 2.5


def test_a_thread_is_not_delayed_while_it_sleeps_or_has_a_core() -> None:
    begin, before = time.perf_counter(), delayed_seconds()
    time.sleep(0.2)
    spin(0.2)
    delayed = delayed_seconds() - before
    assert 0 <= delayed <= time.perf_counter() - begin - 0.4 + 0.01
