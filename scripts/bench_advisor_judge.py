"""Judge of advice: a plain training loop over torch's DataLoader, without ``audioaug.Loader`` and the advisor's racer.

Blocks of today's configuration, the advice and other candidates alternate; in a round all have the same examples, with
the same draws, unless clips have many lengths: then the first step on each length is slow, as it is in training, and
the same examples would be new only to the first candidate.

Shapes: B examples, C channels, T samples.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch
from bench_advisor_records import Regret
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import DataLoader

from audioaug import Chain
from audioaug.decide.ablation import changed, differing_knobs
from audioaug.decide.race import leader, paired_ratio
from audioaug.decide.shortlist import placement_of
from audioaug.engine import DeviceChain, WorkerChain, build_device, build_worker
from audioaug.records import Candidate, Measurement, Report, Timing, plan_of
from audioaug.units import Seconds

BLOCK = 0.5
"""Least seconds of a block."""

RAGGED_STEPS = 8
"""Fewest steps of a block where batches are of many lengths."""

FEWEST_ROUNDS, MOST_ROUNDS = 6, 12

RIVALS = 2
"""Other raced candidates that are judged; and one that was only predicted."""

SETTLING = 2
"""Steps that are slower after torch's number of threads changes, if there are more of them than cores."""

MOMENT: Seconds = 0.05
"""In which workers are seen to be idle; CPU time is counted in units of 10 ms."""


# What a user would write


@dataclass
class Clips:
    """A dataset that augments: an example is (wave, label, index)."""

    dataset: Any
    augment: WorkerChain

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        example = self.dataset[index]
        wave_CT, label = example if isinstance(example, tuple) else (example, 0)
        return torch.from_numpy(self.augment(np.asarray(wave_CT), key=index)), label, index


@dataclass
class Collate:
    """Stacks clips, padded to the longest, with labels, lengths and indices; ops on batches, if any, run here."""

    on_batches: DeviceChain | None

    def __call__(self, examples: list[tuple[torch.Tensor, int, int]]) -> tuple[torch.Tensor, ...]:
        waves, labels, indices = zip(*examples, strict=True)
        length_B, index_B = (torch.tensor(it) for it in ([wave.shape[-1] for wave in waves], indices))
        x_BCT = torch.stack([pad(wave, (0, int(length_B.max()) - wave.shape[-1])) for wave in waves])
        if self.on_batches is not None:
            x_BCT, length_B = self.on_batches(x_BCT, lengths=length_B, key=index_B, return_lengths=True)
        return x_BCT, torch.tensor(labels), length_B, index_B


@dataclass
class Training:
    """What is trained: the advisor's model, chain and data, with a plain step. ``step``: the user's own, if any."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    chain: Chain
    dataset: Any
    batch_size: int
    ragged: bool
    step: Callable[..., object] | None

    def run(self, batch: tuple[torch.Tensor, ...], augment: DeviceChain) -> None:
        """Augment the batch on the device, and train on it."""
        x_BCT, label_B, length_B, index_B = batch
        with torch.no_grad():
            x_BCT = augment(x_BCT, lengths=length_B, key=index_B)
        if self.step is not None:
            self.step(self.model, (x_BCT, label_B), self.optimizer)
            return
        loss = cross_entropy(self.model(x_BCT), label_B)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Feeder:
    """One candidate: its DataLoader, whose workers live on between blocks, its device part and number of threads."""

    def __init__(self, training: Training, candidate: Candidate, threads: int, steps: int) -> None:
        plan = plan_of(candidate)
        on_clips, on_batches = build_worker(training.chain, plan)
        self.training, self.steps, self.threads = training, steps, candidate.threads or threads
        self.augment = build_device(training.chain, plan.cut, plan.device_engine)
        self.queued = plan.num_workers * (plan.prefetch_factor or 2)
        self.batches = iter(
            DataLoader(
                Clips(training.dataset, on_clips),  # type: ignore[arg-type]
                batch_sampler=batches(
                    len(training.dataset),
                    training.batch_size,
                    self.queued + SETTLING,
                    steps,
                    candidate.name if training.ragged else "",
                ),
                num_workers=plan.num_workers,
                collate_fn=Collate(on_batches),
                prefetch_factor=plan.prefetch_factor if plan.num_workers else None,
                multiprocessing_context=plan.start_method if plan.num_workers else None,
            )
        )
        self._train(1)

    def block(self) -> Seconds:
        """Train for a block, after the batches that workers have queued before it; return seconds a step.

        Workers that are idle after a step are faster than training: then their queue is always full, as it is here.
        """
        settle()
        self._train(SETTLING)
        if is_idle():
            for _ in itertools.islice(self.batches, self.queued):
                pass
            settle()
        else:
            self._train(self.queued)
        begin = time.perf_counter()
        self._train(self.steps)
        return (time.perf_counter() - begin) / self.steps

    def _train(self, steps: int) -> None:
        torch.set_num_threads(self.threads)
        for batch in itertools.islice(self.batches, steps):
            self.training.run(batch, self.augment)


def batches(size: int, batch_size: int, untimed: int, timed: int, owner: str = "") -> Iterator[list[int]]:
    """Yield indices without end: one batch, then in each round untimed ones, and those of all or of an ``owner``."""
    yield [*range(batch_size)]
    for number in itertools.count():
        for seed, count in ((f"{number} untimed {owner}", untimed), (f"{number} {owner}", timed)):
            draw = random.Random(seed)
            for _ in range(count):
                yield [draw.randrange(size) for _ in range(batch_size)]


def train(
    training: Training, candidates: Iterable[Candidate], step_seconds: Seconds, seconds: Seconds
) -> dict[str, Measurement]:
    """Train with each candidate in turn, in rounds, for about ``seconds``; return their blocks by name.

    ``step_seconds`` is about what a step takes.
    """
    threads = torch.get_num_threads()
    steps = max(RAGGED_STEPS if training.ragged else 1, math.ceil(BLOCK / step_seconds))
    end = time.monotonic() + seconds
    try:
        feeders = {candidate.name: Feeder(training, candidate, threads, steps) for candidate in candidates}
        times: dict[str, list[Seconds]] = {name: [] for name in feeders}
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and time.monotonic() > end:
                break
            for name in random.Random(number).sample(sorted(feeders), len(feeders)):
                times[name].append(feeders[name].block())
    finally:
        torch.set_num_threads(threads)
    return {name: Measurement(name, Timing(tuple(found)), Timing(()), steps) for name, found in times.items()}


def settle(most: Seconds = 30.0) -> None:
    """Wait until our workers are idle, since they have filled their queues; at most for ``most`` seconds."""
    end = time.monotonic() + most
    while not is_idle() and time.monotonic() < end:
        pass


def is_idle() -> bool:
    """Return whether our workers use no core for a moment."""
    before = _cpu_seconds()
    time.sleep(MOMENT)
    return _cpu_seconds() == before


def _cpu_seconds() -> Seconds:
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())


# What it says of the advice


def contenders(report: Report) -> tuple[list[Candidate], dict[str, str]]:
    """Return the candidates to judge (today's, the advice, others), and each single change's candidate by its setting.

    The others are the two best that were raced, the best that was only predicted, and two that need no advice: the
    whole chain in a worker on each core, and on the device beside one worker.
    """
    assert report.current is not None
    today, advice = report.current, report.best
    changes = {knob: changed(today, advice, knob) for knob in differing_knobs(report, today, advice)}
    judged = {it.name: it for it in (today, advice, *changes.values())}
    others = [it for it in report.candidates if it.status != "infeasible" and it.name not in judged]
    raced = sorted((it for it in others if it.measured_ms), key=lambda it: it.measured_ms or 0.0)
    predicted = sorted(
        (it for it in others if it.predicted_ms and not it.measured_ms), key=lambda it: it.predicted_ms or 0.0
    )
    cuts, ops, cores = report.chain.cuts, len(report.chain.ops), int(report.host.usable_cores)
    usual = [Candidate(placement_of(cut, ops), cut, num_workers=n) for cut, n in ((cuts[-1], cores), (cuts[0], 1))]
    rivals = {it.name: it for it in (*raced[:RIVALS], *predicted[:1], *usual)}
    return [*(rivals | judged).values()], {knob: it.name for knob, it in changes.items()}


def regret(found: Mapping[str, Measurement], advice: str) -> tuple[str, Regret]:
    """Compare the advice with the best, in each round with what was best in the others of every second round.

    A candidate that is chosen for being fast in a round was also lucky in that round, which must not count.
    """
    rounds = len(found[advice].step.seconds)
    best = [leader({name: _part(one, start) for name, one in found.items()}) for start in (1, 0)]
    rival = Timing(tuple(found[best[number % 2]].step.seconds[number] for number in range(rounds)))
    ratio = paired_ratio(found[advice], replace(found[advice], step=rival))
    return leader(found), Regret(ratio.value, ratio.low, ratio.high)


def _part(measurement: Measurement, start: int) -> Measurement:
    return replace(measurement, step=Timing(measurement.step.seconds[start::2]))


def shares(ms: Mapping[str, float], today: str, advice: str, changes: Mapping[str, str]) -> dict[str, float]:
    """Return which share of the measured gain each single change gives, by its setting; none without a gain."""
    gain = ms[today] - ms[advice]
    return {knob: (ms[today] - ms[name]) / gain for knob, name in changes.items()} if gain > 0 else {}
