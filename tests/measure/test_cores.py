import pytest

from audioaug.measure import WallClock, effective_cores


def test_one_core_is_one():
    assert effective_cores(1, WallClock()) == 1.0


def test_threads_do_at_least_the_work_of_one_and_at_most_their_number():
    found = effective_cores(2, WallClock(), seconds=0.3)
    assert 1.0 <= found <= 2.0 + 0.5


@pytest.mark.parametrize(("cores", "rates", "expected"), [(4, {1: 10.0, 4: 30.0}, 3.0), (2, {1: 10.0, 2: 8.0}, 1.0)])
def test_it_is_the_ratio_of_the_rates(monkeypatch, cores, rates, expected):
    monkeypatch.setattr("audioaug.measure.cores._rate", lambda threads, clock, seconds: rates[threads])
    assert effective_cores(cores, WallClock()) == expected
