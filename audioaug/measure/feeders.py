"""The race: one uninterrupted training loop whose feeder is swapped, so that all feeders meet the same conditions.

In a round every candidate that is still running feeds one block of training steps, in random order. What an candidate had prepared
while others ran is trained on but not timed (``discard``), and a block counts for as many steps as batches were made in
it (``ready``), or a deep prefetch would sell its queued as speed.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from audioaug.measure.clock import Clock
from audioaug.measure.repeat import rounds as rounds_until
from audioaug.records import Measurement, Timing
from audioaug.units import Seconds

Step = Callable[[Any], object]

IN_PROGRESS = 1
"""Batches by which a queued may be smaller after a block than before it, and yet be what it was: one is being made."""


@dataclass(frozen=True)
class RaceResult:
    """All blocks that were made, also those of candidates that were dropped, and why the candidates that failed did."""

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
    void: Callable[[], bool] | None = None,
    ready: Callable[[str], int] = lambda name: 0,
) -> RaceResult:
    """Train with several feeders in turn and time each of them, until one is left or the time is up.

    An candidate whose feeder or step raises is out of the race, which goes on. ``KeyboardInterrupt`` ends it, and what was
    measured until then is what ``on_block`` was given. Entry i of a measurement is from round i, so candidates can be
    compared in pairs. A race of one candidate runs as long as it may.

    Args:
        candidates: endless feeders by name, started and warm. One feeder may race against itself under two names.
        step: trains on one batch.
        clock: says what time it is and waits for the device.
        block_steps: steps in a block, for all or by name.
        discard: batches by name that are trained on before each block without being timed.
        rounds: rounds that are enough.
        seconds: how long all this may take; a round that will not fit is not started.
        at_least_rounds: rounds that are made however long they take, and even when only one candidate is left.
        seed: of the order within each round.
        on_block: called after each block with all that was measured of that candidate so far.
        drop: called after each round with the measurements of the candidates still running; names those to take out.
        void: called after each round: whether something disturbed it. Then its blocks are taken back and it is made
            retries, where the time allows that and all rounds that are still due, and half as often as
            ``at_least_rounds`` at most: what is always there belongs to what is measured.
        ready: how many batches lie ready for that candidate. Those that a block takes of them without their being made anew
            do not count as its steps.
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
        while void is not None and void() and retries and clock.now() <= latest:
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
    """One feeder and what was measured of it."""

    name: str
    feeder: Iterator[Any]
    block_steps: int
    discard: int
    step_seconds: list[Seconds] = field(default_factory=list)
    wait_seconds: list[Seconds] = field(default_factory=list)

    def run_block(self, step: Step, clock: Clock, ready: Callable[[str], int]) -> None:
        """Train on what lies ready, then train on one block more and time it; nothing is kept of half a block."""
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
        """Take the last block back."""
        del self.step_seconds[-1:], self.wait_seconds[-1:]

    def _train(self, steps: int, step: Step, clock: Clock) -> Seconds:
        """Train that many steps and return the seconds spent inside the feeder."""
        waited = 0.0
        for _ in range(steps):
            start = clock.now()
            batch = next(self.feeder)
            waited += clock.now() - start
            step(batch)
        return waited

    @property
    def measurement(self) -> Measurement:
        """What was measured so far."""
        step, wait = Timing(tuple(self.step_seconds)), Timing(tuple(self.wait_seconds))
        return Measurement(self.name, step, wait, self.block_steps)


def _measurements(candidates: Mapping[str, _Candidate]) -> dict[str, Measurement]:
    return {name: candidate.measurement for name, candidate in candidates.items() if candidate.step_seconds}


def _reason(error: Exception) -> str:
    """Say in one line what was raised; torch puts a worker's whole traceback into the message, its cause last."""
    if isinstance(error, StopIteration):
        return "Its data ended."
    lines = str(error).strip().splitlines() or [""]
    kind = type(error).__name__
    return lines[-1] if "Original Traceback" in str(error) else f"{kind}: {lines[0]}".removesuffix(": ")
