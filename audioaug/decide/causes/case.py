"""The case to diagnose: a report, the current configuration, and the recommended one."""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from audioaug.decide.ablation import MOST_OF, Change, differing_knobs, single_changes
from audioaug.decide.predict import worker_ms, worker_stages
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.records import Candidate, Examples, Measurement, Report, Signals, StageCost

NOT_THE_BOTTLENECK = 0.02
"""Largest stall that is not worth improving."""

LITTLE = 0.05
"""The same, if no raced candidate is faster."""

GOOD_PART = 0.25

NOISE = 0.25
"""Half width of a step's interval, relative to it, above which results are unreliable."""

FEWEST_ROUNDS = 3
"""Fewest rounds of a race; screening has fewer, and candidates that leave earlier are clearly slower."""

AS_MUCH = 0.1
"""Share of the gain by which changes may differ that give about as much."""

FAR_LONGER = 2.0
"""Factor by which a part may not exceed the whole, which was timed at another moment."""

PROBE = 16
"""Number of sampled examples that the stages of a worker are timed with."""


def stall(report: Report, step_ms: float) -> float:
    """Return the stall of a step: its share beyond the model's own step."""
    assert report.ceiling is not None
    return max(0.0, 1.0 - report.ceiling.step_ms / step_ms)


@dataclass(frozen=True)
class Case:
    """The measured configuration to explain (``current``), and the recommended candidate (``best``)."""

    report: Report
    current: Candidate
    best: Candidate | None = None

    @property
    def signals(self) -> Signals:
        """The signals of the report."""
        return self.report.signals

    @property
    def model_ms(self) -> float:
        """The step of the model alone, the ceiling."""
        assert self.report.ceiling is not None
        return self.report.ceiling.step_ms

    @property
    def step_ms(self) -> float:
        """Today's step."""
        assert self.current.measured_ms is not None
        return self.current.measured_ms

    @property
    def stall(self) -> float:
        """The stall of today's step."""
        return stall(self.report, self.step_ms)

    @property
    def waits(self) -> bool:
        """Whether the stall is large enough to be worth improving."""
        nothing_better = self.best is not None and self.best.name == self.current.name
        return self.stall > (LITTLE if nothing_better else NOT_THE_BOTTLENECK)

    @cached_property
    def noise(self) -> float:
        """Relative half width of the interval of today's step: the median over paired ratios, else of the step itself.

        At least the excess of the ceiling over the step.
        """
        low, high = self.current.measured_ci_ms or (self.step_ms, self.step_ms)
        shares = [(it.high - it.low) / 2 / it.value for it in self.ratios] or [(high - low) / 2 / self.step_ms]
        return max(median(shares), self.model_ms / self.step_ms - 1)

    @property
    def in_time(self) -> bool:
        """Whether data arrives in time: shown by the race with the ceiling, or by a step with little noise."""
        return not self.waits and (self.best is None or self.noise < NOISE)

    @property
    def same_way(self) -> Candidate | None:
        """The recommended candidate, if it differs from today's in workers and threads only."""
        best, current = self.best, self.current
        same = best is not None and (best.cut, best.worker_engine) == (current.cut, current.worker_engine)
        return best if same and best is not None and best.name != current.name else None

    @cached_property
    def changes(self) -> list[Change]:
        """What each single change from today's configuration to the recommended one gains, the largest first."""
        return [] if self.best is None else single_changes(self.report, self.current, self.best)

    @property
    def explanation(self) -> Change | None:
        """The single change that gives the largest part of the gain, at least about half of it.

        Without workers today, a change of their engine includes that of their number, which is enough if it gives
        about as much.
        """
        largest = next((change for change in self.changes if change.share >= MOST_OF), None)
        if largest is None or largest.knob != "worker_engine" or self.current.num_workers:
            return largest
        workers = (change for change in self.changes if change.knob == "num_workers")
        return next((change for change in workers if change.share >= largest.share - AS_MUCH), largest)

    @property
    def is_unexplained(self) -> bool:
        """Whether all single changes, at least two, are known, but none gives half of the gain."""
        if not self.changes or self.best is None or self.explanation is not None:
            return False
        return 1 < len(self.changes) == len(differing_knobs(self.report, self.current, self.best))

    def is_about(self, knob: str) -> bool:
        """Return whether the gain comes from this setting: its change alone gives the most of it.

        If no single change is known, that is assumed where nothing but workers and threads differs.
        """
        if self.changes:
            return self.explanation is not None and self.explanation.knob == knob
        return self.same_way is not None

    @property
    def in_workers(self) -> str:
        """The process that loads today: a worker or the training process."""
        return "a worker" if self.current.num_workers else "the training process"

    @cached_property
    def measured(self) -> Measurement | None:
        """Today's measured blocks."""
        return next((one for one in self.report.measurements if one.candidate == self.current.name), None)

    @property
    def ratios(self) -> list[Ratio]:
        """Ratios of today's blocks to those of candidates that ran in at least as many rounds of a race."""
        mine, others = self.measured, [one for one in self.report.measurements if one.candidate != self.current.name]
        if mine is None or len(mine.step.seconds) < FEWEST_ROUNDS:
            return []
        return [paired_ratio(mine, it) for it in others if len(it.step.seconds) >= len(mine.step.seconds)]

    @cached_property
    def wait_ms(self) -> float | None:
        """The time of today's step spent waiting for a batch."""
        found = self.measured
        return None if found is None or not is_timed(found) else found.wait.ms

    @property
    def receive_ms(self) -> float:
        """The time to receive a batch from workers, a part of the step; 0 if it was far longer: it was disturbed."""
        found = self.signals.receive_ms or 0.0
        return min(found, self.step_ms) if found < FAR_LONGER * self.step_ms else 0.0

    @cached_property
    def stages(self) -> list[StageCost]:
        """Today's stages of loading a batch, slowest first."""
        found = worker_stages(self.report, self.current.cut, self.current.worker_engine)
        return sorted((stage for stage in found if stage.ms_per_batch), key=lambda stage: -(stage.ms_per_batch or 0.0))

    @cached_property
    def batch_ms(self) -> float:
        """One worker's time to load a batch."""
        return worker_ms(self.report, self.current.cut, self.current.worker_engine)[1]

    @property
    def epoch_steps(self) -> int | None:
        """Steps in an epoch; ``None`` for a stream of unknown length."""
        clips = self.report.workload.clips
        return None if clips is None else math.ceil(clips / self.report.workload.batch_size)

    @property
    def examples(self) -> Examples | None:
        """The examples that were timed one by one, if there are enough."""
        found = self.signals.examples
        return found if found is not None and len(found.again_ms) >= PROBE else None

    def matters(self, batch_ms: float) -> bool:
        """Return whether this time for a batch, divided by today's workers, is a good part of the stall."""
        return batch_ms / max(1, self.current.num_workers) >= GOOD_PART * (self.step_ms - self.model_ms)

    def device_stage(self, op: int | None) -> StageCost | None:
        """Return an op's cost on the device with our engine, if it has one."""
        stages = (it for it in self.report.stages if (it.where, it.op, it.engine) == ("device", op, "batched"))
        return next((stage for stage in stages if stage.ms_per_batch is not None), None)


def mean(values: tuple[float, ...] | tuple[int, ...]) -> float:
    """Return the mean; 0 of no values."""
    return fmean(values) if values else 0.0


def is_timed(measurement: Measurement) -> bool:
    """Return whether the waiting time of every block is known."""
    return len(measurement.wait.seconds) == len(measurement.step.seconds) > 0
