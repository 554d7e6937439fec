"""Idle time between steps: by the host's clock, and by planted events of a stream."""

from types import SimpleNamespace

import pytest
import torch

from audioaug.measure.idle import HostIdleTimer, StreamIdleTimer, idle_timer


def test_the_host_waits_from_a_step_to_the_next_batch() -> None:
    idle = idle_timer(torch.device("cpu"))
    assert isinstance(idle, HostIdleTimer)
    for given, came in ((1.0, 1.5), (2.0, 2.25)):
        idle.step_submitted(given)
        idle.batch_arrived(came)
    assert idle.collect() == (0.75, 2) and idle.collect() == (0.0, 0)


@pytest.fixture
def stream(monkeypatch):
    """Plant a stream: ``now`` is when it reaches the next event, ``done`` its progress, in seconds."""
    stream = SimpleNamespace(now=0.0, done=0.0)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, on: object) -> None:
            assert on is stream
            self.at = stream.now

        def query(self) -> bool:
            return self.at <= stream.done

        def elapsed_time(self, later: "Event") -> float:
            return (later.at - self.at) * 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    return stream


def test_stream_idle_time_is_counted_once_its_events_have_passed(stream) -> None:
    idle = StreamIdleTimer(torch.device("cuda"))
    for end, start in ((1.0, 1.5), (2.0, 2.0), (3.0, 3.25)):
        stream.now = end
        idle.step_submitted(0.0)
        stream.now = start
        idle.batch_arrived(0.0)
    assert idle.collect() == (0.0, 0)
    stream.done = 2.5
    assert idle.collect() == (0.5, 2)
    stream.done = 3.1
    assert idle.collect() == (0.0, 0)  # its end has passed, but not the next start
    stream.done = 9.0
    assert idle.collect() == (0.25, 1) and idle.collect() == (0.0, 0)
