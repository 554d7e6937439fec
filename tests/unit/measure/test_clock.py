"""Clocks synchronize with their device."""

import time

import torch

from audioaug.measure import CudaClock, FakeClock, MpsClock, WallClock, clock_for


def test_fake_time_passes_only_by_advance(clock: FakeClock) -> None:
    clock.advance(1.5)
    assert clock.now() == clock.now() == 1.5


def test_fake_device_lags_behind_until_synchronised(clock: FakeClock) -> None:
    clock.launch(2.0)
    clock.advance(0.5)
    clock.launch(1.0)  # queues behind the first
    assert clock.now() == 0.5
    clock.synchronize()
    assert clock.now() == 3.0
    clock.advance(1.0)
    clock.synchronize()  # nothing left to wait for
    assert clock.now() == 4.0


def test_wall_clock_is_the_performance_counter() -> None:
    before = time.perf_counter()
    now = WallClock().now()
    assert before <= now <= time.perf_counter()


def test_each_device_has_its_clock() -> None:
    assert isinstance(clock_for(torch.device("cpu")), WallClock)
    assert isinstance(clock_for(torch.device("mps")), MpsClock)
    cuda = clock_for(torch.device("cuda:1"))
    assert isinstance(cuda, CudaClock) and cuda.device.index == 1


def test_cuda_clock_waits_for_its_device(monkeypatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    clock_for(torch.device("cuda:1")).synchronize()
    assert waited == [torch.device("cuda:1")]
