"""Clocks: what time it is, and how to wait until a device has done what it was asked to do.

A GPU is told what to do and works on its own, so a stopwatch that does not wait for it measures the telling. Every
measurement in this room gets its clock as an argument and calls ``synchronize`` at both ends of what it times.
"""

import time
from dataclasses import dataclass
from typing import Protocol

import torch

from audioaug.units import Seconds


class Clock(Protocol):
    """Seconds since some fixed moment, and a way to wait for the device."""

    def now(self) -> Seconds:
        """Return the time in seconds; only differences mean something."""
        ...

    def synchronize(self) -> None:
        """Return once the device has finished all work that it was given so far."""
        ...


class WallClock:
    """The clock for work that is finished when its function returns: everything on the CPU."""

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Return at once: there is nothing to wait for."""


@dataclass(frozen=True)
class CudaClock:
    """The clock for work on one CUDA device (all its streams)."""

    device: torch.device

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)


class MpsClock:
    """The clock for work on an Apple GPU."""

    def now(self) -> Seconds:
        """Return the time in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.mps.synchronize()


class FakeClock:
    """The clock of the tests: time passes only when it is told to, and a device can lag behind."""

    def __init__(self) -> None:
        self._now = 0.0
        self._device_done = 0.0

    def now(self) -> Seconds:
        """Return the seconds that have been advanced so far."""
        return self._now

    def advance(self, seconds: Seconds) -> None:
        """Let time pass, as work on the CPU does."""
        self._now += seconds

    def launch(self, seconds: Seconds) -> None:
        """Give the device that much work and return at once; the device does one thing after the other."""
        self._device_done = max(self._device_done, self._now) + seconds

    def synchronize(self) -> None:
        """Let time pass until the device has done all that was launched."""
        self._now = max(self._now, self._device_done)


def clock_for(device: torch.device) -> Clock:
    """Return the clock that can time work on this device."""
    if device.type == "cuda":
        return CudaClock(device)
    return MpsClock() if device.type == "mps" else WallClock()
