"""Loader stages: loaders alone, without their device part, and beside training steps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from audioaug.advise.arms import cell_at, open_loader
from audioaug.advise.bench import ROUNDS, Bench
from audioaug.core import Chain
from audioaug.decide.predict import threads_beside, worker_engines
from audioaug.loader.processes import torch_threads
from audioaug.measure import measure_loader, measure_steal, repeat
from audioaug.records import Cell, LoaderCost, Report, StealCost, Timing
from audioaug.units import Seconds

STEAL_BLOCK = 0.05
"""Seconds of training steps that are timed as one where workers run beside them."""


def loaders(report: Report, chain: Chain, counts: Sequence[int]) -> tuple[list[Cell], list[Cell]]:
    """Return the loaders to time, with the whole chain and with as little of it as can be.

    First those that predictions need, then those that make predictions more exact, where there is time.
    """
    first, last = report.chain.cuts[0], report.chain.cuts[-1]
    engines = worker_engines(report, last)
    ends = {(first, "audiomentations"), *((last, engine) for engine in engines)}
    needed, others = list[Cell](), list[Cell]()
    for cut, engine in sorted(ends):
        for count in counts if engine == "audiomentations" else filter(None, counts):
            it = replace(cell_at(chain, cut, count), worker_engine=engine, threads=threads_beside(report, count))
            is_end = (cut, engine) == (last, engines[-1]) or (cut == first and count == max(counts))
            (needed if is_end or not count else others).append(it)
    return needed, others


def beside_training(report: Report, cells: Sequence[Cell]) -> set[str]:
    """Return the names of those to time beside training: the whole chain, with the better engine for it."""
    last = report.chain.cuts[-1]
    engine = worker_engines(report, last)[-1]  # that which takes less of a worker's time
    return {it.name for it in cells if it.num_workers and (it.cut, it.worker_engine) == (last, engine)}


def open_messages(bench: Bench, cell: Cell) -> Iterator[Any]:
    """Start a cell's loader and return what it delivers before the device part."""
    return open_loader(bench.target, replace(cell, threads=None)).worker_batches()


def loader_cost(bench: Bench, cell: Cell, messages: Iterator[Any], seconds: Seconds) -> LoaderCost:
    """Time a loader that nobody disturbs."""
    block = max(1, cell.num_workers)
    result = measure_loader(
        messages,
        bench.clock,
        seconds=seconds,
        discard=1 + cell.num_workers,  # the others come as they are made: there is never a stock
        block_batches=block,
        at_least=max(4, 3 * block),
    )
    timing, engine = result.per_batch, cell.worker_engine
    (low, high), mean = timing.ci_ms, timing.mean_ms
    return LoaderCost(
        cell.cut,
        cell.num_workers,
        mean,
        (min(low, mean), max(high, mean)),
        result.first_batch_seconds,
        engine,
        timing.samples_ms,
        result.cpu_seconds * 1e3 if cell.num_workers else 0.0,
    )


def steps_alone(bench: Bench, threads: int, seconds: Seconds) -> Timing:
    """Time training steps on so many threads with no loader beside them."""
    with torch_threads(threads):
        return repeat(bench.step(), bench.clock, seconds=seconds, at_least=ROUNDS)


def steal_cost(
    bench: Bench, cell: Cell, threads: int, messages: Iterator[Any], alone: Timing, seconds: Seconds
) -> StealCost:
    """Time training steps while this cell's workers never stop."""
    with torch_threads(threads):
        found = measure_steal(
            bench.step(),
            messages,
            bench.clock,
            seconds=seconds,
            discard=1,
            block_steps=max(1, round(STEAL_BLOCK / alone.median)),
            block_batches=cell.num_workers,
        )
    return StealCost(
        cell.cut,
        cell.worker_engine,
        cell.num_workers,
        threads,
        alone.ms,
        found.step.ms,
        found.batch.mean_ms,
        found.step.samples_ms,
        found.batch.samples_ms,
    )
