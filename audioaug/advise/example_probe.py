"""The probe: examples drawn from the seed, however large the dataset is, and what they say of all of them."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from audioaug.advise.drawn import Reader
from audioaug.advise.training_job import TrainingJob
from audioaug.engine import WorkerChain
from audioaug.measure import Clock, delayed_seconds
from audioaug.records import Examples

MOST, FEWEST = 256, 32
"""Examples that are looked at one by one."""


PATIENCE = 1.5
"""Seconds for the fewest, whatever the budget is."""


def time_examples(job: TrainingJob, clock: Clock, seconds: float) -> Examples:
    """Read drawn examples twice and augment them as a worker would, warm, one by one, for about so many seconds.

    A stream cannot read an example again: there the second is the next one.
    Times are those on a free core: what was spent waiting for one is taken off.
    """
    worker = WorkerChain(job.chain, job.chain.worker_until, seed=0)
    rows: list[tuple[float, float, float, float, int]] = []
    read = Reader(job.dataset)
    begin = clock.now()
    for index in read.numbers(2 * MOST):
        try:
            first, _, wave = _read(job, clock, partial(read, index))
            again, on_core, _ = _read(job, clock, partial(read, index))
        except Exception:  # what cannot be read stands for nothing
            continue
        if not rows:
            worker(wave, index=index)  # which builds all transforms
            begin = clock.now()
        # The first of two may read a noise or a room for the first time.
        augment = min(_timed(clock, partial(worker, wave, index=index))[0] for _ in range(2))
        rows.append((first * 1e3, again * 1e3, on_core * 1e3, augment * 1e3, wave.shape[-1]))
        spent = clock.now() - begin
        if len(rows) >= MOST or spent > max(PATIENCE, 2 * seconds) or (len(rows) >= FEWEST and spent > seconds):
            break
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Examples(*columns)


def _read(job: TrainingJob, clock: Clock, read: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return how long reading takes, what of that is spent on a core, and the wave."""
    seconds, on_core, example = _timed(clock, read)
    return seconds, on_core, job.clip_of(example)


def _timed(clock: Clock, work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return how long some work takes where cores are free, what of that is spent on one, and its result."""
    begin, delayed, on_core = clock.now(), delayed_seconds(), time.thread_time()
    result = work()
    on_core, delayed = time.thread_time() - on_core, delayed_seconds() - delayed
    return max(on_core, clock.now() - begin - delayed), on_core, result
