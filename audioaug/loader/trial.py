"""Trial: find out which of a few plans trains fastest during the first steps of a training, none of which is lost.

The plans take turns, each in blocks of batches that continue where the last block stopped. Their step times, including
the user's training step, are compared round by round, as in the advisor's race.
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
"""Timed blocks of each plan; their least number, if blocks are long; seconds after which a trial ends with those.

A block is at least four steps per worker: with 64 workers and 50 ms per step, 13 s.
"""

BLOCK: Seconds = 0.5
LONGEST_BLOCK = 50
"""Seconds that the timed part of a block should take; the most steps in it."""

PREFETCHED = 2
"""Batches that each worker of torch prepares ahead."""

log = logging.getLogger("audioaug")


def plans_for(chain: Chain, first: int, device: torch.device, cores: int, threads: int) -> list[Plan]:
    """Return the plans worth trying without measurements, the simplest first: no worker or many, first or last cut.

    Args:
        chain: the augmentation.
        first: the smallest possible cut.
        device: where the model trains.
        cores: that this process may use. Each gets a worker; without a GPU only half of them, the rest is for training.
        threads: the current number of torch threads.
    """
    last = chain.worker_until
    workers = cores if device.type != "cpu" else max(1, cores // 2)
    free_cores = max(1, cores - workers)
    without_workers = Plan(cut=first, chain_hash=chain.hash)
    fewer_threads = free_cores if device.type == "cpu" and free_cores < threads else None
    with_workers = replace(without_workers, num_workers=workers * local_size(), threads=fewer_threads)
    engine: WorkerEngine = "batched" if last > first else "audiomentations"
    in_workers = replace(with_workers, cut=last)
    plans = [without_workers, with_workers, replace(in_workers, worker_engine=engine), in_workers]
    return list(dict.fromkeys(plans))


class Block(NamedTuple):
    """Numbers of batches with one plan: while its workers start, timed, and while its workers run out of work."""

    plan: Plan
    head: int
    timed: int
    tail: int

    @property
    def batches(self) -> int:
        """All batches of the block."""
        return self.head + self.timed + self.tail


@dataclass
class _Candidate:
    """A plan and its measurements. The first block, in which workers start, only gives a first step time."""

    plan: Plan
    name: str
    first_step: Seconds | None = None
    seconds: list[Seconds] = field(default_factory=list)

    @property
    def measurement(self) -> Measurement:
        return Measurement(self.name, Timing(tuple(self.seconds)), Timing(()), 0)


class Trial:
    """Decides which plan loads the next batches, until one is ``chosen``.

    Args:
        plans: the simplest first, which is preferred among equally fast ones.
        ops: the number of ops in the chain.
        clock: returns the time, and waits for the device twice per block.
    """

    def __init__(self, plans: Sequence[Plan], ops: int, clock: Clock) -> None:
        self._candidates = [_Candidate(plan, _name(plan, ops)) for plan in plans]
        self._remaining, self._clock, self._random = list(self._candidates), clock, random.Random(0)
        self._turn: list[_Candidate] = []
        self._steps, self._spent = 0, 0.0
        self.chosen = plans[0] if len(plans) == 1 else None

    @property
    def plans(self) -> list[Plan]:
        """The plans that can still be chosen."""
        return [candidate.plan for candidate in self._remaining]

    def block(self, left: int, epoch: int) -> Block:
        """Return the next block, given the number of batches that are left in the epoch and in a whole one.

        If a block is longer than an epoch, it is one epoch, timed from its beginning. If less than a block is left of
        an epoch, it is not timed.
        """
        self._turn = self._turn or self._random.sample(self._remaining, len(self._remaining))
        candidate = self._turn[0]
        workers = share_of(candidate.plan.num_workers)
        head, tail = workers + 1, workers * PREFETCHED
        least, wanted = max(3, workers), max(3, workers)
        if candidate.first_step is not None:
            wanted = max(least, min(LONGEST_BLOCK, math.ceil(BLOCK / max(candidate.first_step, 1e-6))))
        if head + least + tail > epoch:
            return Block(candidate.plan, 0, epoch, 0) if left == epoch else Block(candidate.plan, left, 0, 0)
        room = left - head - tail
        return (
            Block(candidate.plan, head, min(wanted, room), tail) if room >= least else Block(candidate.plan, left, 0, 0)
        )

    def timed(self, block: Block, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a block and record the time of the steps between them."""
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
            self._record((end - begin) / block.timed)

    def _now(self) -> Seconds:
        self._clock.synchronize()
        return self._clock.now()

    def _record(self, step: Seconds) -> None:
        """Record the step time of the last block."""
        candidate = self._turn.pop(0)
        if candidate.first_step is None:
            candidate.first_step = step
            return
        candidate.seconds.append(step)
        if self._turn:
            return
        eliminated = clearly_slower(self._measurements())
        self._remaining = [candidate for candidate in self._remaining if candidate.name not in eliminated]
        rounds = len(self._remaining[0].seconds)
        enough = rounds >= FEWEST_ROUNDS and self._spent > LONGEST_TRIAL
        if len(self._remaining) == 1 or rounds == ROUNDS or enough:
            self._choose()

    def _measurements(self) -> dict[str, Measurement]:
        return {candidate.name: candidate.measurement for candidate in self._remaining}

    def _choose(self) -> None:
        """Choose the simplest of the equally fast plans, and log why."""
        measured = self._measurements()
        fastest, tied = leader(measured), ties(measured)
        chosen = next(candidate for candidate in self._remaining if candidate.name in tied)
        self.chosen = chosen.plan
        log.info('plan="auto": %d plans took turns in the first %d steps.', len(self._candidates), self._steps)
        for candidate in self._candidates:
            blocks, note = len(candidate.seconds), "" if candidate in self._remaining else ", eliminated"
            log.info(
                "  %s: %.1f ms per step, median of %d blocks%s",
                candidate.name,
                candidate.measurement.step.ms,
                blocks,
                note,
            )
        reason = "the fastest"
        if chosen.name != fastest:
            ratio = paired_ratio(chosen.measurement, measured[fastest])
            reason = f"the simplest of the equally fast plans ({ratio.value:.2f} times the fastest step time"
            reason += f", {ratio.low:.2f} to {ratio.high:.2f})"
        log.info("chosen: %s, %s", chosen.name, reason)


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
