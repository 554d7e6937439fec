"""What others take of the cores: real work of this process and of others, and planted counters."""

import gc
import multiprocessing
import os
import subprocess
import sys
import time

import psutil
import pytest

from audioaug.measure import FakeClock, GcPauses, WallClock, Watch, delayed_seconds
from audioaug.measure.others import _swapped_in


def spin(seconds: float) -> None:
    """Keep a core busy (planted work must take time)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture
def looks(monkeypatch):
    """Plant what two looks see: time, busy, stolen, ours, delayed, throttled, in seconds; bytes swapped in."""

    def plant(*seen):
        views = iter(seen)
        monkeypatch.setattr(Watch, "_look", lambda self: next(views))

    return plant


def test_what_is_not_ours_is_foreign(looks) -> None:
    looks((10.0, 100.0, 5.0, 50.0, 1.0, 0.0, 100.0), (12.0, 103.0, 5.5, 51.0, 1.4, 0.5, 700.0))
    found = Watch(FakeClock()).others()
    assert found.foreign_cores == pytest.approx(1.0) and found.stolen_cores == pytest.approx(0.25)
    assert found.wanted_cores == pytest.approx(0.2) and found.throttled == pytest.approx(0.25)
    assert found.swapped_in == pytest.approx(300.0)


def test_a_lap_begins_where_the_last_one_ended(looks) -> None:
    looks(*((float(second), busy, 0.0, 0.0, 0.0, 0.0, 0.0) for second, busy in enumerate((0.0, 1.0, 1.5, 1.75))))
    watch = Watch(FakeClock())
    assert [watch.lap().foreign_cores, watch.lap().foreign_cores, watch.others().foreign_cores] == [1.0, 0.5, 0.25]


def test_nothing_is_less_than_none(looks) -> None:
    looks((10.0, 100.0, 0.0, 50.0, 3.0, 0.0, 0.0), (11.0, 100.5, 0.0, 51.5, 1.0, 4.0, 0.0))
    found = Watch(FakeClock()).others()
    assert (found.foreign_cores, found.wanted_cores, found.throttled) == (0.0, 0.0, 1.0)


def test_what_was_swapped_in_is_told_by_the_kernel(tmp_path) -> None:
    assert _swapped_in(tmp_path) == 0.0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 77\npswpin 3\npswpout 5\n")
    assert _swapped_in(tmp_path) == 3 * os.sysconf("SC_PAGE_SIZE")


def test_our_own_children_are_ours() -> None:
    """Also when they have ended by the time of the second look."""
    watch = Watch(WallClock())
    before = watch._look()
    child = multiprocessing.get_context("fork").Process(target=spin, args=(0.4,))
    child.start()
    child.join()
    after = watch._look()
    assert after[3] - before[3] > 0.05  # on full cores it gets less than its 0.4 s
    assert watch.others().foreign_cores >= 0.0


def test_a_program_that_is_not_ours_is_foreign() -> None:
    """A grandchild whose parent has ended belongs to nobody here."""
    loop = "import time; end = time.monotonic() + 3; exec('while time.monotonic() < end: pass')"
    orphan = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {loop!r}], stdout=-3).pid)"
    pid = int(subprocess.run([sys.executable, "-c", orphan], capture_output=True, text=True, check=True).stdout)
    used = psutil.Process(pid).cpu_times()
    watch = Watch(WallClock())
    time.sleep(0.8)
    now = psutil.Process(pid).cpu_times()
    found = watch.others()
    assert found.foreign_cores >= 0.5 * (now.user - used.user) / 0.8


def test_pauses_of_the_garbage_collector_add_up() -> None:
    with GcPauses(WallClock()) as pauses:
        heap = [[number] for number in range(100_000)]
        gc.collect()
    found = pauses.seconds
    assert 1e-4 < found < 5
    gc.collect()
    assert pauses.seconds == found and len(heap) == 100_000


def test_pauses_are_told_by_the_clock() -> None:
    clock = FakeClock()
    pauses = GcPauses(clock)
    for seconds in (0.5, 0.25):
        pauses._on_collection("start", {})
        clock.advance(seconds)
        pauses._on_collection("stop", {})
    assert pauses.seconds == pytest.approx(0.75)


def test_a_thread_is_delayed_only_while_it_wants_a_core() -> None:
    before = delayed_seconds()
    time.sleep(0.2)
    assert delayed_seconds() - before < 0.15
    begin, used, before = time.monotonic(), time.thread_time(), delayed_seconds()
    spin(0.3)
    passed = time.monotonic() - begin
    assert time.thread_time() - used + delayed_seconds() - before == pytest.approx(passed, rel=0.3)
