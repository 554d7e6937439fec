"""A point of the map, measured: real loaders and real training steps."""

import math
from collections.abc import Sequence
from dataclasses import replace

from audioaug.advise.arms import cached_batches, open_loader, stock_of
from audioaug.advise.racing import Usage
from audioaug.advise.target import Target
from audioaug.decide.predict import predict, with_prediction, worker_ms
from audioaug.errors import MeasurementError
from audioaug.measure import clock_for, measure_steps, race
from audioaug.records import Ceiling, Cell, Report, Timing
from experiments.placement.prediction import cells_of, scaled
from experiments.placement.records import Point
from experiments.placement.target import cell_at, with_repeats, with_width

BLOCK_MS = 200.0
"""How long a block of training steps is to be."""


def measure_point(
    target: Target, report: Report, width: int, repeats: int, workers: Sequence[int], seconds: float
) -> Point:
    """Train a model of that width with both ends of the chain and its best split; real loaders, real steps."""
    runner = with_width(with_repeats(target, repeats), width)
    clock = clock_for(target.device)
    batches = cached_batches(runner, cell_at(report, len(runner.chain), 0))
    alone = measure_steps(runner.step, batches, clock, seconds=0.2 * seconds, block_steps=2, at_least=5)
    ceiling = Ceiling(alone.ms, alone.ci_ms, target.batch_size / alone.median)
    guess = scaled(report, repeats, ceiling.step_ms)
    cells = [with_prediction(guess, cell) for cell in _worth_racing(guess, workers)]
    arms = {cell.name: replace(cell, cut=cell.cut * repeats) for cell in cells}  # every op is there so many times
    feeders = {name: iter(open_loader(runner, arm)) for name, arm in arms.items()}
    for feeder in feeders.values():
        runner.step(next(feeder))
    discard = {cell.name: _settled(guess, cell) for cell in cells}
    with Usage(target.device, clock, discard) as usage:
        result = race(
            feeders,
            runner.step,
            clock,
            block_steps={cell.name: max(3, round(BLOCK_MS / (cell.predicted_ms or BLOCK_MS))) for cell in cells},
            discard=discard,
            rounds=20,
            seconds=0.8 * seconds,
            on_block=usage.note,
        )
    if result.failures:
        raise MeasurementError(f"Training failed: {result.failures}")
    raced = tuple(_raced(cell, result.measurements[cell.name].step, usage, target.batch_size) for cell in cells)
    return Point(width, sum(p.numel() for p in runner.model.parameters()), repeats, ceiling, raced)


def _settled(report: Report, cell: Cell) -> int:
    """Return how many steps to leave out before a block.

    That is the cell's own stock, and what it takes the workers of the cell before it to fill theirs: they use cores.
    """
    refill_ms = 3 * worker_ms(report, len(report.chain.ops))[1]
    return max(stock_of(cell), math.ceil(refill_ms / (cell.predicted_ms or refill_ms)))


def _raced(cell: Cell, timing: Timing, usage: Usage, batch_size: int) -> Cell:
    return replace(
        cell,
        status="raced",
        measured_ms=timing.ms,
        measured_ci_ms=timing.ci_ms,
        clips_per_second=batch_size / timing.median,
        vram_bytes=usage.vram.get(cell.name),
        cpu_seconds_per_step=usage.cpu_per_step(cell.name),
    )


def _worth_racing(report: Report, workers: Sequence[int]) -> list[Cell]:
    """Return both ends of the chain with each number of workers, and the split that is predicted to be fastest."""
    first, last = report.chain.device_from, len(report.chain.ops)
    ends = [cell_at(report, cut, count) for count in workers for cut in (first, last)]
    splits = [(found.ms, cell) for cell in cells_of(report, workers) if (found := predict(report, cell))]
    splits = [pair for pair in splits if first < pair[1].cut < last]
    return [*ends, min(splits, key=lambda pair: pair[0])[1]] if splits else ends
