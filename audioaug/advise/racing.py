"""Racing: loaders (and batches that already lie on the device) take turns at feeding one training loop."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import torch

from audioaug.advise.arms import open_loader, stock_of
from audioaug.advise.target import Target, in_one_line
from audioaug.decide.race import hopeless
from audioaug.errors import AudioaugError, MeasurementError
from audioaug.measure import Clock, cpu_seconds, race
from audioaug.records import Cell, Measurement, Timing
from audioaug.train.threads import torch_threads

CEILING = "ceiling"
LONGEST_BLOCK = 50
ROUNDS = 4
"""A race of fewer rounds tells too little apart."""

HEAT_ROUNDS = 2
HEAT_BLOCK = 0.25
"""A heat's block, as a share of a race's."""


class Racer:
    """Runs races and notes what CPU and device memory each arm took.

    Args:
        target: what is trained.
        clock: says what time it is and waits for the device.
        budget: seconds of the whole survey, which the length of a block follows.
        notice: called with an id and a sentence where an arm fails.
    """

    def __init__(self, target: Target, clock: Clock, budget: float, notice: Callable[[str, str], None]) -> None:
        self.target, self.clock, self.budget, self.notice = target, clock, budget, notice
        self.usage = Usage(target.device, {})
        self.threads = torch.get_num_threads()

    def run(
        self,
        arms: Sequence[Cell],
        expected: Mapping[str, float],
        seconds: float,
        tick: Callable[..., None],
        cached: Sequence[Any] = (),
    ) -> dict[str, Measurement]:
        """Race the arms; give their expected step times in seconds by name.

        With ``cached`` batches the ceiling races too, nobody is dropped, and all must finish.

        Raises:
            MeasurementError: the ceiling or an arm beside it failed.
        """
        with torch_threads(self.threads):
            return self._race(arms, expected, tick, cached, seconds=seconds, rounds=(ROUNDS, 1000), block=1.0)

    def heat(
        self, arms: Sequence[Cell], expected: Mapping[str, float], tick: Callable[..., None]
    ) -> dict[str, Measurement]:
        """Give each arm two short blocks, in turn: enough to see which of them belong into a race."""
        rounds = (HEAT_ROUNDS, HEAT_ROUNDS)
        with torch_threads(self.threads):
            return self._race(arms, expected, tick, (), seconds=math.inf, rounds=rounds, block=HEAT_BLOCK)

    def _race(
        self,
        arms: Sequence[Cell],
        expected: Mapping[str, float],
        tick: Callable[..., None],
        cached: Sequence[Any],
        *,
        seconds: float,
        rounds: tuple[int, int],
        block: float,
    ) -> dict[str, Measurement]:
        feeders: dict[str, Iterator[Any]] = {cell.name: self._feeder(cell) for cell in arms}
        discard = {cell.name: stock_of(cell) for cell in arms}
        # While the ceiling runs, the workers of the arm before it still refill its stock: wait that long.
        refill = max((stock_of(cell) * expected[cell.name] for cell in arms if cell.num_workers), default=0.0)
        workers = {cell.name: cell.num_workers for cell in arms}
        if cached:
            feeders[CEILING] = self._on_threads(cycle(cached), self.threads)
            discard[CEILING] = 1 + min(LONGEST_BLOCK, round(refill / expected[CEILING]))
        failures = {name: reason for name, feeder in feeders.items() if (reason := self._warm(feeder))}
        feeders = {name: feeder for name, feeder in feeders.items() if name not in failures}
        self.usage = Usage(self.target.device, discard)

        def on_block(measurement: Measurement) -> None:
            self.usage.note(measurement)
            tick()

        result = race(
            feeders,
            self.target.step,
            self.clock,
            block_steps={name: self.block_steps(expected[name], workers.get(name, 0), block) for name in feeders},
            discard=discard,
            rounds=rounds[1],
            seconds=seconds,
            at_least_rounds=rounds[0],
            on_block=on_block,
            drop=None if cached else hopeless,
        )
        for name, reason in (failures | result.failures).items():
            if cached:
                raise MeasurementError(f"Training failed ({name}): {reason}")
            self.notice("arm_failed", f"{name} failed in the race: {reason}")
        return result.measurements

    def _feeder(self, cell: Cell) -> Iterator[Any]:
        """Return what a cell's loader feeds; its threads are set here, since the arms take turns."""
        loader = open_loader(self.target, replace(cell, threads=None))
        return self._on_threads(iter(loader), cell.threads or self.threads)

    def _on_threads(self, feeder: Iterator[Any], count: int) -> Iterator[Any]:
        """Yield an arm's batches, torch's threads set for each: the arm before may have had another number."""
        for batch in feeder:
            torch.set_num_threads(count)
            yield batch

    def measured(self, cell: Cell, measurement: Measurement) -> Cell:
        """Return the cell with what the last race measured of it."""
        timing = measurement.step
        return replace(
            cell,
            status="raced",
            measured_ms=timing.ms,
            measured_ci_ms=timing.ci_ms,
            clips_per_second=self.target.batch_size / timing.median,
            vram_bytes=self.usage.vram.get(cell.name),
            cpu_seconds_per_step=self.usage.cpu_per_step.get(cell.name),
        )

    def block_steps(self, step_seconds: float, workers: int, share: float = 1.0) -> int:
        """Return how many steps make a block of about a second (less under a small budget), or that share of it.

        Workers that started together deliver together, so a block is a multiple of their number.
        """
        aim = share * min(1.0, self.budget / 100)
        steps = max(3, min(LONGEST_BLOCK, round(aim / max(step_seconds, 1e-4))))
        return math.ceil(steps / max(1, workers)) * max(1, workers)

    def _warm(self, feeder: Iterator[Any]) -> str:
        """Train on an arm's first batch, which starts its workers and loads its banks; say why if that fails."""
        try:
            self.target.step(next(feeder))
        except AudioaugError as error:
            return str(error)
        except Exception as error:
            return in_one_line(error, self.target.path)
        return ""


class Usage:
    """CPU seconds a step and peak device memory of each arm, noted after each of its blocks."""

    def __init__(self, device: Any, discard: Mapping[str, int]) -> None:
        self._device, self._discard = device, discard
        self._last = cpu_seconds()
        self._blocks: dict[str, list[float]] = {}
        self.cpu_per_step: dict[str, float] = {}
        self.vram: dict[str, int] = {}

    def note(self, measurement: Measurement) -> None:
        """Charge what was used since the last block to this arm."""
        name, now = measurement.cell, cpu_seconds()
        steps = measurement.steps_per_block + self._discard[name]
        self._blocks.setdefault(name, []).append((now - self._last) / steps)
        self.cpu_per_step[name] = Timing(tuple(self._blocks[name])).median
        self._last = now
        if self._device.type == "cuda":
            self.vram[name] = max(self.vram.get(name, 0), torch.cuda.max_memory_allocated(self._device))
            torch.cuda.reset_peak_memory_stats(self._device)
