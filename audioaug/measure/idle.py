"""How long the device had nothing to do between two training steps, as the device itself sees it, without waiting."""

from collections import deque
from typing import Protocol

import torch

from audioaug.units import Seconds


class IdleTimer(Protocol):
    """Told when a step has been given to the device and when the next batch is there; adds up what lay between."""

    def step_submitted(self, now: Seconds) -> None:
        """Take note that all work of a step has been given to the device."""
        ...

    def batch_arrived(self, now: Seconds) -> None:
        """Take note that the next step can begin."""
        ...

    def collect(self) -> tuple[Seconds, int]:
        """Return the idle seconds since the last call and the number of steps they belong to."""
        ...


class HostIdleTimer:
    """For a device that has finished its work when the call returns: the training process waits, so it does too."""

    def __init__(self) -> None:
        self._since, self._seconds, self._steps = 0.0, 0.0, 0

    def step_submitted(self, now: Seconds) -> None:
        """Start to wait."""
        self._since = now

    def batch_arrived(self, now: Seconds) -> None:
        """Stop waiting."""
        self._seconds += now - self._since
        self._steps += 1

    def collect(self) -> tuple[Seconds, int]:
        """Return what was waited since the last call."""
        found, self._seconds, self._steps = (self._seconds, self._steps), 0.0, 0
        return found


class StreamIdleTimer:
    """For CUDA: an event behind each step and one before the next; what lies between them on the stream is idle time.

    The host runs ahead of the device, so its own waiting says little. Events are read once they have passed, some
    steps later; nothing here waits for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._end = self._event()
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def step_submitted(self, now: Seconds) -> None:
        """Put an event behind the step."""
        self._end = self._event()

    def batch_arrived(self, now: Seconds) -> None:
        """Put an event behind what the stream must wait for before it can use the batch."""
        self._pairs.append((self._end, self._event()))

    def collect(self) -> tuple[Seconds, int]:
        """Return the idle time of the steps that the device has come to."""
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
    """Return what can tell how long this device is idle."""
    return StreamIdleTimer(device) if device.type == "cuda" else HostIdleTimer()
