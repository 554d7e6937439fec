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
from audioaug.decide.race import MARGIN, clearly_slower, leader, ties, typical_seconds
from audioaug.decide.shortlist import placement_of
from audioaug.errors import UsageError
from audioaug.loader.pipeline import LoaderConfig
from audioaug.loader.processes import is_first_rank, local_size, share_of
from audioaug.loader.sampling import length_if_known
from audioaug.measure import usable_cores
from audioaug.measure.clock import Clock
from audioaug.measure.host import local_ranks
from audioaug.records import Candidate, Measurement, Plan, Timing, WorkerEngine
from audioaug.units import Seconds

Batch = TypeVar("Batch")

ROUNDS, FEWEST_ROUNDS = 5, 3
"""Timed blocks of each plan, and their least number if an epoch has no room for more."""

SHARE = 0.05
LONGEST_TRIAL: Seconds = 60.0
"""The share of an epoch's batches that a trial may use, and the seconds after which no further block begins."""

BLOCK: Seconds = 0.5
LONGEST_BLOCK = 50
"""Seconds that the timed part of a block should take; the most steps in it."""

PREFETCHED = 2
"""Batches that each worker of torch prepares ahead."""

log = logging.getLogger("audioaug")


def plans_to_try(config: LoaderConfig) -> list[Plan]:
    """Return the plans for this machine; raise ``UsageError`` if the number of batches in an epoch is unknown."""
    if config.sampler is None or length_if_known(config.sampler) is None:
        raise UsageError(
            'plan="auto" divides an epoch between several plans, so it needs the number of batches, which an iterable '
            "dataset or a sampler without a length does not have.",
            "Give Loader a Plan, such as the one that audioaug advise --plan writes.",
        )
    # The usable cores are divided by the processes that torchrun has stated; other launchers state nothing.
    cores = max(1, int(usable_cores() * local_ranks() / local_size()))
    return plans_for(config.chain, config.least_cut, config.device, cores, torch.get_num_threads())


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

    def measurement(self, rounds: int) -> Measurement | None:
        """Return the times of the first rounds; if there are none, that of the first block, if it has ended."""
        first = [] if self.first_step is None else [self.first_step]
        seconds = tuple(self.seconds[:rounds] or first)
        return Measurement(self.name, Timing(seconds), Timing(()), 0) if seconds else None

    def __str__(self) -> str:
        measured = self.measurement(len(self.seconds))
        return f"{self.name}: " + ("not measured" if measured is None else f"{measured.step.ms:.1f} ms")


class Trial:
    """Decides which plan loads the next batches, until one is ``chosen``.

    In each epoch, it uses at most ``SHARE`` of the batches, but at least one block. It ends after ``ROUNDS`` rounds, or
    after ``FEWEST_ROUNDS`` if the epoch's share has no room for another, or when only one plan is left. After
    ``LONGEST_TRIAL`` seconds in blocks, it ends with what has been measured.

    Args:
        plans: the simplest first, which is preferred among those that tie with the fastest, within ``MARGIN``.
        ops: the number of ops in the chain.
        clock: returns the time, and waits for the device twice per block.
        again: whether there has been a trial before; the log says so.
    """

    def __init__(self, plans: Sequence[Plan], ops: int, clock: Clock, again: bool = False) -> None:
        self._candidates = [_Candidate(plan, _name(plan, ops)) for plan in plans]
        self._remaining, self._clock, self._random = list(self._candidates), clock, random.Random(0)
        self._turn: list[_Candidate] = []
        self._steps, self._spent = 0, 0.0
        self._epoch, self._used = 0, 0  # batches in an epoch; in blocks of this one
        self._again, self._announced = again, False
        self.is_in_block = False  # rather than over, or waiting for the next epoch
        self.chosen = plans[0] if len(plans) == 1 else None

    @property
    def plans(self) -> list[Plan]:
        """The plans that can still be chosen, or the chosen one."""
        return [candidate.plan for candidate in self._remaining] if self.chosen is None else [self.chosen]

    @property
    def best(self) -> Plan:
        """The chosen plan, or the one that is the best so far."""
        return self._best()[0].plan if self.chosen is None else self.chosen

    def begin_epoch(self, batches: int) -> None:
        """Begin an epoch with this many batches, of which the trial may use a share."""
        self._epoch, self._used = batches, 0
        if self.chosen is None and not self._announced:
            self._announced = True
            most = min(batches, max(self._share, *(self._sized(each).batches for each in self._candidates)))
            text = 'plan="auto": trying %d plans%s, in at most %d of the %d batches of an epoch and %.0f s in all.'
            _say(text, len(self._candidates), " again" if self._again else "", most, batches, LONGEST_TRIAL)

    @property
    def _share(self) -> int:
        return int(SHARE * self._epoch)

    def block(self, left: int) -> Block | None:
        """Return the next block, given the number of batches that are left in the epoch.

        If the shortest block is longer than an epoch, it is one epoch, timed from its beginning.

        Returns:
            The block; ``None`` if a plan is chosen, or there is no room for a block in this epoch.
        """
        if self.chosen is None and self._spent > LONGEST_TRIAL:
            self._choose()
        self.is_in_block = False
        if self.chosen is not None:
            return None
        self._turn = self._turn or self._random.sample(self._remaining, len(self._remaining))
        block = self._sized(self._turn[0])
        if block.batches > self._epoch:
            block = Block(block.plan, 0, self._epoch, 0)
        is_within = not self._used or self._used + block.batches <= self._share
        self.is_in_block = is_within and block.batches <= left
        return block if self.is_in_block else None

    def _sized(self, candidate: _Candidate) -> Block:
        """Return a block: as short as possible the first time; later longer, if that is useful and the share allows."""
        shortest = _shortest(candidate.plan)
        if candidate.first_step is None:
            return shortest
        useful = min(LONGEST_BLOCK, math.ceil(BLOCK / max(candidate.first_step, 1e-6)))
        needed = (1 + FEWEST_ROUNDS) * sum(_shortest(each.plan).batches for each in self._candidates)
        room = self._share * shortest.batches // needed - shortest.head - shortest.tail
        return shortest._replace(timed=max(shortest.timed, min(useful, room)))

    def timed(self, block: Block, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a block and record the time of the steps between them."""
        begin, end = (None if block.head else self._now()), None
        last = self._clock.now()
        for count, batch in enumerate(batches, 1):
            yield batch
            self._steps += 1
            self._used += 1
            if count == block.head:
                begin = self._now()
            elif count == block.head + block.timed:
                end = self._now()
            now = self._clock.now()
            self._spent, last = self._spent + now - last, now
        if begin is not None and end is not None:  # else there were fewer batches than that
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
        eliminated = clearly_slower(self._measured())
        self._remaining = [candidate for candidate in self._remaining if candidate.name not in eliminated]
        rounds = len(self._remaining[0].seconds)
        another = sum(self._sized(candidate).batches for candidate in self._remaining)
        enough = rounds >= FEWEST_ROUNDS and self._used + another > self._share
        if len(self._remaining) == 1 or rounds == ROUNDS or enough:
            self._choose()

    def _measured(self) -> dict[str, Measurement]:
        """Return the times of the remaining plans in the rounds that all of them have finished.

        Before the end of the first round, those in the first blocks.
        """
        rounds = min(len(candidate.seconds) for candidate in self._remaining)
        found = {candidate.name: candidate.measurement(rounds) for candidate in self._remaining}
        return {name: measurement for name, measurement in found.items() if measurement is not None}

    def _best(self) -> tuple[_Candidate, str]:
        """Return the fastest plan, or the simplest of those that tie with it and are within ``MARGIN``; and why."""
        measured = self._measured()
        if not measured:
            return self._remaining[0], "the simplest, since none was measured"
        seconds, fastest = typical_seconds(measured), leader(measured)
        tied = [name for name in ties(measured) if seconds[name] <= (1 + MARGIN) * seconds[fastest]]
        best = next(candidate for candidate in self._remaining if candidate.name in tied)
        return best, "the fastest" if best.name == fastest else f"the simplest within {MARGIN:.0%} of the fastest"

    def _choose(self) -> None:
        """Choose the best plan, and log why."""
        best, reason = self._best()
        self.chosen = best.plan
        times = "; ".join(map(str, self._candidates))
        _say('plan="auto": chose %s, %s, after %d batches. Steps: %s.', best.name, reason, self._steps, times)


def _shortest(plan: Plan) -> Block:
    workers = share_of(plan.num_workers)
    return Block(plan, head=workers + 1, timed=max(3, workers), tail=workers * PREFETCHED)


def _say(text: str, *values: object) -> None:
    """Log this in the first of the processes that train together."""
    if is_first_rank():
        log.info(text, *values)


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
