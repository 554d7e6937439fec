"""Streams and memory of a GPU, pretended: who may use memory when is checked by vector clocks.

Work of a stream is ordered; that of two streams only by events. Freed memory is reused by the stream that allocated it,
immediately, as torch's caching allocator does. It cannot show how long anything takes, nor what a kernel computes.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

Clock = Counter[int]
"""How much work of each stream, by its number, has certainly ended."""


class Race(AssertionError):
    """Work on memory that is not ordered after earlier work on it."""


class FakeEvent:
    """The work that a stream had been given when it was recorded."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock.copy()


class FakeStream:
    """A queue of work: ``clock`` is what its next work comes after."""

    def __init__(self, number: int) -> None:
        self.number, self.clock = number, Clock()
        self.free: list[int] = []  # addresses

    def work(self) -> Clock:
        """Queue work; return what it comes after, itself included."""
        self.clock[self.number] += 1
        return self.clock.copy()

    def record_event(self) -> FakeEvent:
        return FakeEvent(self.clock)

    def wait_event(self, event: FakeEvent) -> None:
        self.clock |= event.clock

    def wait_stream(self, stream: "FakeStream") -> None:
        self.wait_event(stream.record_event())


class Buffer:
    """Memory that the current stream has allocated and written; it is freed with this object."""

    def __init__(self, gpu: "FakeGpu", content: Any) -> None:
        stream = gpu.current_stream()
        self.gpu, self.content = gpu, content
        self.address = stream.free.pop() if stream.free else next(gpu.addresses)
        weakref.finalize(self, stream.free.append, self.address)
        self.touch("reused")

    def touch(self, how: str = "read") -> None:
        """Work on it on the current stream.

        Raises:
            Race: the last work on this memory may not have ended.
        """
        stream = self.gpu.current_stream()
        before, now = self.gpu.used.get(self.address, Clock()), stream.work()
        if not before <= now:
            raise Race(f"The memory of {self.content} is {how} before the last work on it has ended.")
        self.gpu.used[self.address] = before | now


class FakeGpu:
    """What of ``torch.cuda`` the prefetcher uses."""

    def __init__(self) -> None:
        self.addresses = iter(range(10**6))
        self.used: dict[int, Clock] = {}
        self.streams = [FakeStream(0)]
        self._current = self.streams[0]

    def Stream(self, device: Any = None) -> FakeStream:
        self.streams.append(FakeStream(len(self.streams)))
        return self.streams[-1]

    def current_stream(self, device: Any = None) -> FakeStream:
        return self._current

    @contextlib.contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self._current = self._current, stream
        try:
            yield
        finally:
            self._current = before
