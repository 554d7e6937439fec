"""Racing: loaders (and batches that already lie on the device) take turns at feeding one training loop."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from statistics import fmean, median_low
from typing import Any

import torch

from audioaug.advise.arms import RaceBatches, open_loader, stock_of
from audioaug.advise.budget import SMALL
from audioaug.advise.target import Target, in_one_line
from audioaug.decide.race import MARGIN, hopeless, in_the_middle, margin_of, outsiders
from audioaug.errors import AudioaugError, MeasurementError
from audioaug.loader import Loader
from audioaug.loader.processes import torch_threads
from audioaug.measure import Clock, GcPauses, Others, Watch, cpu_seconds, race
from audioaug.measure.rounds import ENOUGH
from audioaug.records import GRAPH_ENGINES, Cell, Measurement, Timing
from audioaug.units import Seconds

CEILING = "ceiling"
LONGEST_BLOCK = 50
SHORTEST_BLOCK, HURRIED_BLOCK = 3, 2
"""Steps of a block at least, and under a small budget: long steps take its time, and fewer rounds would tell less."""

ROUNDS, RACE_BLOCK = 4, 0.5
"""A race of fewer rounds tells too little apart. What a machine drifts by from second to second (6 to 10 % of a step,
measured on two virtual cores) is no less over blocks of a second, of which there would be half as many."""

FINALISTS = 4
"""Arms of a race that go on in its second half, the first one among them: these are told apart more surely then."""

FEW_ROUNDS = 3
"""Where the ceiling takes turns (the answer, if it is there, is to be quick), or time is short."""

AGAIN = " (again)"
"""Behind the name of an arm that takes part a second time."""

DISTURBED, SWAPPED = 0.1, 1e6
"""More does not count as a round: the share of the cores that others take, or of the time that a quota stops us; bytes
that are read back from swap space in a second."""

REFILL = 2.0
"""How many steps' time a loader gets for each batch of its stock, before nobody waits for it any more."""

MET = 100
"""Batches that an engine that records has met before it races, as it soon has in training."""

HEAT_ROUNDS = 2
HEAT_BLOCK = 0.25
"""Seconds."""


class Racer:
    """Runs races and notes what CPU and device memory each arm took.

    Args:
        target: what is trained.
        clock: says what time it is and waits for the device.
        budget: seconds of the whole survey, which the length of a block follows.
        notice: called with an id and a sentence where an arm fails.
        seed: of the batches that arms train on.
    """

    def __init__(
        self, target: Target, clock: Clock, budget: float, notice: Callable[[str, str], None], seed: int = 0
    ) -> None:
        self.target, self.clock, self.budget, self.notice, self.seed = target, clock, budget, notice, seed
        self.usage = Usage(target.device, clock, {})
        self.threads = torch.get_num_threads()
        self.failed: dict[str, str] = {}
        self.margin = MARGIN

    def pilot(self, cell: Cell, seconds: Seconds, is_over: Callable[[Measurement], bool]) -> Measurement:
        """Train on one arm alone, each step a block, until it is over, but for about so many seconds at most.

        Raises:
            MeasurementError: training failed.
        """
        feeder, discard = iter(open_loader(self.target, cell)), {cell.name: 0}
        self.target.step(next(feeder))
        with Usage(self.target.device, self.clock, discard) as self.usage:
            result = race(
                {cell.name: feeder},
                self.target.step,
                self.clock,
                block_steps=1,
                discard=discard,
                rounds=ENOUGH,
                seconds=seconds,
                on_block=self.usage.note,
                drop=lambda running: [name for name, found in running.items() if is_over(found)],
            )
        for reason in result.failures.values():
            raise MeasurementError(f"Training failed ({cell.name}): {reason}")
        return result.measurements[cell.name]

    def run(
        self,
        arms: Sequence[Cell],
        expected: Mapping[str, float],
        seconds: float,
        tick: Callable[..., None],
        cached: Sequence[Any] = (),
    ) -> dict[str, Measurement]:
        """Race the arms; give their expected step times in seconds by name.

        In the second half only the first one and the fastest of the others go on. An arm that is given twice tells by
        how much a plan may differ from itself: ``margin`` thereafter. With ``cached`` batches the ceiling races too,
        nobody is dropped, and all must finish.

        Raises:
            MeasurementError: the ceiling or an arm beside it failed.
        """
        watch = Watch(self.clock)
        with torch_threads(self.threads):
            least = FEW_ROUNDS if cached else ROUNDS
            found = self._race(
                arms,
                expected,
                tick,
                cached,
                seconds=seconds,
                rounds=(least, ENOUGH),
                block=RACE_BLOCK,
                void=lambda: _disturb(watch.lap()),
            )
        for name in [name for name in found if name.endswith(AGAIN)]:
            arm, again = found.get(name.removesuffix(AGAIN)), found.pop(name)
            if arm is not None and len(again.step.seconds) >= ROUNDS:
                self.margin = margin_of(arm, again)
        return found

    def heat(
        self,
        arms: Sequence[Cell],
        expected: Mapping[str, float],
        tick: Callable[..., None],
        rounds: int = HEAT_ROUNDS,
        block: float = HEAT_BLOCK,
    ) -> dict[str, Measurement]:
        """Give each arm a few short blocks, in turn: enough to see which of them belong into a race."""
        with torch_threads(self.threads):
            return self._race(arms, expected, tick, (), seconds=math.inf, rounds=(rounds, rounds), block=block)

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
        void: Callable[[], bool] | None = None,
    ) -> dict[str, Measurement]:
        cells = _named(arms)
        expected = {**expected, **{name: expected[cell.name] for name, cell in cells.items()}}
        discard = {name: stock_of(cell) for name, cell in cells.items()}
        steps = self._blocks(cells, expected, block, len(cached))
        same = len(cached) if self.target.pad else 0  # of many lengths: no other batches can be compared with these
        loaders = {name: self._loader(cell, discard[name], steps[name], same) for name, cell in cells.items()}
        feeders: dict[str, Iterator[Any]] = {
            name: self._on_threads(iter(loaders[name]), cell.threads or self.threads) for name, cell in cells.items()
        }
        if cached:
            feeders[CEILING], discard[CEILING] = self._on_threads(cycle(cached), self.threads), 1
        met = {name: _first_batches(cell) for name, cell in cells.items()}
        warmed = {name: self._warm(feeder, met.get(name, 1), seconds, tick) for name, feeder in feeders.items()}
        failures = {name: reason for name, reason in warmed.items() if reason}
        feeders = {name: feeder for name, feeder in feeders.items() if name not in failures}
        for name in feeders:
            self._let_refill(loaders.get(name), expected[name])
        with Usage(self.target.device, self.clock, discard) as self.usage:

            def ready(name: str) -> int | None:
                return loaders[name].ready if name in loaders else None

            def on_block(measurement: Measurement) -> None:
                name = measurement.cell
                stock = ready(name)
                self._let_refill(loaders.get(name), expected[name])
                self.usage.note(measurement, stock)
                tick()

            leaving = partial(self._leaving, arms[0].name, self.clock.now() + seconds / 2)
            result = race(
                feeders,
                self.target.step,
                self.clock,
                block_steps=steps,
                discard=discard,
                rounds=rounds[1],
                seconds=seconds,
                at_least_rounds=rounds[0],
                on_block=on_block,
                drop=None if cached else leaving,
                void=void,
                ready=lambda name: ready(name) or 0,
            )
        for name, reason in (failures | result.failures).items():
            if cached:
                raise MeasurementError(f"Training failed ({name}): {reason}")
            self.failed[name] = reason
            out_of_memory = "OutOfMemory" in reason or "out of memory" in reason
            self.notice("vram_limit" if out_of_memory else "arm_failed", f"{name} failed in the race: {reason}")
        return result.measurements

    def _leaving(self, first: str, half: Seconds, running: Mapping[str, Measurement]) -> list[str]:
        """Return who leaves the race: the hopeless, and from a time on all but the finalists.

        The first one stays for ``ROUNDS`` rounds, from that time on for ``FEW_ROUNDS``: however plainly it is slower,
        fewer do not show by how much.
        """
        late, twins = self.clock.now() > half, [name for name in running if name.endswith(AGAIN)]
        running = {name: found for name, found in running.items() if name not in twins}
        over = outsiders(running, first, FINALISTS) if late else []
        least = FEW_ROUNDS if late else ROUNDS
        stays = first in running and len(running[first].step.seconds) < least
        leaving = {*hopeless(running), *over} - ({first} if stays else set())
        return sorted({*leaving, *(twin for twin in twins if twin.removesuffix(AGAIN) in leaving)})

    def _blocks(
        self, arms: Mapping[str, Cell], expected: Mapping[str, float], seconds: float, cached: int
    ) -> dict[str, int]:
        """Return how many steps the block of each arm has; where clips have many lengths as many for all.

        A long clip more or less in a block would be taken for a slower or faster arm.
        """
        workers = {name: cell.num_workers for name, cell in arms.items()} | ({CEILING: 0} if cached else {})
        steps = {name: self.block_steps(expected[name], count, seconds) for name, count in workers.items()}
        if not self.target.pad:
            return steps
        multiple = cached or max(1, *workers.values())
        return dict.fromkeys(steps, math.ceil(median_low(steps.values()) / multiple) * multiple)

    def _loader(self, cell: Cell, discard: int, block: int, cached: int) -> Loader:
        """Open the loader of an arm that trains on so many batches before a block, and in it."""
        cell, target = replace(cell, threads=None), self.target
        if target.is_stream:
            return open_loader(target, cell)
        size, first = len(target.dataset), _first_batches(cell)
        batches = RaceBatches(size, target.batch_size, discard, block, self.seed, cached, first)
        return open_loader(target, cell, batches)

    def _on_threads(self, feeder: Iterator[Any], count: int) -> Iterator[Any]:
        """Yield an arm's batches, torch's threads set for each: the arm before may have had another number."""
        for batch in feeder:
            torch.set_num_threads(count)
            yield batch

    def measured(self, cell: Cell, measurements: Mapping[str, Measurement]) -> Cell:
        """Return the cell with what the last race measured of it, in a round like the middle one."""
        step_ms, ci_ms = in_the_middle(cell.name, measurements)
        return replace(
            cell,
            status="raced",
            measured_ms=step_ms,
            measured_ci_ms=ci_ms,
            clips_per_second=1e3 * self.target.batch_size / step_ms,
            vram_bytes=self.usage.vram.get(cell.name),
            cpu_seconds_per_step=self.usage.cpu_per_step(cell.name),
        )

    def block_steps(self, step_seconds: float, workers: int, seconds: float) -> int:
        """Return how many steps make a block of about so many seconds, or of fewer under a small budget.

        Workers that started together deliver together, so a block is a multiple of their number.
        """
        aim, least = seconds * min(1.0, self.budget / 100), HURRIED_BLOCK if self.budget < SMALL else SHORTEST_BLOCK
        steps = max(least, min(LONGEST_BLOCK, round(aim / max(step_seconds, 1e-4))))
        return math.ceil(steps / max(1, workers)) * max(1, workers)

    def _let_refill(self, loader: Loader | None, step_seconds: float) -> None:
        """Wait while workers refill what was taken of their stock, or they would do it beside the next arm's block."""
        if loader is None or (room := loader.capacity) is None:
            return
        deadline = self.clock.now() + REFILL * room * step_seconds
        while (loader.ready or 0) < room and self.clock.now() < deadline:
            time.sleep(0.002)

    def _warm(self, feeder: Iterator[Any], batches: int, seconds: Seconds, tick: Callable[..., None]) -> str:
        """Train on the last of an arm's first batches; with them its workers start and banks load. Say why it fails.

        After so many seconds there are no more of them.
        """
        end = self.clock.now() + seconds
        try:
            batch = next(feeder)
            while (batches := batches - 1) and self.clock.now() < end:
                tick()
                batch = next(feeder)
            self.target.step(batch)
        except AudioaugError as error:
            return str(error)
        except Exception as error:
            return in_one_line(error, self.target.path)
        return ""


def _first_batches(cell: Cell) -> int:
    """Return how many batches an arm takes before it races."""
    return MET if cell.device_engine in GRAPH_ENGINES else 1


def _disturb(others: Others) -> bool:
    """Return whether others had a good part of the cores, a quota stopped us, or memory was swapped in."""
    taken = (others.foreign_cores + others.stolen_cores) / others.cores
    return max(taken, others.throttled) > DISTURBED or others.swapped_in > SWAPPED


def _named(arms: Sequence[Cell]) -> dict[str, Cell]:
    """Return the arms by name; one that comes a second time gets a name of its own."""
    named = dict[str, Cell]()
    for cell in arms:
        named[cell.name + AGAIN if cell.name in named else cell.name] = cell
    return named


class Usage:
    """CPU seconds and garbage collection a step, ready batches and peak device memory of each arm, after its blocks."""

    def __init__(self, device: Any, clock: Clock, discard: Mapping[str, int]) -> None:
        self._device, self._discard = device, discard
        self._pauses = GcPauses(clock)
        self._last = (cpu_seconds(), 0.0)
        self._blocks: dict[str, list[tuple[float, float]]] = {}
        self._ready: dict[str, list[int]] = {}
        self.vram: dict[str, int] = {}

    def __enter__(self) -> "Usage":
        self._pauses.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pauses.__exit__()

    def note(self, measurement: Measurement, ready: int | None = None) -> None:
        """Charge what was used since the last block to this arm."""
        name, now = measurement.cell, (cpu_seconds(), self._pauses.seconds)
        steps = measurement.steps_per_block + self._discard[name]
        self._blocks.setdefault(name, []).append(((now[0] - self._last[0]) / steps, (now[1] - self._last[1]) / steps))
        self._last = now
        if ready is not None:
            self._ready.setdefault(name, []).append(ready)
        if self._device.type == "cuda":
            self.vram[name] = max(self.vram.get(name, 0), torch.cuda.max_memory_allocated(self._device))
            torch.cuda.reset_peak_memory_stats(self._device)

    def cpu_per_step(self, name: str) -> float | None:
        """Return the CPU seconds a step, of all processes; the median over blocks."""
        blocks = self._blocks.get(name)
        return Timing(tuple(cpu for cpu, _ in blocks)).median if blocks else None

    def gc_per_step(self, name: str) -> float | None:
        """Return the seconds of garbage collection a step: the mean, since full collections are rare and long."""
        blocks = self._blocks.get(name)
        return fmean(pauses for _, pauses in blocks) if blocks else None

    def ready(self, name: str) -> float | None:
        """Return how many batches lay ready at the end of a block, on average."""
        found = self._ready.get(name)
        return fmean(found) if found else None
