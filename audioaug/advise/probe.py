"""The probe: examples drawn from the seed, however large the dataset is, and what they say of all of them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from audioaug.advise.drawn import drawn
from audioaug.advise.target import Target
from audioaug.build import WorkerChain
from audioaug.measure import Clock, core_seconds_wanted
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import Examples
from audioaug.train.examples import samples_of

MOST, FEWEST = 256, 16
"""Examples that are looked at one by one."""


PATIENCE = 1.5
"""Seconds for the fewest, whatever the budget is."""


def look_at_examples(target: Target, clock: Clock, seconds: float) -> Examples:
    """Read drawn examples twice and augment them as a worker would, warm, one by one, for about so many seconds."""
    worker = WorkerChain(target.chain, target.chain.worker_until, seed=0)
    rows: list[tuple[float, float, float, float, int]] = []
    begin = clock.now()
    for index, first in _first_reads(target, clock):
        again, on_core, wave = _read_again(target, clock, index)
        if not rows:
            worker(wave, index=index)  # which builds all transforms
            begin = clock.now()
        # The first of two may read a noise or a room for the first time, and either may be interrupted.
        augment = min(seconds_per_call(partial(worker, wave, index=index), clock, 1) for _ in range(2))
        rows.append((first * 1e3, again * 1e3, on_core * 1e3, augment * 1e3, wave.shape[-1]))
        spent = clock.now() - begin
        if len(rows) >= MOST or spent > max(PATIENCE, 2 * seconds) or (len(rows) >= FEWEST and spent > seconds):
            break
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Examples(*columns)


def _first_reads(target: Target, clock: Clock) -> Iterator[tuple[int, float]]:
    """Yield the indices of drawn examples and how long it took to read each, leaving out those that cannot be read."""
    for index in drawn(len(target.dataset), 2 * MOST):
        begin = clock.now()
        try:
            samples_of(target.dataset[index], target.chain.sample_rate)
        except Exception:
            continue
        yield index, clock.now() - begin


def _read_again(target: Target, clock: Clock, index: int) -> tuple[float, float, Any]:
    """Return how long reading takes, what of that is spent on a core (or ready for one), and the wave."""
    begin, on_core = clock.now(), core_seconds_wanted()
    example = target.dataset[index]
    seconds, on_core = clock.now() - begin, core_seconds_wanted() - on_core
    return seconds, on_core, samples_of(example, target.chain.sample_rate)
