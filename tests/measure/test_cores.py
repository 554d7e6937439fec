import threading

import pytest

from audioaug.measure import FakeClock, WallClock, effective_cores
from audioaug.measure.cores import _rate


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
def test_it_is_the_ratio_of_the_rates(monkeypatch, cores, rates, expected):
    monkeypatch.setattr("audioaug.measure.cores._rate", lambda threads, clock, seconds: rates[threads])
    assert effective_cores(cores, WallClock()) == expected
