"""Bench: what stages are timed with: the job, a clock, and batches that lie on the device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch

from audioaug.advise.training_job import TrainingJob
from audioaug.measure import Clock, interleave
from audioaug.records import Timing
from audioaug.units import Seconds

ROUNDS = 3
"""The fewest in which works take turns, however long they take."""


@dataclass(frozen=True)
class Bench:
    """The job with a clock for its device; its batches are loaded as the first thing that is measured."""

    job: TrainingJob
    clock: Clock
    batches: Sequence[Any] = ()

    @property
    def typical(self) -> Any:
        """The batch whose audio is of the middle length, since what is timed on one batch is to hold for all."""
        return sorted(self.batches, key=lambda batch: self.job.wave_of(batch).shape[-1])[len(self.batches) // 2]

    @property
    def wave(self) -> torch.Tensor:
        """The audio of that batch, on the device."""
        return self.job.wave_of(self.typical)

    def step(self) -> Callable[[], None]:
        """Return training steps on these batches, in turn and without end."""
        batches = cycle(self.batches)
        return lambda: self.job.step(next(batches))

    def interleave(
        self, works: Mapping[str, Callable[[], object]], seconds: Seconds, tick: Callable[..., None] | None = None
    ) -> dict[str, Timing]:
        """Time several works under the same conditions, in about so many seconds; ``tick`` is called every round."""
        return interleave(works, self.clock, seconds=seconds, at_least=ROUNDS, on_round=tick)
