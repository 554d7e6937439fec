"""Planted time: a clock, a dataset and a Loader whose timings do not depend on the load of the machine.

A model file imports ``CLOCK`` and advances it in its training step; ``Clips`` advance it when one is read. Each reading
of the clock takes ``LOOK`` seconds as well, so no measured time is zero.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from audioaug import Loader
from audioaug.loader.examples import get_wave
from audioaug.measure import FakeClock

LOOK = 2**-9
"""Seconds that reading the clock takes: longer than ``SHORTEST_REPETITION``, so each repetition is one call."""


class PlantedClock(FakeClock):
    """A FakeClock that advances by ``LOOK`` on every read; the advisor and the model file share it."""

    def now(self) -> float:
        self.advance(LOOK)
        return super().now()


CLOCK = PlantedClock()


class Clips:
    """A dataset of 64 clips; reading one takes ``seconds``, during which the core is free."""

    def __init__(self, seconds: float, samples: Callable[[int], int] = lambda index: 4000) -> None:
        self.seconds, self.samples = seconds, samples

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        CLOCK.advance(self.seconds)  # a worker advances its own copy, which has no effect here
        return torch.full((1, self.samples(index)), 0.1)


class PlantedLoader(Loader):
    """The real Loader with planted arrival times of batches, for workers that need ``Clips.seconds`` a clip."""

    capacity = ready = None  # the real queue does not follow planted time

    def _epoch(self) -> Iterator[Any]:
        return self._paced(super()._epoch())

    def worker_batches(self, epoch: int = 0) -> Iterator[Any]:
        return self._paced(super().worker_batches(epoch))

    def _paced(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; each worker starts the next one when it is free and its prefetch queue has room."""
        workers, begin = self.plan.num_workers, CLOCK.now()
        free = [begin] * workers
        room = deque([begin] * workers * (self.plan.prefetch_factor or 2))
        for number, batch in enumerate(batches):
            if workers:
                clips = len(get_wave(getattr(batch, "batch", batch)))
                made = max(free[number % workers], room.popleft()) + clips * self._config.dataset.seconds
                free[number % workers] = made
                CLOCK.advance(max(0.0, made - CLOCK.now()))
                room.append(CLOCK.now())
            yield batch
