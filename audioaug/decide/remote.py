"""Remote: how many workers on other nodes keep up with training, what bounds its step then, and what an epoch costs.

A remote worker is one process on one core, as fast as one here. It takes C_k for a batch at cut k, and to send it, if
that was measured. This machine receives the batches of its ranks over one link, and each of them trains for D_k::

    T = max(ranks * C_k / workers, ranks * receive, D_k)

Without a GPU, receiving a batch also adds to D_k. ``cluster`` simulates the stalls due to variance, and slow and lost
workers.

Shapes: R replicates, as in ``stages``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from audioaug.decide.cluster import Bottleneck, Cluster, ClusterRun, simulate_cluster
from audioaug.decide.predict import as_prediction, threads_beside, worker_engines
from audioaug.decide.shortlist import placement_of
from audioaug.decide.stages import Array, Stages
from audioaug.records import Candidate, Interval, Report, WorkerEngine
from audioaug.units import format_interval, format_ms, format_percent, format_seconds, plural, significant

MOST_REMOTE = 10_000
"""Most remote workers."""

SAME = 0.02
"""A gain below this share is none."""

EXACT = 1e-3
"""Simulated steps within this share are equal."""

SLOW_OR_LOST = 0.05
"""Share of the workers that are assumed to be slow, and as many to be lost."""

SPARE = (1.0, 1.05, 1.1, 1.25)
"""Numbers of workers whose costs are compared, relative to those that a cut needs without stalls."""

SAME_COST = 0.01
"""Costs within this share are equal; the most workers are preferred."""


@dataclass(frozen=True)
class Split:
    """A cut and its faster worker engine; a remote worker's time for a batch, and that of training (R,), in ms."""

    cut: int
    engine: WorkerEngine
    worker_R: Array
    step_R: Array


@dataclass(frozen=True)
class Step:
    """The predicted step of a training that remote workers feed."""

    split: Split
    ms: float
    run: ClusterRun


class Remote:
    """Predicts the steps of a training that remote workers feed; ``splits`` is empty if a stage was not measured."""

    def __init__(self, report: Report) -> None:
        self.report, self.stages, self.ranks = report, Stages(report), report.host.local_ranks
        self.splits = [split for cut in report.chain.cuts if (split := self._split(cut)) is not None]

    def _split(self, cut: int) -> Split | None:
        """Return what happens at a cut, where training has all the threads that it had alone."""
        report, stages, receive_R = self.report, self.stages, self.stages.receive_remote
        threads = threads_beside(report, 0) or report.host.torch_threads
        step_R = stages.device(cut, "batched", threads)
        found = [(engine, stages.loader(cut, engine, 1)) for engine in worker_engines(report, cut)]
        timed = [(worker_R + stages.send_remote, engine) for engine, worker_R in found if worker_R is not None]
        if step_R is None or not timed:
            return None
        worker_R, engine = min(timed, key=lambda it: it[0][0])
        return Split(cut, engine, worker_R, step_R if report.host.has_gpu else step_R + receive_R)

    def bounds(self, split: Split, workers: float) -> Array:
        """Return the step without stalls (R,)."""
        others_R = self.ranks * np.maximum(split.worker_R / workers, self.stages.receive_remote)
        return np.maximum(others_R, split.step_R)

    def step(self, workers: int, slow: int = 0, lost: int = 0) -> Step:
        """Return the step at the best cut; the least work for the workers if several are equally fast.

        Args:
            workers: number of remote workers.
            slow: how many of them take twice as long.
            lost: how many of them are lost, after the time of a batch.
        """
        bounds = {split.cut: float(f"{self.bounds(split, workers)[0]:.4g}") for split in self.splits}
        best: Step | None = None
        for split in sorted(self.splits, key=lambda it: (bounds[it.cut], it.worker_R[0])):
            if best is not None and best.ms <= (1 + EXACT) * bounds[split.cut]:
                break
            run = self._simulated(split, workers, slow, lost)
            if best is None or self.ranks * run.step_ms < best.ms:
                best = Step(split, self.ranks * run.step_ms, run)
        assert best is not None
        return best

    def _simulated(self, split: Split, workers: int, slow: int, lost: int) -> ClusterRun:
        """Simulate the batches of all ranks."""
        cluster = Cluster(
            workers,
            batch_ms=float(split.worker_R[0]),
            step_ms=float(split.step_R[0]) / self.ranks,
            receive_ms=float(self.stages.receive_remote[0]),
            slow=slow,
            lost_ms=(float(split.worker_R[0]),) * lost,
        )
        return simulate_cluster(cluster, *self.stages.noise_samples)

    def interval(self, step: Step, workers: int) -> Interval:
        """Return the 90 % interval of a step."""
        bounds_R = self.bounds(step.split, workers)
        return as_prediction(self.stages, bounds_R * (step.ms / bounds_R[0]), step.run.bottleneck).ci_ms

    @property
    def limit(self) -> tuple[float, Bottleneck]:
        """The step with any number of workers, and its bottleneck: training or receiving."""
        training, receiving = min(it.step_R[0] for it in self.splits), self.ranks * self.stages.receive_remote[0]
        return float(max(training, receiving)), "receiving" if receiving > training else "training"

    @property
    def turning_points(self) -> set[int]:
        """The numbers of workers from which more would only help at another cut: one of them is the cheapest."""
        needed = (self.ranks * it.worker_R[0] / self.bounds(it, math.inf)[0] for it in self.splits)
        return {min(MOST_REMOTE, math.ceil(spare * count)) for count in needed for spare in SPARE}

    def enough(self, slow_share: float = 0.0) -> int | None:
        """Return how many workers are enough for a step within 2 % of that with any number; ``None`` if over 10,000.

        Args:
            slow_share: the share of the workers that take twice as long.
        """
        goal_ms = (1 + SAME) * self.limit[0]

        def reached(workers: int) -> bool:
            return self.step(workers, slow=math.ceil(slow_share * workers)).ms <= goal_ms

        low = max(0, math.ceil(min(self.ranks * it.worker_R[0] for it in self.splits) / goal_ms) - 1)
        high, more = low + 1, 1
        while high < MOST_REMOTE and not reached(high):
            low, high, more = high, min(MOST_REMOTE, high + more), 2 * more
        if high >= MOST_REMOTE and not reached(MOST_REMOTE):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return high


def remote_sentences(
    report: Report, values: Mapping[str, float], asked: str, alone_ms: float | None
) -> tuple[str, ...]:
    """Describe the step with ``values["remote"]`` workers on other nodes, what bounds it, and what an epoch costs.

    Args:
        report: what was measured, on the machine in question.
        values: as for ``what_if``.
        asked: the values in words.
        alone_ms: the best step without remote workers; ``None`` if it is not known.
    """
    remote, workers = Remote(report), int(values["remote"])
    if not remote.splits:
        return (f"With {asked}: no prediction, since not every stage was measured.",)
    step = remote.step(workers)
    cut, engine = step.split.cut, step.split.engine
    name = Candidate(placement_of(cut, len(report.chain.ops)), cut, engine, num_workers=workers).name
    now = "" if alone_ms is None else f" instead of {format_ms(alone_ms)} without remote workers"
    time = f"{format_ms(step.ms)} a step ({format_interval(*remote.interval(step, workers))})"
    return (
        f"With {asked}, {name} would take {time}{now} (predicted).",
        *_bottlenecks(remote, step),
        *_robustness(remote, workers),
        *_epoch(remote, values, step, alone_ms),
        *_not_included(report),
    )


def _bottlenecks(remote: Remote, step: Step) -> Iterable[str]:
    """Describe the bottleneck, how many workers are enough, and the bottleneck with more of them."""
    rate = remote.report.best_receive_rate
    training = "training itself" if remote.report.host.has_gpu or rate is None else "training, including receiving,"
    names = {"workers": "the workers", "receiving": "receiving", "training": training}
    now = names[step.run.bottleneck].rstrip(",")
    yield f"The bottleneck would be {now}; the workers would be {format_percent(step.run.busy)} busy (predicted)."
    (limit_ms, bottleneck), enough, enough_slow = remote.limit, remote.enough(), remote.enough(SLOW_OR_LOST)
    if enough is None:
        yield f"Even {MOST_REMOTE:,} workers would be the bottleneck (predicted)."
        return
    slow = ""
    if enough_slow not in (None, enough):
        slow = f" ({enough_slow:,} if {100 * SLOW_OR_LOST:.0f} % take twice as long)"
    size = f"{format_ms(limit_ms)} a step"
    if bottleneck == "receiving" and rate is not None:
        size = f"{significant(rate.mb_per_second, 3)} MB/s"
    yield (
        f"More than {plural(enough, 'worker')}{slow} would gain less than {100 * SAME:.0f} %, since "
        f"{names[bottleneck]} is then the bottleneck, with {size} (predicted)."
    )


def _robustness(remote: Remote, workers: int) -> Iterable[str]:
    """Describe the step with some slow and some lost workers."""
    count = math.ceil(SLOW_OR_LOST * workers)
    if 2 * count >= workers:
        return
    step = remote.step(workers, slow=count, lost=count)
    made_again = step.run.made_again
    again = f" with {made_again:,} unfinished {'batch' if made_again == 1 else 'batches'}" if made_again else ""
    yield (
        f"If {count:,} of them took twice as long and {count:,} more were lost{again}, a step would take "
        f"{format_ms(step.ms)} (predicted)."
    )


def _epoch(remote: Remote, values: Mapping[str, float], step: Step, alone_ms: float | None) -> Iterable[str]:
    """Describe the time of an epoch and, with prices, its cost with fewer workers and with the cheapest number."""
    work, workers = remote.report.workload, int(values["remote"])
    if not {"clips", "core_price"} & values.keys():
        return
    clips = values.get("clips") or work.clips
    if clips is None:
        yield "The cost of an epoch is not known, since its length is not: give clips=N."
        return
    hours = clips / work.batch_size / remote.ranks / 3.6e6
    took = f"An epoch of {plural(round(clips), 'clip')} would take {format_seconds(3600 * hours * step.ms)}"
    number = plural(workers, "remote worker")
    if "core_price" not in values:
        yield f"{took} with {number} (predicted)."
        return

    def cost(count: int) -> float:
        ms = remote.step(count).ms if count else alone_ms or math.inf
        return hours * ms * (count * values["core_price"] + values.get("machine_price", 0.0))

    fewer = f", and {significant(cost(workers // 2), 3)} with {workers // 2:,}" if workers > 1 else ""
    yield f"{took} and cost {significant(cost(workers), 3)} with {number}{fewer} (predicted)."
    if "machine_price" in values:
        costs = {count: cost(count) for count in (0, workers, *remote.turning_points)}
        cheapest = max(count for count in costs if costs[count] <= (1 + SAME_COST) * min(costs.values()))
        least = significant(costs[cheapest], 3)
        yield f"The cheapest number is {cheapest:,}, with which an epoch would cost {least} (predicted)."


def _not_included(report: Report) -> Iterable[str]:
    """Say what the prediction is without, if it was not measured."""
    if not report.receive_rates:
        yield (
            "How fast this machine receives batches, and how fast a worker sends them, was not measured, so it is not "
            'included: give receive=MB/s, or install "audioaug[ray]" and let the advisor measure it.'
        )
    elif len(report.receive_rates) == 1:
        yield "How fast a worker sends batches was not measured, so it is not included."
