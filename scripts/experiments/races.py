"""Ways to feed one training loop, raced: each with a step and threads of its own, in turn."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from audioaug.advise.arms import open_loader, stock_of
from audioaug.advise.target import Target
from audioaug.decide.race import paired_ratio
from audioaug.errors import MeasurementError
from audioaug.loader.processes import torch_threads
from audioaug.measure import Clock, race
from audioaug.records import Cell, Interval, Measurement

SETTLE_BLOCKS = 1.5
"""How long to train on before a block at most, in blocks: until workers of the arm before have filled their stock."""

Step = Callable[[Any], object]


@dataclass(frozen=True)
class Arm:
    """Batches without end, what trains on one, and torch's threads meanwhile (``None``: as they are).

    ``stock`` is how many batches may lie ready, ``clips`` how many examples a batch holds.
    """

    name: str
    feed: Callable[[], Iterator[Any]]
    step: Step
    clips: int
    stock: int = 2
    threads: int | None = None


@dataclass(frozen=True)
class Speed:
    """What a race found of an arm. ``times`` is how many times the throughput of ``of`` it has, in paired rounds."""

    name: str
    step_ms: float
    ci_ms: Interval
    clips_per_second: float
    of: str = ""
    times: float = 1.0
    times_ci: Interval = (1.0, 1.0)

    @property
    def clearly_faster(self) -> bool:
        """Whether all of the interval says so."""
        return self.times_ci[0] > 1


def cell_arm(name: str, target: Target, cell: Cell, step: Step | None = None) -> Arm:
    """Return the Loader of a cell's plan as an arm."""
    feed = partial(_batches, target, cell)
    return Arm(name, feed, step or target.step, target.batch_size, stock_of(cell), cell.threads)


def _batches(target: Target, cell: Cell) -> Iterator[Any]:
    return iter(open_loader(target, replace(cell, threads=None)))  # threads are set here, since arms take turns


def race_arms(
    arms: Sequence[Arm], clock: Clock, seconds: float, block_seconds: float, at_least: int
) -> dict[str, Measurement]:
    """Race the arms, in blocks of about so long (but two steps) and so many rounds at least.

    Raises:
        MeasurementError: one of them fails.
    """
    usual = torch.get_num_threads()
    with torch_threads(usual):
        feeders = {arm.name: _on_threads(arm, usual) for arm in arms}
        warm = {arm.name: max(1e-6, _warm(feeders[arm.name], arm.step, clock)) for arm in arms}
        refill = min(SETTLE_BLOCKS * block_seconds, max(arm.stock * warm[arm.name] for arm in arms))
        result = race(
            feeders,
            lambda fed: fed[0](fed[1]),
            clock,
            block_steps={name: max(2, min(50, round(block_seconds / took))) for name, took in warm.items()},
            discard={arm.name: max(arm.stock, math.ceil(refill / warm[arm.name])) for arm in arms},
            rounds=100,
            seconds=seconds,
            at_least_rounds=at_least,
        )
    if result.failures:
        raise MeasurementError(f"Training failed: {result.failures}.")
    return result.measurements


def _on_threads(arm: Arm, usual: int) -> Iterator[tuple[Step, Any]]:
    """Yield the arm's step with each of its batches, torch's threads set for both."""
    torch.set_num_threads(arm.threads or usual)
    for batch in arm.feed():
        torch.set_num_threads(arm.threads or usual)
        yield arm.step, batch


def _warm(feeder: Iterator[tuple[Step, Any]], step: Step, clock: Clock) -> float:
    """Train on two batches, the first of which starts workers; return the seconds of the second."""
    step(next(feeder)[1])
    clock.synchronize()
    begin = clock.now()
    step(next(feeder)[1])
    clock.synchronize()
    return clock.now() - begin


def speed(arm: Arm, base: Arm, measurements: dict[str, Measurement]) -> Speed:
    """Return an arm's throughput beside another's."""
    ours, theirs = measurements[arm.name], measurements[base.name]
    ratio, share = paired_ratio(theirs, ours), arm.clips / base.clips
    return Speed(
        name=arm.name,
        step_ms=ours.step.ms,
        ci_ms=ours.step.ci_ms,
        clips_per_second=arm.clips / ours.step.median,
        of=base.name,
        times=ratio.value * share,
        times_ci=(ratio.low * share, ratio.high * share),
    )
