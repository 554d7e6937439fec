"""Stages: measured times as arrays of the measurement and its bootstrap replicates.

Entry 0 of an array is the measured time in milliseconds; the others are computed from resampled repetitions. All stages
use the same resampled rounds, since one round has the same conditions for all. Anything computed from such arrays gets
an interval.

Shapes: R replicates, the first one measured.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.records import (
    KEPT_SAMPLES,
    DeviceEngine,
    Interval,
    LoaderCost,
    Location,
    PartCost,
    ReceiveRate,
    Report,
    StageCost,
    WorkerEngine,
)
from audioaug.units import plural

Array = NDArray[np.float64]

REPLICATES = 48
NORMAL_95 = 1.96


class Stages:
    """The stages of a report. ``replicates=1``: only the measured values, which is cheaper.

    Methods return times for a batch as (R,) in milliseconds, or ``None`` if not measured.
    """

    def __init__(self, report: Report, replicates: int = REPLICATES, seed: int = 0) -> None:
        self.report, self.replicates = report, replicates
        rng = np.random.default_rng(seed)
        self._rounds = rng.random((replicates - 1, KEPT_SAMPLES))
        self.normal_R = np.concatenate([[0.0], rng.standard_normal(replicates - 1)])
        self._known: dict[object, Array | None] = {}
        self._ops = {(stage.where, stage.op, stage.engine): stage for stage in report.stages if stage.op is not None}
        self._parts = {(part.where, part.cut, part.threads): part for part in report.parts}
        self._rates = {(rate.cut, rate.worker_engine, rate.num_workers): rate for rate in report.loader_costs}

    # The workers

    def worker(self, cut: int, engine: WorkerEngine) -> Array:
        """Return one worker's time at a cut: decode, its ops as built, collate."""
        found = self._once(("worker", cut, engine), lambda: self._worker(cut, engine))
        assert found is not None
        return found

    def _worker(self, cut: int, engine: WorkerEngine) -> Array:
        total = np.zeros(self.replicates)
        for stage in self.report.stages:
            if stage.where == "worker" and stage.op is None:
                total = total + self._stage(stage)
        built = self._parts.get(("worker", cut, 1)) if engine == "batched" else None
        if built is not None:
            total = total + self._array(built.ms_per_batch, built.ci_ms, built.samples_ms)
        for op in range(self.report.chain.device_from if built is not None else cut):
            cost = self._op("worker", op, engine, "audiomentations")
            total = total + (0.0 if cost is None else self._stage(cost))
        return total

    def loader(self, cut: int, engine: WorkerEngine, workers: int) -> Array | None:
        """Return the time between batches of the loader alone.

        Measured at the ends of the chain; interpolated in proportion to one worker's time, or extrapolated if only the
        other engine was measured.
        """
        first, last = self.report.chain.cuts[0], self.report.chain.cuts[-1]
        measured = {rate.worker_engine for rate in self._rates.values() if rate.cut == last and rate.num_workers}
        by: WorkerEngine = engine if engine in measured or not workers else next(iter(measured), engine)
        ends: tuple[tuple[int, WorkerEngine], ...] = ((first, "audiomentations"), (last, by))
        low, high = (self._once(("rate", *end, workers), partial(self._rate, *end, workers)) for end in ends)
        if low is None or high is None:
            return None
        cheap, expensive, ours = (self.worker(*place)[0] for place in (*ends, (cut, engine)))
        share = (ours - cheap) / (expensive - cheap) if expensive > cheap else 0.0
        between = low + min(1.0, max(0.0, share)) * (high - low)
        return between if by == engine else between * max(1.0, ours / expensive)

    def _rate(self, cut: int, engine: WorkerEngine, workers: int) -> Array | None:
        """Return the rate measured with this many workers, or interpolated between the nearest counts.

        The time of one batch in one worker, w * L(w), is interpolated linearly and constant outside of the range.
        """
        known = {count: rate for (at, by, count), rate in self._rates.items() if (at, by) == (cut, engine)}
        if workers in known:
            return self._loader(known[workers])
        counts = sorted(count for count in known if count > 0)
        if not counts or workers == 0:
            return None
        below = max((count for count in counts if count < workers), default=counts[0])
        above = min((count for count in counts if count > workers), default=counts[-1])
        share = 0.0 if above == below else (workers - below) / (above - below)
        low, high = (self._loader(known[count]) * (count / workers) for count in (below, above))
        return np.asarray(low + share * (high - low))

    def _loader(self, rate: LoaderCost) -> Array:
        return self._array(rate.ms_per_batch, rate.ci_ms, rate.samples_ms, np.mean)

    def receive(self, cut: int, engine: WorkerEngine, workers: int) -> float:
        """Return the training process's time to receive a batch from workers; 0 if not measured.

        It hardly depends on the cut, except for whether the device part's parameters come with the batch.
        """
        last = self.report.chain.cuts[-1]
        ends: list[tuple[int, WorkerEngine]] = [
            (cut, engine),
            (last if cut == last else self.report.chain.cuts[0], "audiomentations"),
        ]
        found = (self._rates.get((at, by, workers)) for at, by in ends)
        return next((rate.receive_ms for rate in found if rate is not None), 0.0)

    @cached_property
    def receive_remote(self) -> Array:
        """The time to receive a batch from other nodes, at the best measured rate; 0 if none was measured."""
        return self._transfer(self.report.best_receive_rate)

    @cached_property
    def send_remote(self) -> Array:
        """The time that a worker on another node takes to send a batch; 0 if one alone was not measured."""
        rates = {rate.connections: rate for rate in self.report.receive_rates}
        return self._transfer(rates.get(1) if len(rates) > 1 else None)

    def _transfer(self, rate: ReceiveRate | None) -> Array:
        work = self.report.workload
        if rate is None:
            return np.zeros(self.replicates)
        usual = 4 * work.batch_size * work.clip_seconds * work.sample_rate  # float32, one channel
        ms = (self.report.signals.batch_bytes or usual) / 1e3 / rate.mb_per_second
        low, high = (bound / rate.mb_per_second for bound in rate.ci)
        return self._array(ms, (ms * low, ms * high), ())

    # The training process

    def device(self, cut: int, engine: DeviceEngine, threads: int) -> Array | None:
        """Return the training process's time at a cut: the step, its ops, and the cost of sharing the device.

        The cost of sharing (and of a copy that does not overlap) was measured with the whole device part, and is scaled
        in proportion. At best a part overlaps the step completely.
        """
        return self._once(("device", cut, engine, threads), lambda: self._device(cut, engine, threads))

    def _device(self, cut: int, engine: DeviceEngine, threads: int) -> Array | None:
        step, part = self.step(threads), self.part(cut, engine, threads)
        if step is None or part is None:
            return None
        whole = self._whole(threads)
        if whole is None or whole.both_ms is None or whole.step_ms is None:
            return step + part
        more = whole.both_ms - whole.step_ms - whole.ms_per_batch
        share = np.minimum(part / whole.ms_per_batch, 1.0)
        return np.maximum(step + part + share * max(more, -whole.ms_per_batch), step)

    def step(self, threads: int) -> Array | None:
        """Return the model's step with this many threads; never below the ceiling, its fastest."""
        ceiling = self.report.ceiling
        if ceiling is None:
            return None
        found = self._array(ceiling.step_ms, ceiling.ci_ms, ceiling.samples_ms)
        return found * max(self._slowdown(self._ceiling_threads, threads), 1.0)

    @property
    def _ceiling_threads(self) -> int:
        """Return the number of threads that the ceiling and every op alone were measured with."""
        ceiling, usual = self.report.ceiling, self.report.host.torch_threads
        return usual if ceiling is None else ceiling.threads or usual

    def part(self, cut: int, engine: DeviceEngine, threads: int) -> Array | None:
        """Return the time of the ops after a cut with this many threads: as built, else their sum."""
        if cut == len(self.report.chain.ops):
            return np.zeros(self.replicates)
        built = [part for (where, at, _), part in self._parts.items() if (where, at) == ("device", cut)]
        if built and engine != "torch-audiomentations":  # captured or not, the work is the same
            found = min(built, key=lambda part: abs(part.threads - threads))
            times = self._array(found.ms_per_batch, found.ci_ms, found.samples_ms)
            return times * self._part_slowdown(found.threads, threads)
        total = np.zeros(self.replicates)
        for op in range(cut, len(self.report.chain.ops)):
            stage = self._op("device", op, engine, "batched")
            if stage is None or stage.ms_per_batch is None:
                return None
            total = total + self._stage(stage)
        return total * self._part_slowdown(self._ceiling_threads, threads)

    def _part_slowdown(self, known: int, threads: int) -> float:
        """Return how many times longer the device part takes with ``threads`` threads, from the whole part."""
        ours, theirs = self._whole(known), self._whole(threads)
        if ours is None or theirs is None:
            return self._slowdown(known, threads)
        return theirs.ms_per_batch / ours.ms_per_batch

    def _whole(self, threads: int) -> PartCost | None:
        return self._parts.get(("device", self.report.chain.cuts[0], threads))

    def _slowdown(self, known: int, threads: int) -> float:
        """Return how many times longer a step takes with ``threads`` threads; an upper bound if not measured."""
        if known == threads:
            return 1.0
        ours, theirs = self._step_ms(known), self._step_ms(threads)
        return theirs / ours if ours and theirs else max(1.0, known / threads)

    def _step_ms(self, threads: int) -> float | None:
        steps = (stage for stage in self.report.stages if stage.where == "model")
        return next((stage.ms_per_batch for stage in steps if stage.engine == plural(threads, "thread")), None)

    # Both together

    def contention(self, engine: WorkerEngine, workers: int, threads: int) -> tuple[Array, Array] | None:
        """Return the slowdown factors (at least 1) of steps and batches when neither waits for the other.

        For this many workers; for other threads or engines the nearest measurement is used.
        """
        same = [it for it in self.report.contention if it.num_workers == workers]
        found = min(same, key=lambda it: (abs(it.threads - threads), it.worker_engine != engine), default=None)
        if found is None:
            return None
        alone = self._rates.get((found.cut, found.worker_engine, workers))
        batch = self._array(found.batch_ms, None, found.batch_samples_ms, np.mean)
        slower = batch / alone.ms_per_batch if alone is not None else np.ones(self.replicates)
        step = self._array(found.step_ms, None, found.step_samples_ms) / found.alone_ms
        return np.maximum(step, 1.0), np.maximum(slower, 1.0)

    @property
    def noise_samples(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The times of single steps, and of single batches of the whole chain in one process."""
        steps = next((stage.samples_ms for stage in self.report.stages if stage.where == "model"), ())
        single = self._rates.get((self.report.chain.cuts[-1], "audiomentations", 0))
        return steps, () if single is None else single.samples_ms

    @cached_property
    def unsteadiness(self) -> float:
        """Relative variation of today's blocks, from their interquartile range."""
        today = self.report.current
        blocks = next((it.step.seconds for it in self.report.measurements if today and it.candidate == today.name), ())
        if len(blocks) < 2:
            return 0.0
        quarter, middle, three = np.quantile(blocks, [0.25, 0.5, 0.75])
        return float((three - quarter) / 1.35 / middle)

    def _op(self, where: Location, op: int, engine: str, otherwise: str) -> StageCost | None:
        """Return an op's cost with an engine, else with the other one."""
        return self._ops.get((where, op, engine)) or self._ops.get((where, op, otherwise))

    def _stage(self, stage: StageCost) -> Array:
        found = self._once(stage, lambda: self._array(stage.ms_per_batch or 0.0, stage.ci_ms, stage.samples_ms))
        assert found is not None
        return found

    def _array(
        self,
        ms: float,
        ci_ms: Interval | None,
        samples_ms: tuple[float, ...],
        average: Callable[..., Any] = np.median,
    ) -> Array:
        """Return a measured time and its replicates, from its repetitions or else its interval.

        Rates use the mean, in which slow batches count; repetitions of the same work use the median, which is robust.
        """
        if self.replicates == 1:
            return np.array([ms])
        if len(samples_ms) > 1:
            samples = np.asarray(samples_ms[:KEPT_SAMPLES])
            resampled = samples[(self._rounds[:, : len(samples)] * len(samples)).astype(np.int64)]
            return np.concatenate([[ms], average(resampled, axis=1) * (ms / average(samples))])
        low, high = ci_ms or (ms, ms)
        return np.asarray(ms + np.maximum((high - low) / (2 * NORMAL_95) * self.normal_R, -ms / 2))

    def _once(self, key: object, make: Callable[[], Array | None]) -> Array | None:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]
