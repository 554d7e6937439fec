"""Trial: which of a few plans trains fastest, found out in the first steps of a training, which all count.

The plans take turns, each in blocks of batches that go on where the last block stopped. Their step times, the user's
own step included, are compared round by round, as in the advisor's race.
"""

import logging
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import torch

from audioaug.core import Chain
from audioaug.decide.race import clearly_slower, leader, paired_ratio, ties
from audioaug.decide.shortlist import placement_of
from audioaug.loader.processes import local_size, share_of
from audioaug.measure.clock import Clock
from audioaug.records import Candidate, Measurement, Plan, Timing, WorkerEngine
from audioaug.units import Seconds

Batch = TypeVar("Batch")

ROUNDS, FEWEST_ROUNDS = 5, 3
LONGEST_TRIAL: Seconds = 60.0
"""Blocks that are timed, of each plan; the fewest, where blocks are long; when a trial ends that has had those.

A block is four steps a worker, or longer: with 64 workers and 50 ms a step, 13 s.
"""

BLOCK: Seconds = 0.5
LONGEST_BLOCK = 50
"""How long the timed part of a block should take; the most steps in it."""

PREFETCHED = 2
"""Batches that torch lets each worker have ready."""

log = logging.getLogger("audioaug")


def plans_for(chain: Chain, first: int, device: torch.device, cores: int, threads: int) -> list[Plan]:
    """Return the plans worth trying unseen, the simplest first: where the chain may run, with no worker or many.

    Args:
        chain: the augmentation.
        first: the smallest cut there can be.
        device: where the model trains.
        cores: that this process may use. Each gets a worker; without a GPU, half of them do, the rest trains the model.
        threads: that torch has now.
    """
    last = chain.worker_until
    workers = cores if device.type != "cpu" else max(1, cores // 2)
    left = max(1, cores - workers)
    here = Plan(cut=first, chain_hash=chain.hash)
    beside = left if device.type == "cpu" and left < threads else None
    there = replace(here, num_workers=workers * local_size(), threads=beside)
    ours: WorkerEngine = "batched" if last > first else "audiomentations"
    plans = [here, there, replace(there, cut=last, worker_engine=ours), replace(there, cut=last)]
    return list(dict.fromkeys(plans))


class Block(NamedTuple):
    """Batches with one plan: while workers start, those that are timed, and while workers have nothing left to do."""

    plan: Plan
    head: int
    timed: int
    tail: int

    @property
    def batches(self) -> int:
        """All of them."""
        return self.head + self.timed + self.tail


@dataclass
class _Arm:
    """A plan that is tried, and what was measured. The first block, in which workers start, only shows its pace."""

    plan: Plan
    name: str
    pace: Seconds | None = None
    seconds: list[Seconds] = field(default_factory=list)

    @property
    def measurement(self) -> Measurement:
        return Measurement(self.name, Timing(tuple(self.seconds)), Timing(()), 0)


class Trial:
    """Says which plan gets the next batches, until it knows which to keep: ``chosen``.

    Args:
        plans: the simplest first, which is kept where several cannot be told apart.
        ops: of the chain.
        clock: says what time it is and waits for the device, twice a block.
    """

    def __init__(self, plans: Sequence[Plan], ops: int, clock: Clock) -> None:
        self._arms = [_Arm(plan, _name(plan, ops)) for plan in plans]
        self._running, self._clock, self._random = list(self._arms), clock, random.Random(0)
        self._turn: list[_Arm] = []
        self._steps, self._spent = 0, 0.0
        self.chosen = plans[0] if len(plans) == 1 else None

    @property
    def plans(self) -> list[Plan]:
        """Those still in question."""
        return [arm.plan for arm in self._running]

    def block(self, left: int, epoch: int) -> Block:
        """Return who feeds the next batches, of which so many are left in an epoch of so many.

        A block longer than an epoch is an epoch, with all that comes with its beginning; what is left of an epoch for
        less than a block is not timed.
        """
        self._turn = self._turn or self._random.sample(self._running, len(self._running))
        arm = self._turn[0]
        workers = share_of(arm.plan.num_workers)
        head, tail = workers + 1, workers * PREFETCHED
        least, wanted = max(3, workers), max(3, workers)
        if arm.pace is not None:
            wanted = max(least, min(LONGEST_BLOCK, math.ceil(BLOCK / max(arm.pace, 1e-6))))
        if head + least + tail > epoch:
            return Block(arm.plan, 0, epoch, 0) if left == epoch else Block(arm.plan, left, 0, 0)
        room = left - head - tail
        return Block(arm.plan, head, min(wanted, room), tail) if room >= least else Block(arm.plan, left, 0, 0)

    def timed(self, block: Block, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a block and note how long the steps between them took."""
        start = self._clock.now()
        begin, end = (None if block.head else self._now()), None
        for count, batch in enumerate(batches, 1):
            yield batch
            self._steps += 1
            if count == block.head:
                begin = self._now()
            elif count == block.head + block.timed:
                end = self._now()
        self._spent += self._clock.now() - start
        if block.timed and begin is not None and end is not None:  # else there were fewer batches than that
            self._note((end - begin) / block.timed)

    def _now(self) -> Seconds:
        self._clock.synchronize()
        return self._clock.now()

    def _note(self, step: Seconds) -> None:
        """Take in the step time of the block that ended."""
        arm = self._turn.pop(0)
        if arm.pace is None:
            arm.pace = step
            return
        arm.seconds.append(step)
        if self._turn:
            return
        given_up = clearly_slower(self._measurements())
        self._running = [arm for arm in self._running if arm.name not in given_up]
        rounds = len(self._running[0].seconds)
        enough = rounds >= FEWEST_ROUNDS and self._spent > LONGEST_TRIAL
        if len(self._running) == 1 or rounds == ROUNDS or enough:
            self._choose()

    def _measurements(self) -> dict[str, Measurement]:
        return {arm.name: arm.measurement for arm in self._running}

    def _choose(self) -> None:
        """Keep the simplest of those that cannot be told from the fastest, and say why."""
        measured = self._measurements()
        fastest, close = leader(measured), ties(measured)
        kept = next(arm for arm in self._running if arm.name in close)
        self.chosen = kept.plan
        log.info('plan="auto": %d plans took turns in the first %d steps.', len(self._arms), self._steps)
        for arm in self._arms:
            blocks, fate = len(arm.seconds), "" if arm in self._running else ", given up"
            log.info("  %s: %.1f ms a step, median of %d blocks%s", arm.name, arm.measurement.step.ms, blocks, fate)
        reason = "the fastest"
        if kept.name != fastest:
            ratio = paired_ratio(kept.measurement, measured[fastest])
            reason = f"the simplest of those as fast as any ({ratio.value:.2f} times the fastest's step"
            reason += f", {ratio.low:.2f} to {ratio.high:.2f})"
        log.info("adopted: %s, %s", kept.name, reason)


def _name(plan: Plan, ops: int) -> str:
    candidate = Candidate(
        placement_of(plan.cut, ops),
        plan.cut,
        plan.worker_engine,
        plan.device_engine,
        num_workers=plan.num_workers,
        threads=plan.threads,
    )
    return candidate.name
