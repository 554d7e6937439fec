"""Clocks: the time, and synchronization with a device.

GPU work is asynchronous, so a timer that does not synchronize measures only the launch. Every measurement gets its
clock as an argument and calls ``synchronize`` at both ends.
"""

import math
import time
from typing import Protocol

import torch

from audioaug.units import Seconds


class Clock(Protocol):
    """A monotonic time in seconds, and a way to wait for the device.

    ``limit``: the time from which measurements are cut short: they repeat once instead of as often as they should.
    """

    limit: Seconds = math.inf

    def now(self) -> Seconds:
        """Return a time in seconds, for differences."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished all submitted work."""
        ...


class WallClock(Clock):
    """The clock for synchronous work, on the CPU."""

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: CPU work is synchronous."""


class CudaClock(Clock):
    """The clock for a CUDA device, all streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)


class MpsClock(Clock):
    """The clock for an Apple GPU."""

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.mps.synchronize()


class FakeClock(Clock):
    """A clock for tests: time passes only by ``advance``, and a simulated device can lag behind."""

    def __init__(self) -> None:
        self._now = 0.0
        self._device_done = 0.0

    def now(self) -> Seconds:
        """Return the simulated time in seconds."""
        return self._now

    def advance(self, seconds: Seconds) -> None:
        """Advance the time, as work on the CPU does."""
        self._now += seconds

    def launch(self, seconds: Seconds) -> None:
        """Queue work of this duration on the simulated device, without waiting."""
        self._device_done = max(self._device_done, self._now) + seconds

    def synchronize(self) -> None:
        """Advance the time until the simulated device is idle."""
        self._now = max(self._now, self._device_done)


def clock_for(device: torch.device) -> Clock:
    """Return the clock for this device."""
    if device.type == "cuda":
        return CudaClock(device)
    return MpsClock() if device.type == "mps" else WallClock()
