"""A machine whose time is planted: work takes as long as a model file says, however busy the real machine is.

A model file imports ``CLOCK`` and advances it in its step; its ``Clips`` advance it when they are read. Looking at the
clock takes time, too, so that nothing is free.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from audioaug import Loader
from audioaug.measure import FakeClock
from audioaug.train.examples import get_wave

LOOK = 2**-9
"""Seconds that a look at the clock takes: longer than a repetition, so that nothing is repeated within one."""


class PlantedClock(FakeClock):
    """The clock that the advisor and the model file share."""

    def now(self) -> float:
        self.advance(LOOK)
        return super().now()


CLOCK = PlantedClock()


class Clips:
    """Sixty-four clips that take so many seconds each to read, during which a core is free."""

    def __init__(self, seconds: float, samples: Callable[[int], int] = lambda index: 4000) -> None:
        self.seconds, self.samples = seconds, samples

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        CLOCK.advance(self.seconds)  # in a worker this is a clock of its own, which nobody looks at
        return torch.full((1, self.samples(index)), 0.1)


class PlantedLoader(Loader):
    """The real Loader; a batch of its workers comes when workers that take the planted time would have made it."""

    capacity = ready = None  # what really lies ready says nothing of planted time

    def _epoch(self) -> Iterator[Any]:
        return self._paced(super()._epoch())

    def messages(self, epoch: int = 0) -> Iterator[Any]:
        return self._paced(super().messages(epoch))

    def _paced(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; workers make them in turn, each as soon as it is free and there is room for one more."""
        workers, begin = self.plan.num_workers, CLOCK.now()
        free = [begin] * workers
        room = deque([begin] * workers * (self.plan.prefetch_factor or 2))
        for number, batch in enumerate(batches):
            if workers:
                clips = len(get_wave(getattr(batch, "batch", batch)))
                made = max(free[number % workers], room.popleft()) + clips * self._given.dataset.seconds
                free[number % workers] = made
                CLOCK.advance(max(0.0, made - CLOCK.now()))
                room.append(CLOCK.now())
            yield batch
