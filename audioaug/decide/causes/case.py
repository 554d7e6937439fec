"""The case: a report, the configuration in question, and the one that is recommended."""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from audioaug.decide.predict import worker_ms, worker_stages
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.records import Candidate, Examples, Measurement, Report, Signals, StageCost

NOT_THE_BOTTLENECK = 0.02
"""A stall of at most this share is not worth anybody's time."""

LITTLE = 0.05
"""Nor is one of this share where nothing that was raced makes it less."""

GOOD_PART = 0.25

NOISE = 0.25
"""Half the interval of a step, as a share of it: with more, little can be said."""

FEWEST_ROUNDS = 4
"""Of a race; a screening has fewer, and who leaves earlier is plainly slower."""

PROBE = 16
"""The first examples that were drawn: all stages of a worker are timed with them."""


def stall(report: Report, step_ms: float) -> float:
    """Return the share of a step that the model alone would not need."""
    assert report.ceiling is not None
    return max(0.0, 1.0 - report.ceiling.step_ms / step_ms)


@dataclass(frozen=True)
class Case:
    """What is to be explained: ``current``, which was measured; ``best`` is the candidate that is recommended."""

    report: Report
    current: Candidate
    best: Candidate | None = None

    @property
    def signals(self) -> Signals:
        """What was seen beside times."""
        return self.report.signals

    @property
    def model_ms(self) -> float:
        """The model's own step."""
        assert self.report.ceiling is not None
        return self.report.ceiling.step_ms

    @property
    def step_ms(self) -> float:
        """The step as it is today."""
        assert self.current.measured_ms is not None
        return self.current.measured_ms

    @property
    def stall(self) -> float:
        """The share of today's step that the model alone would not need."""
        return stall(self.report, self.step_ms)

    @property
    def waits(self) -> bool:
        """Whether there is something to be gained at all."""
        nothing_better = self.best is not None and self.best.name == self.current.name
        return self.stall > (LITTLE if nothing_better else NOT_THE_BOTTLENECK)

    @cached_property
    def noise(self) -> float:
        """Half the interval of today's step, as a share of it: beside others in the same rounds, which had the same
        batches and neighbours, in the middle; else its own. At least what the model alone seems to need more than it.
        """
        low, high = self.current.measured_ci_ms or (self.step_ms, self.step_ms)
        shares = [(it.high - it.low) / 2 / it.value for it in self.ratios] or [(high - low) / 2 / self.step_ms]
        return max(median(shares), self.model_ms / self.step_ms - 1)

    @property
    def in_time(self) -> bool:
        """Whether data comes in time: the race with the ceiling has shown it, or a step that is no riddle tells."""
        return not self.waits and (self.best is None or self.noise < NOISE)

    @property
    def same_way(self) -> Candidate | None:
        """The recommended candidate, if it differs from today's in its workers and threads only."""
        best, current = self.best, self.current
        same = best is not None and (best.cut, best.worker_engine) == (current.cut, current.worker_engine)
        return best if same and best is not None and best.name != current.name else None

    @property
    def in_workers(self) -> str:
        """Who loads today: ``a worker`` or the training process."""
        return "a worker" if self.current.num_workers else "the training process"

    @cached_property
    def measured(self) -> Measurement | None:
        """Today's blocks."""
        return next((one for one in self.report.measurements if one.candidate == self.current.name), None)

    @property
    def ratios(self) -> list[Ratio]:
        """How today's blocks compare with those of all that ran in as many rounds of a race at least."""
        mine, others = self.measured, [one for one in self.report.measurements if one.candidate != self.current.name]
        if mine is None or len(mine.step.seconds) < FEWEST_ROUNDS:
            return []
        return [paired_ratio(mine, it) for it in others if len(it.step.seconds) >= len(mine.step.seconds)]

    @cached_property
    def wait_ms(self) -> float | None:
        """What of today's step was spent waiting for a batch."""
        found = self.measured
        return None if found is None or not _is_timed(found) else found.wait.ms

    @cached_property
    def stages(self) -> list[StageCost]:
        """What is done today to load a batch, the slowest first."""
        found = worker_stages(self.report, self.current.cut, self.current.worker_engine)
        return sorted((stage for stage in found if stage.ms_per_batch), key=lambda stage: -(stage.ms_per_batch or 0.0))

    @cached_property
    def batch_ms(self) -> float:
        """What it takes one worker to load a batch."""
        return worker_ms(self.report, self.current.cut, self.current.worker_engine)[1]

    @property
    def epoch_steps(self) -> int | None:
        """Steps in an epoch; ``None`` for a stream, whose length is unknown."""
        clips = self.report.workload.clips
        return None if clips is None else math.ceil(clips / self.report.workload.batch_size)

    @property
    def examples(self) -> Examples | None:
        """The examples that were looked at one by one, if they are enough to say something of all."""
        found = self.signals.examples
        return found if found is not None and len(found.again_ms) >= PROBE else None

    def matters(self, batch_ms: float) -> bool:
        """Return whether so much time for a batch, shared by today's workers, is a good part of what is too much."""
        return batch_ms / max(1, self.current.num_workers) >= GOOD_PART * (self.step_ms - self.model_ms)

    def device_stage(self, op: int | None) -> StageCost | None:
        """Return what an op costs on the device in our build, if it has one."""
        stages = (it for it in self.report.stages if (it.where, it.op, it.engine) == ("device", op, "batched"))
        return next((stage for stage in stages if stage.ms_per_batch is not None), None)


def mean(values: tuple[float, ...] | tuple[int, ...]) -> float:
    """Return the mean; 0 of none."""
    return fmean(values) if values else 0.0


def _is_timed(measurement: Measurement) -> bool:
    return len(measurement.wait.seconds) == len(measurement.step.seconds) > 0
