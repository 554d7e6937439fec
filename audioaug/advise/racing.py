"""Racing: loaders, and batches cached on the device, take turns feeding one training loop."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from statistics import fmean, median_low
from typing import Any

import torch

from audioaug.advise.candidates import RaceBatches, open_loader, queued_batches
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.race import MARGIN, clearly_slower, margin_of, non_finalists, typical_ms
from audioaug.errors import AudioaugError, MeasurementError, in_one_line
from audioaug.loader import Loader
from audioaug.loader.processes import torch_threads
from audioaug.measure import Clock, GcPauses, Interference, VramPeak, Watch, cpu_seconds, race, usable_cores
from audioaug.measure.repeat import ENOUGH
from audioaug.records import GRAPH_ENGINES, Candidate, Measurement, Timing
from audioaug.units import Seconds

CEILING = "ceiling"

SMALL = 60.0
"""Seconds of a small budget: fewer batches are kept on the device, and blocks of long steps are shorter."""

LONGEST_BLOCK = 50
SHORTEST_BLOCK, HURRIED_BLOCK = 3, 2
"""Fewest steps of a block, and with a small budget, where more rounds matter more than longer blocks."""

ROUNDS, RACE_BLOCK = 4, 0.5
"""Fewest rounds of a race, and seconds of a block. Longer blocks would not average out the drift from second to second
(6 to 10 % of a step, measured on two virtual cores), and there would be fewer of them."""

FINALISTS = 4
"""Candidates that remain in the second half of a race, the first one included: more rounds for the close ones."""

FEW_ROUNDS, SHORT_ROUNDS = 3, 2
"""Fewest rounds of a race with the ceiling, and when time is short; and if the budget allows only a few steps."""

DUPLICATE = " (again)"
"""Suffix of the name of a candidate that is entered twice."""

DISTURBED, SWAPPED = 0.1, 1e6
"""Limits above which a round is repeated: the share of cores used by others or of time throttled by a quota; bytes
swapped in per second."""

REFILL = 2.0
"""Longest wait for a loader to refill its queue, in steps for each batch."""

GRAPH_WARM_UP = 100
"""Batches with which an engine that records is warmed up before it races: in training it soon has as many."""

SCREENING_ROUNDS = 2
SCREENING_BLOCK = 0.25
"""Seconds."""


SETTLING = 2
"""Steps that are slower after torch's number of threads changes, if there are more of them than cores (by 40 %)."""


def settling(threads: Iterable[int]) -> int:
    """Return the untimed steps before a block if steps with these numbers of threads take turns."""
    counts = {*threads}
    return SETTLING if len(counts) > 1 and max(counts) > usable_cores() else 0


class Racer:
    """Run races, and record the CPU time and device memory of each candidate.

    Args:
        job: what is trained.
        clock: the clock of the device.
        budget: seconds of the whole survey, which scales the length of blocks.
        notice: called with an id and a sentence when a candidate fails.
        seed: seed of the batches.

    ``failed``: reasons of failures by name; ``skipped``: number of unreadable examples that loaders skipped;
    ``few_steps``: the budget allows only a few steps; ``slow_data``: a batch takes longer than a step; ``own_batches``:
    each candidate has batches of its own, since the first step on a new shape is slow, and the same batches would be
    new only to the first candidate of a round.
    """

    def __init__(
        self, job: TrainingJob, clock: Clock, budget: float, notice: Callable[[str, str], None], seed: int = 0
    ) -> None:
        self.job, self.clock, self.budget, self.notice, self.seed = job, clock, budget, notice, seed
        self.usage = Usage(job.device, clock, {})
        self.threads = torch.get_num_threads()
        self.failed: dict[str, str] = {}
        self.skipped = 0
        self.few_steps = self.slow_data = self.own_batches = False
        self.margin = MARGIN

    def pilot(
        self, candidate: Candidate, seconds: Seconds, is_over: Callable[[Measurement], bool], block: int = 1
    ) -> Measurement:
        """Train with one candidate alone, ``block`` steps at a time, until ``is_over`` or ``seconds`` have passed.

        Raises:
            MeasurementError: training failed.
        """
        loader, discard = open_loader(self.job, candidate), {candidate.name: 0}
        feeder = iter(loader)
        self.job.step(next(feeder))
        with Usage(self.job.device, self.clock, discard) as self.usage:
            result = race(
                {candidate.name: feeder},
                self.job.step,
                self.clock,
                block_steps=block,
                discard=discard,
                rounds=ENOUGH,
                seconds=seconds,
                on_block=self.usage.note,
                drop=lambda running: [name for name, found in running.items() if is_over(found)],
            )
        self.skipped += loader.skipped
        for reason in result.failures.values():
            raise MeasurementError(f"Training failed ({candidate.name}): {reason}")
        return result.measurements[candidate.name]

    def run(
        self,
        candidates: Sequence[Candidate],
        expected: Mapping[str, float],
        seconds: float,
        tick: Callable[..., None],
        cached: Sequence[Any] = (),
    ) -> dict[str, Measurement]:
        """Race the candidates, with their expected step times in seconds by name.

        Only the first one and the fastest others remain in the second half. A candidate that is entered twice sets
        ``margin``: how much a plan may differ from itself. With ``cached`` batches the ceiling races too, and no
        candidate is dropped.

        Raises:
            MeasurementError: training failed in a race with the ceiling.
        """
        watch = Watch(self.clock)
        with torch_threads(self.threads):
            least = SHORT_ROUNDS if self.few_steps else FEW_ROUNDS if cached else ROUNDS
            found = self._race(
                candidates,
                expected,
                tick,
                cached,
                seconds=seconds,
                rounds=(least, ENOUGH),
                block=RACE_BLOCK,
                is_disturbed=lambda: _is_disturbed(watch.lap()),
            )
        for name in [name for name in found if name.endswith(DUPLICATE)]:
            candidate, again = found.get(name.removesuffix(DUPLICATE)), found.pop(name)
            if candidate is not None and len(again.step.seconds) >= ROUNDS:
                self.margin = margin_of(candidate, again)
        return found

    def screen(
        self,
        candidates: Sequence[Candidate],
        expected: Mapping[str, float],
        tick: Callable[..., None],
        rounds: int = SCREENING_ROUNDS,
        block: float = SCREENING_BLOCK,
    ) -> dict[str, Measurement]:
        """Time a few short blocks of each candidate, in turn, to decide which are worth racing."""
        with torch_threads(self.threads):
            return self._race(candidates, expected, tick, (), seconds=math.inf, rounds=(rounds, rounds), block=block)

    def _race(
        self,
        candidates: Sequence[Candidate],
        expected: Mapping[str, float],
        tick: Callable[..., None],
        cached: Sequence[Any],
        *,
        seconds: float,
        rounds: tuple[int, int],
        block: float,
        is_disturbed: Callable[[], bool] | None = None,
    ) -> dict[str, Measurement]:
        named = _named(candidates)
        expected = {**expected, **{name: expected[candidate.name] for name, candidate in named.items()}}
        settle = 0 if self.few_steps else settling(each.threads or self.threads for each in candidates)
        discard = {name: max(settle, self.discarded(candidate)) for name, candidate in named.items()}
        steps = self._blocks(named, expected, block, len(cached))
        same = len(cached) if self.job.pad else 0  # lengths differ: only the same batches are comparable
        loaders = {name: self._loader(name, it, discard[name], steps[name], same) for name, it in named.items()}
        feeders: dict[str, Iterator[Any]] = {
            name: self._on_threads(iter(loaders[name]), candidate.threads or self.threads)
            for name, candidate in named.items()
        }
        if cached:
            feeders[CEILING], discard[CEILING] = self._on_threads(cycle(cached), self.threads), max(1, settle)
        warm_up = {name: _first_batches(candidate) for name, candidate in named.items()}
        warmed = {name: self._warm(feeder, warm_up.get(name, 1), seconds, tick) for name, feeder in feeders.items()}
        failures = {name: reason for name, reason in warmed.items() if reason}
        feeders = {name: feeder for name, feeder in feeders.items() if name not in failures}
        for name in feeders:
            self._wait_for_refill(loaders.get(name), expected[name])
        with Usage(self.job.device, self.clock, discard) as self.usage:

            def ready(name: str) -> int | None:
                return loaders[name].ready if name in loaders else None

            def on_block(measurement: Measurement) -> None:
                name = measurement.candidate
                queued = ready(name)
                self._wait_for_refill(loaders.get(name), expected[name])
                self.usage.note(measurement, queued)
                tick()

            leaving = partial(self._leaving, candidates[0].name, self.clock.now() + seconds / 2)
            result = race(
                feeders,
                self.job.step,
                self.clock,
                block_steps=steps,
                discard=discard,
                rounds=rounds[1],
                seconds=seconds,
                at_least_rounds=rounds[0],
                on_block=on_block,
                drop=None if cached else leaving,
                is_disturbed=is_disturbed,
                ready=lambda name: ready(name) or 0,
            )
        self.skipped += sum(loader.skipped for loader in loaders.values())
        for name, reason in (failures | result.failures).items():
            if cached:
                raise MeasurementError(f"Training failed ({name}): {reason}")
            self.failed[name] = reason
            out_of_memory = "OutOfMemory" in reason or "out of memory" in reason
            self.notice("vram_limit" if out_of_memory else "candidate_failed", f"{name} failed: {reason}")
        return result.measurements

    def _leaving(self, first: str, half: Seconds, running: Mapping[str, Measurement]) -> list[str]:
        """Return the candidates to drop: clearly slower ones and, after ``half``, all but the finalists.

        The first one stays for ``ROUNDS`` rounds (``FEW_ROUNDS`` after ``half``), so that its ratio can be reported.
        """
        late, twins = self.clock.now() > half, [name for name in running if name.endswith(DUPLICATE)]
        running = {name: found for name, found in running.items() if name not in twins}
        over = non_finalists(running, first, FINALISTS) if late else []
        least = FEW_ROUNDS if late else ROUNDS
        stays = first in running and len(running[first].step.seconds) < least
        leaving = {*clearly_slower(running), *over} - ({first} if stays else set())
        return sorted({*leaving, *(twin for twin in twins if twin.removesuffix(DUPLICATE) in leaving)})

    def _blocks(
        self, candidates: Mapping[str, Candidate], expected: Mapping[str, float], seconds: float, cached: int
    ) -> dict[str, int]:
        """Return the steps of each candidate's block; the same for all if clips have different lengths.

        Otherwise one long clip more in a block would count as a slower candidate.
        """
        workers = {name: candidate.num_workers for name, candidate in candidates.items()} | (
            {CEILING: 0} if cached else {}
        )
        steps = {name: self.block_steps(expected[name], count, seconds) for name, count in workers.items()}
        if not self.job.pad:
            return steps
        multiple = cached or max(1, *workers.values())
        return dict.fromkeys(steps, math.ceil(median_low(steps.values()) / multiple) * multiple)

    def _loader(self, name: str, candidate: Candidate, discard: int, block: int, cached: int) -> Loader:
        """Open a candidate's loader for blocks of ``block`` batches, each after ``discard`` untimed ones."""
        candidate, job = replace(candidate, threads=None), self.job
        if job.is_stream:
            return open_loader(job, candidate)
        size, first = len(job.dataset), _first_batches(candidate)
        owner = name if self.own_batches else ""
        batches = RaceBatches(size, job.batch_size, discard, block, self.seed, cached, first, owner)
        return open_loader(job, candidate, batches)

    def _on_threads(self, feeder: Iterator[Any], count: int) -> Iterator[Any]:
        """Yield a candidate's batches and set torch's number of threads before each step."""
        for batch in feeder:
            torch.set_num_threads(count)
            yield batch

    def measured(self, candidate: Candidate, measurements: Mapping[str, Measurement]) -> Candidate:
        """Return the candidate with its results of the last race, for a typical round."""
        step_ms, ci_ms = typical_ms(candidate.name, measurements)
        return replace(
            candidate,
            status="raced",
            measured_ms=step_ms,
            measured_ci_ms=ci_ms,
            clips_per_second=1e3 * self.job.batch_size / step_ms,
            vram_bytes=self.usage.vram.get(candidate.name),
            cpu_seconds_per_step=self.usage.cpu_per_step(candidate.name),
        )

    def block_steps(self, step_seconds: float, workers: int, seconds: float) -> int:
        """Return the steps of a block of about ``seconds``, or less with a small budget.

        Workers that started together deliver together, so a block is a multiple of their number.
        """
        aim, least = seconds * min(1.0, self.budget / 100), HURRIED_BLOCK if self.budget < SMALL else SHORTEST_BLOCK
        least = 1 if self.few_steps else least
        steps = max(least, min(LONGEST_BLOCK, round(aim / max(step_seconds, 1e-4))))
        return math.ceil(steps / max(1, workers)) * max(1, workers)

    def expect_few_steps(self, slow_data: bool) -> None:
        """Race in short blocks and few rounds from now on: the budget allows only a few steps or batches."""
        self.few_steps, self.slow_data = True, slow_data

    def discarded(self, candidate: Candidate) -> int:
        """Return the untimed steps before a candidate's block: those on queued batches, or one if steps are slower."""
        return 1 if self.few_steps and not self.slow_data else queued_batches(candidate)

    def _wait_for_refill(self, loader: Loader | None, step_seconds: float) -> None:
        """Wait until workers have refilled their queue; otherwise they would disturb the next candidate's block."""
        if loader is None or (room := loader.capacity) is None:
            return
        deadline = self.clock.now() + REFILL * room * step_seconds
        while (loader.ready or 0) < room and self.clock.now() < deadline:
            time.sleep(0.002)

    def _warm(self, feeder: Iterator[Any], batches: int, seconds: Seconds, tick: Callable[..., None]) -> str:
        """Take a candidate's warm-up batches, for at most ``seconds``, and train on the last; return why that failed.

        This starts workers and loads banks.
        """
        end = self.clock.now() + seconds
        try:
            batch = next(feeder)
            while (batches := batches - 1) and self.clock.now() < end:
                tick()
                batch = next(feeder)
            self.job.step(batch)
        except AudioaugError as error:
            return str(error)
        except Exception as error:
            return in_one_line(error)
        return ""


def _first_batches(candidate: Candidate) -> int:
    """Return the number of a candidate's warm-up batches."""
    return GRAPH_WARM_UP if candidate.device_engine in GRAPH_ENGINES else 1


def _is_disturbed(others: Interference) -> bool:
    """Return whether other programs, a CPU quota or swapping disturbed a round."""
    return max(others.foreign_share, others.throttled) > DISTURBED or others.swapped_in > SWAPPED


def _named(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """Return the candidates by name; a second entry of one gets a suffix."""
    named = dict[str, Candidate]()
    for candidate in candidates:
        named[candidate.name + DUPLICATE if candidate.name in named else candidate.name] = candidate
    return named


class Usage:
    """CPU seconds and garbage collection a step, queued batches and peak device memory of each candidate."""

    def __init__(self, device: Any, clock: Clock, discard: Mapping[str, int]) -> None:
        self._discard = discard
        self._pauses = GcPauses(clock)
        self._last = (cpu_seconds(), 0.0)
        self._blocks: dict[str, list[tuple[float, float]]] = {}
        self._ready: dict[str, list[int]] = {}
        self.vram: dict[str, int] = {}
        self._vram_peak = VramPeak(device) if device.type == "cuda" else None

    def __enter__(self) -> "Usage":
        self._pauses.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pauses.__exit__()

    def note(self, measurement: Measurement, ready: int | None = None) -> None:
        """Attribute the usage since the last block to this candidate."""
        name, now = measurement.candidate, (cpu_seconds(), self._pauses.seconds)
        steps = measurement.steps_per_block + self._discard[name]
        self._blocks.setdefault(name, []).append(((now[0] - self._last[0]) / steps, (now[1] - self._last[1]) / steps))
        self._last = now
        if ready is not None:
            self._ready.setdefault(name, []).append(ready)
        if self._vram_peak is not None:
            self.vram[name] = max(self.vram.get(name, 0), self._vram_peak.look())

    def cpu_per_step(self, name: str) -> float | None:
        """Return the CPU seconds a step of all processes, median over blocks."""
        blocks = self._blocks.get(name)
        return Timing(tuple(cpu for cpu, _ in blocks)).median if blocks else None

    def gc_per_step(self, name: str) -> float | None:
        """Return the seconds of garbage collection a step, mean over blocks: full collections are rare and long."""
        blocks = self._blocks.get(name)
        return fmean(pauses for _, pauses in blocks) if blocks else None

    def ready(self, name: str) -> float | None:
        """Return how many batches were queued at the end of a block, on average."""
        found = self._ready.get(name)
        return fmean(found) if found else None
