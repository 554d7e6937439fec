"""scripts/bench_monitor.py measures what it promises; its numbers are the machine's."""

from types import SimpleNamespace

import bench_monitor
import pytest
import torch

from audioaug.measure import FakeClock


def test_short_run_prints_the_cost_of_a_monitor() -> None:
    found = bench_monitor.measure(torch.device("cpu"), rounds=4, width=64, rows=8)
    assert found["step_ms"] > 0 and found["looks"] >= 1 and found["look_ms"] > 0
    assert 0 < found["ratio_low"] <= found["ratio"] <= found["ratio_high"]


def test_a_steps_share_is_the_extra_time_of_taking_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(bench_monitor, "time", SimpleNamespace(perf_counter=clock.now))
    plain, watched = (iter(lambda us=us: clock.advance(us * 1e-6), 0) for us in (1.0, 6.0))
    step = lambda batch: clock.advance(1.0)  # noqa: E731
    assert bench_monitor.microseconds_a_batch(plain, watched, step, 5) == pytest.approx(5.0)
