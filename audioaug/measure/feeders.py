"""The race: one training loop whose feeder is swapped, so that all feeders run under the same conditions.

In a round every remaining candidate feeds one block of training steps, in random order. Batches prepared during the
blocks of others are trained on but not timed (``discard``), and a block counts only the batches made within it
(``ready``); otherwise a deep prefetch queue would count as speed.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from audioaug.errors import in_one_line
from audioaug.measure.clock import Clock
from audioaug.measure.repeat import rounds as rounds_until
from audioaug.records import Measurement, Timing
from audioaug.units import Seconds

Step = Callable[[Any], object]

IN_PROGRESS = 1
"""Batches by which a queue may shrink during a block without being drained: one is in progress."""


@dataclass(frozen=True)
class RaceResult:
    """All measured blocks, including those of dropped candidates, and the reasons of failures."""

    measurements: dict[str, Measurement]
    failures: dict[str, str]


def race(
    candidates: Mapping[str, Iterator[Any]],
    step: Step,
    clock: Clock,
    *,
    block_steps: Mapping[str, int] | int,
    discard: Mapping[str, int],
    rounds: int,
    seconds: Seconds,
    at_least_rounds: int = 3,
    seed: int = 0,
    on_block: Callable[[Measurement], None] | None = None,
    drop: Callable[[Mapping[str, Measurement]], Collection[str]] | None = None,
    is_disturbed: Callable[[], bool] | None = None,
    ready: Callable[[str], int] = lambda name: 0,
) -> RaceResult:
    """Train with several feeders in turn and time each, until one is left or the time is up.

    A candidate whose feeder or step raises leaves the race. ``KeyboardInterrupt`` ends it; ``on_block`` has received
    what was measured until then. Entry i of a measurement is from round i, so candidates can be compared in pairs. A
    race of one candidate uses all of its time.

    Args:
        candidates: endless, warm feeders by name. One feeder may race against itself under two names.
        step: a training step on one batch.
        clock: the clock of the device.
        block_steps: steps of a block, for all candidates or by name.
        discard: untimed batches before each block, by name.
        rounds: most rounds.
        seconds: time budget; a round that would exceed it is not started.
        at_least_rounds: fewest rounds, regardless of time and of how many candidates are left.
        seed: seed of the order within each round.
        on_block: called after each block with the candidate's measurement so far.
        drop: called after each round with the measurements of the remaining candidates; returns the names to drop.
        is_disturbed: called after each round; whether it was disturbed. It is repeated if there is time for it
            and the remaining rounds, at most ``at_least_rounds // 2`` times: a permanent disturbance is part of the
            measurement.
        ready: number of a candidate's queued batches. Batches that a block takes from the queue without replacement do
            not count as its steps.
    """
    deadline = clock.now() + seconds
    entered = {
        name: _Candidate(
            name, feeder, block_steps if isinstance(block_steps, int) else block_steps[name], discard[name]
        )
        for name, feeder in candidates.items()
    }
    running, failures, draw = dict(entered), dict[str, str](), random.Random(seed)
    retries = at_least_rounds // 2

    def make_round() -> None:
        for name in draw.sample(list(running), len(running)):
            candidate = running[name]
            try:
                candidate.run_block(step, clock, ready)
            except Exception as error:
                failures[name] = _reason(error)
                del running[name]
            else:
                if on_block is not None:
                    on_block(candidate.measurement)

    for index in rounds_until(clock, deadline, at_least=at_least_rounds, at_most=rounds):
        if not running or (len(running) == 1 < len(entered) and index >= at_least_rounds):
            break
        due, began = max(1, at_least_rounds - index), clock.now()
        make_round()
        latest = deadline - due * (clock.now() - began)
        while is_disturbed is not None and is_disturbed() and retries and clock.now() <= latest:
            retries -= 1
            for candidate in running.values():
                candidate.forget_block()
            make_round()
        if drop is not None and running:
            for name in drop(_measurements(running)):
                running.pop(name, None)
    return RaceResult(_measurements(entered), failures)


@dataclass
class _Candidate:
    """A feeder and its measured blocks."""

    name: str
    feeder: Iterator[Any]
    block_steps: int
    discard: int
    step_seconds: list[Seconds] = field(default_factory=list)
    wait_seconds: list[Seconds] = field(default_factory=list)

    def run_block(self, step: Step, clock: Clock, ready: Callable[[str], int]) -> None:
        """Train on the queued batches, then time one block; an incomplete block is not recorded."""
        self._train(self.discard, step, clock)
        clock.synchronize()
        queued, start = ready(self.name), clock.now()
        waited = self._train(self.block_steps, step, clock)
        clock.synchronize()
        seconds = clock.now() - start
        from_queue = max(0, queued - ready(self.name) - IN_PROGRESS)
        self.step_seconds.append(seconds / (self.block_steps - from_queue))
        self.wait_seconds.append(self.step_seconds[-1] - (seconds - waited) / self.block_steps)

    def forget_block(self) -> None:
        """Remove the last block."""
        del self.step_seconds[-1:], self.wait_seconds[-1:]

    def _train(self, steps: int, step: Step, clock: Clock) -> Seconds:
        """Train for ``steps`` steps and return the seconds spent in the feeder."""
        waited = 0.0
        for _ in range(steps):
            start = clock.now()
            batch = next(self.feeder)
            waited += clock.now() - start
            step(batch)
        return waited

    @property
    def measurement(self) -> Measurement:
        """The measurement so far."""
        step, wait = Timing(tuple(self.step_seconds)), Timing(tuple(self.wait_seconds))
        return Measurement(self.name, step, wait, self.block_steps)


def _measurements(candidates: Mapping[str, _Candidate]) -> dict[str, Measurement]:
    return {name: candidate.measurement for name, candidate in candidates.items() if candidate.step_seconds}


def _reason(error: Exception) -> str:
    return "Its data ended." if isinstance(error, StopIteration) else in_one_line(error)
