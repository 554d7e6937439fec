"""Device idle time between training steps, measured on the device without synchronization."""

from collections import deque
from typing import Protocol

import torch

from audioaug.units import Seconds


class IdleTimer(Protocol):
    """Accumulate the idle time between the submission of a step and the arrival of the next batch."""

    def step_submitted(self, now: Seconds) -> None:
        """Record that all work of a step was submitted."""
        ...

    def batch_arrived(self, now: Seconds) -> None:
        """Record that the next batch has arrived."""
        ...

    def collect(self) -> tuple[Seconds, int]:
        """Return the idle seconds since the last call, and the number of steps."""
        ...


class HostIdleTimer:
    """The idle timer of a synchronous device, which is idle while the training process waits."""

    def __init__(self) -> None:
        self._since, self._seconds, self._steps = 0.0, 0.0, 0

    def step_submitted(self, now: Seconds) -> None:
        """Start waiting."""
        self._since = now

    def batch_arrived(self, now: Seconds) -> None:
        """Stop waiting."""
        self._seconds += now - self._since
        self._steps += 1

    def collect(self) -> tuple[Seconds, int]:
        """Return the waiting time since the last call."""
        found, self._seconds, self._steps = (self._seconds, self._steps), 0.0, 0
        return found


class StreamIdleTimer:
    """The idle timer of a CUDA device: the time between an event after each step and one before the next.

    The host runs ahead of the device, so its own waiting time says little. Events are read some steps later, without
    synchronization.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._end = self._event()
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def step_submitted(self, now: Seconds) -> None:
        """Record an event after the step."""
        self._end = self._event()

    def batch_arrived(self, now: Seconds) -> None:
        """Record an event after everything that the batch depends on."""
        self._pairs.append((self._end, self._event()))

    def collect(self) -> tuple[Seconds, int]:
        """Return the idle time of the steps that the device has reached."""
        seconds, steps = 0.0, 0
        while self._pairs and self._pairs[0][1].query():
            end, start = self._pairs.popleft()
            seconds += end.elapsed_time(start) / 1e3
            steps += 1
        return seconds, steps

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def idle_timer(device: torch.device) -> IdleTimer:
    """Return an idle timer for this device."""
    return StreamIdleTimer(device) if device.type == "cuda" else HostIdleTimer()
