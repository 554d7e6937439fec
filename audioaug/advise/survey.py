"""Survey: which measurements, in which order. Each stage adds to the report, so that an interruption loses nothing.

The ceiling comes first, together with what the user does today; if these are equally fast, that is the answer. Then
what each stage costs alone, a prediction for every cell, and a race of the promising ones with real training steps.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import torch

from audioaug.advise.also import Wanted, measure_also
from audioaug.advise.arms import (
    CLIPS,
    cached_batches,
    device_parts,
    device_works,
    open_loader,
    step_behind,
    stock_cuts,
    stock_of,
    worker_parts,
    worker_works,
)
from audioaug.advise.beside import look_at_step, look_beside
from audioaug.advise.cache import Cache, fingerprint
from audioaug.advise.limits import needs_of
from audioaug.advise.progress import Progress, told_once
from audioaug.advise.racing import CEILING, HEAT_BLOCK, HEAT_ROUNDS, ROUNDS, Racer
from audioaug.advise.target import Target, in_one_line
from audioaug.advise.worker_probe import Memory
from audioaug.build.stock import why_unavailable
from audioaug.decide.diagnose import stall
from audioaug.decide.limits import Needs, most_workers
from audioaug.decide.predict import best_threads, threads_beside, with_prediction, worker_engines
from audioaug.decide.recommend import leave_as_it_is, may_leave, recommend
from audioaug.decide.shortlist import all_cells, best_of_each, placement_of, shortlist
from audioaug.decide.variants import variant_sentences
from audioaug.decide.what_if import crossovers
from audioaug.errors import AudioaugError, MeasurementError
from audioaug.measure import (
    Watch,
    clock_for,
    effective_cores,
    host_facts,
    interleave,
    measure_loader,
    measure_steal,
    measure_transfer,
    repeat,
)
from audioaug.records import (
    Ceiling,
    Cell,
    ChainFacts,
    DeviceEngine,
    LoaderCost,
    Measurement,
    Notice,
    PartCost,
    Plan,
    Report,
    Signals,
    StageCost,
    StealCost,
    Timing,
    Where,
    Workload,
)
from audioaug.train.device_prefetch import tensors
from audioaug.train.examples import get_wave
from audioaug.train.threads import torch_threads
from audioaug.units import format_seconds, plural

SHARES = {"today": 0.1, "workers": 0.05, "device": 0.08, "loader": 0.18, "heats": 0.33, "race": 0.26}
"""The stages in order, and how they share the time: what one leaves over or overdraws is shared by those after it."""

CPU_TRAINING = (
    'There is no GPU here: the model trains on the CPU, where workers compete with it for cores, and "on the device" '
    "means whole batches in the training process."
)
FEWEST_RACED, MOST_RACED = 3, 9
"""Cells in the race, today's and the favourite among them."""

ALSO = 0.04
"""Of the budget, besides it, for each other precision or batch size."""

MOST_IN_HEAT = 8
MOST_PROCESSES = 32
"""Workers that are alive at once, most of them waiting."""

STEAL_BLOCK = 0.05
"""Seconds of training steps that are timed as one where workers run beside them."""

STARTING = 0.5
"""Seconds that a loader takes to start, about."""


@dataclass(frozen=True)
class Options:
    """How to survey: seconds in all, worker counts to consider (``None``: by the cores), a plan to verify, rows.

    ``fresh``: measure all of it, also what is known from an earlier run.
    """

    budget: float
    workers: tuple[int, ...] | None = None
    verify: Plan | None = None
    also: tuple[Wanted, ...] = ()
    fresh: bool = False


class Survey:
    """One run of the advisor. ``report`` holds what is known so far; ``on_update`` is called whenever it grows."""

    def __init__(
        self, target: Target, options: Options, progress: Progress, on_update: Callable[[Report], None]
    ) -> None:
        self.target, self.options, self.progress, self.on_update = target, options, progress, on_update
        self.clock = clock_for(target.device)
        self.racer = Racer(target, self.clock, options.budget, self._notice)
        self._began = time.monotonic()
        host = host_facts(target.device)
        host = replace(host, effective_cores=effective_cores(int(host.usable_cores), self.clock))
        self.report = Report(host, _chain_facts(target), _workload(target))
        self.today = self._cell(target.chain.worker_until, target.num_workers)
        self._batches: list[Any] = []
        self.needs, self.most_workers = Needs(), MOST_PROCESSES
        self._left_out: dict[str, float] = {}

    def run(self) -> Report:
        """Measure, decide, and return the complete report."""
        with told_once(lambda text: self._notice("warning", text)):
            try:
                return self._run()
            except AudioaugError:
                raise
            except Exception as error:
                raise MeasurementError(f"A measurement failed: {in_one_line(error, self.target.path)}") from error

    def _run(self) -> Report:
        if not self.report.host.has_gpu:
            self._notice("cpu_training", CPU_TRAINING)
        measurements = self._measure_today()
        if self.options.verify is not None:
            return self._finish(self._race_plan(self.options.verify))
        if may_leave(*(measurements[name] for name in (self.today.name, CEILING))):
            return self._finish(leave_as_it_is(self._with_cost()))
        cache = Cache(self._fingerprint())
        if self.options.fresh or not self._recall(cache):
            self._measure_workers()
            self._measure_device()
            self._measure_loader()
            self._predict()
            self._run_heats()
            cache.save(self.report)
        return self._finish(self._race(self._arms()))

    def _fingerprint(self) -> str:
        shapes = [tuple(each.shape) for each in tensors(self._batches[0])]
        asked = (self.options.budget, self._worker_counts(), self.today.num_workers, shapes)
        return fingerprint(self.target, self.report, asked)

    def _recall(self, cache: Cache) -> bool:
        """Take over the stages and heats of an earlier run, if there was one; what is raced is raced now."""
        found = cache.load()
        if found is None:
            return False
        earlier, age = found
        self._notice(
            "cached",
            f"What stages cost and the heats showed is from {format_seconds(age)} ago ({cache.path}); "
            "what you do today and the race were measured now. --fresh measures all of it again.",
        )
        stages = {name: getattr(earlier, name) for name in ("stages", "parts", "loader_costs", "steals")}
        self._grow(**stages)
        self._note_best_threads()
        self._predict()
        known = {cell.name: cell for cell in earlier.cells if cell.status == "raced"}
        blocks = tuple(it for it in earlier.measurements if it.cell in known)
        cells = tuple(self._remeasured(cell, known.get(cell.name)) for cell in self.report.cells)
        names = {cell.name for cell in cells}
        self._grow(cells=cells, measurements=(*self.report.measurements, *(it for it in blocks if it.cell in names)))
        self._left_out = {name: share for name, share in SHARES.items() if name not in ("today", "race")}
        return True

    def _remeasured(self, cell: Cell, known: Cell | None) -> Cell:
        """Return the cell with what an earlier run measured of it."""
        if known is None:
            return cell
        predicted = {name: getattr(cell, name) for name in ("predicted_ms", "predicted_ci_ms", "bound_by")}
        return self._with_stall(replace(known, **predicted))

    # What is measured

    def _measure_today(self) -> dict[str, Measurement]:
        """Race the user's own configuration against batches that already lie on the device."""
        seconds = self._seconds("today")
        with self.progress.stage("ceiling, and what you do today", seconds) as tick:
            self._batches = cached_batches(self.target, self.today)
            self.target.try_step(self._batches[0])
            signals = look_at_step(self.target, self._batches, self.clock, seconds / 20)
            message = next(open_loader(self.target, replace(self.today, num_workers=0)).messages())
            signals = self._keep_to_limits(needs_of(self.target, message, self.report.host.start_method), signals)
            pilot = interleave(
                {CEILING: self._step_on_cached(), "today": self._step_on(self.today)},
                self.clock,
                seconds=seconds / 4,
                at_least=3,
            )
            watch = Watch(self.clock)
            result = self.racer.run(
                [self.today],
                {self.today.name: pilot["today"].median, CEILING: pilot[CEILING].median},
                seconds / 2,
                tick,
                cached=self._batches,
            )
            signals = self._with_race(signals, watch, result[self.today.name])
            signals = look_beside(self.target, self.today, message, signals, self.clock, seconds / 5)
        timing = result[CEILING].step
        rate = self.target.batch_size / timing.median
        self.today = self.racer.measured(self.today, result[self.today.name])
        ceiling = Ceiling(timing.ms, timing.ci_ms, rate, self.report.host.torch_threads, timing.samples_ms)
        self._grow(ceiling=ceiling, current=self.today, measurements=(result[self.today.name],), signals=signals)
        self._grow(current=self._with_stall(self.today))
        return result

    def _keep_to_limits(self, needs: Needs, signals: Signals) -> Signals:
        """Find out how many workers there is room for, and take some from today's where they are more."""
        self.needs = needs
        self.most_workers, limit = most_workers(self.report.host, needs, MOST_PROCESSES)
        signals = replace(signals, batch_bytes=needs.batch_bytes, batch_tensors=needs.batch_tensors)
        if limit is None or self.today.num_workers <= self.most_workers:
            return signals
        text = f"{limit.text} What you do today was measured with so many instead of {self.today.num_workers}."
        self.today = self._cell(self.today.cut, self.most_workers)
        return replace(signals, refused=Notice(limit.id, text))

    def _with_race(self, signals: Signals, watch: Watch, today: Measurement) -> Signals:
        """Return the signals with what was seen while today's configuration was raced."""
        others, usage, name = watch.others(), self.racer.usage, today.cell
        return replace(
            signals,
            watched_cores=others.cores,
            foreign_cores=others.foreign_cores,
            stolen_cores=others.stolen_cores,
            wanted_cores=others.wanted_cores,
            throttled=others.throttled,
            gc_share=(usage.gc_per_step(name) or 0.0) / today.step.median,
            ready=usage.ready(name),
        )

    def _measure_workers(self) -> None:
        """Time what one worker does for a batch, with either engine and one thread as in a worker."""
        seconds, cuts = self._seconds("workers"), self.report.chain.cuts
        wave = get_wave(self._batches[0]).cpu()
        on_clips = worker_works(self.target)
        on_batches = device_works(self.target, wave, "batched")
        on_batches = {f"batched {op}": work for op, work in on_batches.items() if int(op) in cuts[:-1]}
        parts = {f"until {cut}": work for cut, work in worker_parts(self.target, wave).items()}
        works = on_clips | on_batches | parts
        with self.progress.stage("each transform in a worker", seconds) as tick, torch_threads(1):
            times = interleave(works, self.clock, seconds=seconds, at_least=3, on_round=tick)
        stages = [self._worker_stage(name, times[name]) for name in on_clips]
        stages += [self._op_stage("worker", name, times[name]) for name in on_batches]
        built = [_part("worker", int(name.split()[1]), 1, times[name]) for name in parts]
        self._grow(stages=tuple(stages), parts=tuple(built))

    def _measure_device(self) -> None:
        """Time the step on any threads it may get, all behind each cut as it is built, every op, and the copy."""
        wave, seconds = get_wave(self._batches[0]), self._seconds("device")
        with self.progress.stage("each transform on the device", seconds) as tick:
            self._measure_steps(0.1 * seconds)
            parts, counts = device_parts(self.target, wave), self._thread_counts()
            for count in counts:
                tick()
                ours = parts if count == counts[(len(counts) - 1) // 2] else dict(list(parts.items())[:1])
                self._measure_on_threads(count, ours, 0.4 * seconds / len(counts))
            self._measure_ops(wave, 0.4 * seconds, tick)
            copies = measure_transfer(wave.cpu(), self.target.device, self.clock, seconds=0.1 * seconds)
        stages = [StageCost(f"copy, {kind}", "transfer", it.ms, it.ci_ms) for kind, it in copies.items()]
        self._grow(stages=(*self.report.stages, *stages))

    def _measure_steps(self, seconds: float) -> None:
        """Time the step on each number of threads, and take it for the ceiling where it is faster on fewer."""
        counts = sorted({self.report.host.torch_threads, *self._thread_counts()}, reverse=True)
        step = self._step_on_cached()

        def on_threads(count: int) -> None:
            with torch_threads(count):
                step()

        works = {plural(count, "thread"): partial(on_threads, count) for count in counts}
        times = interleave(works, self.clock, seconds=seconds, at_least=3)
        stages = [
            StageCost("step", "model", it.ms, it.ci_ms, engine=name, samples_ms=it.samples_ms)
            for name, it in times.items()
        ]
        self._grow(stages=(*self.report.stages, *stages))
        self._note_best_threads()

    def _note_best_threads(self) -> None:
        """Take the step on fewer threads for the ceiling if it is faster so, as those of small models are."""
        usual, best = self.report.host.torch_threads, best_threads(self.report)
        step = next(it for it in self.report.stages if (it.where, it.engine) == ("model", plural(best, "thread")))
        if best != usual and step.ms_per_batch and step.ci_ms:
            rate = self.target.batch_size / step.ms_per_batch * 1e3
            self._grow(ceiling=Ceiling(step.ms_per_batch, step.ci_ms, rate, best, step.samples_ms))
            self._grow(current=self._with_stall(self.report.current or self.today))

    def _thread_counts(self) -> tuple[int, ...]:
        """Return how many threads training steps get in the cells, as far as is known."""
        usual = self.report.host.torch_threads
        return tuple(sorted({threads_beside(self.report, workers) or usual for workers in self._worker_counts()}))

    def _measure_on_threads(self, count: int, parts: Mapping[int, Callable[[], torch.Tensor]], seconds: float) -> None:
        """Time these device parts on so many threads, and the longest of them with the step and the copy."""
        works: dict[str, Callable[[], object]] = {str(cut): work for cut, work in parts.items()}
        if parts and not self.target.pad:  # padded batches would have to tell their new lengths
            behind = step_behind(self.target, parts[min(parts)], self._batches[0])
            works |= {"step": self._step_on_cached(), "both": behind}
        with torch_threads(count):
            times = interleave(works, self.clock, seconds=seconds, at_least=3) if works else {}
        found = [_part("device", cut, count, times[str(cut)]) for cut in parts]
        if found and "both" in times:
            found[0] = replace(found[0], step_ms=times["step"].ms, both_ms=times["both"].ms)
        self._grow(parts=(*self.report.parts, *found))

    def _measure_ops(self, wave: torch.Tensor, seconds: float, tick: Callable[..., None]) -> None:
        """Time every op alone, with both engines, on as many threads as the ceiling was measured on."""
        engines: list[DeviceEngine] = ["batched"] if why_unavailable() else ["batched", "torch-audiomentations"]
        works = {
            f"{engine} {op}": work for engine in engines for op, work in device_works(self.target, wave, engine).items()
        }
        if not works:
            return
        assert self.report.ceiling is not None
        with torch_threads(self.report.ceiling.threads):
            times = interleave(works, self.clock, seconds=seconds, at_least=3, on_round=tick)
        stages = [self._op_stage("device", name, timing) for name, timing in times.items()]
        self._grow(stages=(*self.report.stages, *stages))

    def _measure_loader(self) -> None:
        """Time the loader without the device part, for the whole chain and for as little of it as can be.

        With the whole chain, and the better engine for it, also how it and training steps slow each other down.
        """
        first, last = self.report.chain.cuts[0], self.report.chain.cuts[-1]
        ends = {(first, "audiomentations"), *((last, engine) for engine in worker_engines(self.report, last))}
        cells = [
            replace(self._cell(cut, count), worker_engine=engine, threads=threads_beside(self.report, count))
            for cut, engine in sorted(ends)
            for count in self._worker_counts()
            if count or engine == "audiomentations"
        ]
        engine = worker_engines(self.report, last)[-1]  # that which takes less of a worker's time
        steals = {it.name for it in cells if it.num_workers and (it.cut, it.worker_engine) == (last, engine)}
        seconds = self._seconds("loader")
        share = seconds / (len(cells) + len(steals))
        with self.progress.stage("the loader alone, and beside training", seconds) as tick:
            for cell in cells:
                if cell.num_workers > self.most_workers:
                    continue
                self._time_loader(cell, share, cell.name in steals)
                tick()

    def _time_loader(self, cell: Cell, seconds: float, steals: bool) -> None:
        """Time a loader alone and, if asked, beside training steps."""
        step, alone = self._step_on_cached(), None
        if steals:
            with torch_threads(self._threads(cell)):
                alone = repeat(step, self.clock, seconds=seconds / 4, at_least=3)
        memory = Memory(cell)
        feeder = memory.over(open_loader(self.target, replace(cell, threads=None)).messages())
        block = max(1, cell.num_workers)
        result = measure_loader(
            feeder,
            self.clock,
            seconds=seconds,
            discard=1 + cell.num_workers,  # the others come as they are made: there is never a stock
            block_batches=block,
            at_least=max(4, 3 * block),
        )
        timing, engine = result.per_batch, cell.worker_engine
        (low, high), mean = timing.ci_ms, timing.mean_ms
        cost = LoaderCost(
            cell.cut,
            cell.num_workers,
            mean,
            (min(low, mean), max(high, mean)),
            result.first_batch_seconds,
            engine,
            timing.samples_ms,
        )
        self._grow(loader_costs=(*self.report.loader_costs, cost))
        self._note_memory(cell, memory)
        if alone is not None:
            self._grow(steals=(*self.report.steals, self._time_steal(cell, feeder, step, alone, seconds)))

    def _time_steal(
        self, cell: Cell, feeder: Iterator[object], step: Callable[[], object], alone: Timing, seconds: float
    ) -> StealCost:
        """Time training steps while this cell's workers never stop."""
        with torch_threads(self._threads(cell)):
            found = measure_steal(
                step,
                feeder,
                self.clock,
                seconds=seconds * 3 / 4,
                discard=1,
                block_steps=max(1, round(STEAL_BLOCK / alone.median)),
                block_batches=cell.num_workers,
            )
        return StealCost(
            cell.cut,
            cell.worker_engine,
            cell.num_workers,
            self._threads(cell),
            alone.ms,
            found.step.ms,
            found.batch.mean_ms,
            found.step.samples_ms,
            found.batch.samples_ms,
        )

    def _note_memory(self, cell: Cell, memory: Memory) -> None:
        """Keep what workers of today's cut take of the memory, which limits how many there can be."""
        if memory.worker_bytes is None:
            return
        largest = max(memory.worker_bytes, self.needs.worker_bytes or 0)
        self.needs = replace(self.needs, worker_bytes=largest)
        self.most_workers, _ = most_workers(self.report.host, self.needs, MOST_PROCESSES)
        signals = replace(self.report.signals, worker_bytes=largest)
        if (cell.cut, cell.num_workers) == (self.today.cut, self.today.num_workers):
            signals = replace(signals, worker_growth_bytes=memory.growth_bytes)
        self._grow(signals=signals)

    # What is decided on the way

    def _predict(self) -> None:
        cells = all_cells(
            self.report,
            self._worker_counts(),
            stock_cuts(self.target.chain),
            pin_memory=self._pin,
            why_no_stock=why_unavailable(),
        )
        _, limit = most_workers(self.report.host, self.needs, MOST_PROCESSES)
        cells += [
            replace(self._cell(cut, count), status="infeasible", reason=limit.text if limit else "")
            for cut in {self.report.chain.cuts[0], self.report.chain.cuts[-1]}
            for count in self._wanted_counts()
            if count > self.most_workers
        ]
        self._grow(cells=tuple(cells), current=with_prediction(self.report, self.report.current or self.today))

    def _run_heats(self) -> None:
        """Give every cut, with either engine, a few training steps beside what is done today."""
        assert self.report.current is not None
        today, waiting = self.report.current, best_of_each(self.report.cells)
        waiting = [cell for cell in waiting if cell.name != today.name]
        seconds = self._seconds("heats")
        end = time.monotonic() + seconds
        with self.progress.stage(f"heats of {len(waiting)}, with training steps", seconds) as tick:
            while heat := self._as_many_as_fit(waiting, end - time.monotonic()):
                waiting = waiting[len(heat) :]
                arms = [today, *heat]
                self._note_heat(heat, self.racer.heat(arms, self._expected(arms), tick))
        if waiting:
            self._notice(
                "only_predicted",
                f"There was no time for heats of {len(waiting)} of the ways to cut the chain: they are only predicted. "
                "A larger --budget measures them.",
            )

    def _as_many_as_fit(self, cells: Sequence[Cell], seconds: float) -> list[Cell]:
        """Return the first of the cells that a heat beside today's configuration has time and processes for."""
        assert self.report.current is not None
        seconds -= self._arm_seconds(self.report.current, HEAT_ROUNDS, HEAT_BLOCK)
        processes, heat = self.most_workers, list[Cell]()
        for cell in cells[:MOST_IN_HEAT]:
            seconds -= self._arm_seconds(cell, HEAT_ROUNDS, HEAT_BLOCK)
            processes -= cell.num_workers
            if seconds < 0 or (heat and processes < 0):
                break
            heat.append(cell)
        return heat

    def _arm_seconds(self, cell: Cell, rounds: int, block: float) -> float:
        """Return about how long an arm takes."""
        step = self._expected([cell])[cell.name]
        return STARTING + rounds * step * (stock_of(cell) + self.racer.block_steps(step, cell.num_workers, block))

    def _expected(self, cells: Sequence[Cell]) -> dict[str, float]:
        """Return by name how many seconds a step takes, as well as it is known.

        Predictions are taken to be as far below the truth as that of today's configuration is.
        """
        today = self.report.current or self.today
        measured = today.measured_ms or 0.0
        factor = max(1.0, measured / (today.predicted_ms or measured or 1.0))
        return {cell.name: (cell.measured_ms or factor * (cell.predicted_ms or measured)) / 1e3 for cell in cells}

    def _note_heat(self, heat: Sequence[Cell], measurements: Mapping[str, Measurement]) -> None:
        """Replace the cells of a heat by what was measured of them; those that failed cannot be run."""
        found = {cell.name: self._judged(cell, measurements) for cell in heat}
        cells = tuple(found.get(cell.name, cell) for cell in self.report.cells)
        blocks = tuple(measurements[name] for name in found if name in measurements)
        self._grow(cells=cells, measurements=(*self.report.measurements, *blocks))

    def _judged(self, cell: Cell, measurements: Mapping[str, Measurement]) -> Cell:
        if cell.name in measurements:
            return self._with_stall(self.racer.measured(cell, measurements[cell.name]))
        return replace(cell, status="infeasible", reason=f"It failed when it was tried: {self.racer.failed[cell.name]}")

    def _arms(self) -> list[Cell]:
        """Return the cells to race: as many as get ``ROUNDS`` rounds in the time."""
        assert self.report.current is not None
        left, processes = self._seconds("race"), self.most_workers
        chosen: list[Cell] = []
        for cell in shortlist(self.report.cells, self.report.current, MOST_RACED):
            left -= self._arm_seconds(cell, ROUNDS, 1.0)
            processes -= cell.num_workers
            if len(chosen) < FEWEST_RACED or (left > 0 and processes > 0):
                chosen.append(cell)
        return chosen

    def _race(self, arms: Sequence[Cell]) -> Report:
        seconds = self._seconds("race")
        with self.progress.stage(f"race of {len(arms)}, with training steps", seconds) as tick:
            measurements = self.racer.run(arms, self._expected(arms), seconds, tick)
        return self._decide(arms, measurements)

    def _race_plan(self, plan: Plan) -> Report:
        """Race a given plan against today's configuration only; raise ``MeasurementError`` if it cannot be run here."""
        if plan.num_workers > self.most_workers:
            _, limit = most_workers(self.report.host, self.needs, plan.num_workers)
            raise MeasurementError(
                f"The plan's {plural(plan.num_workers, 'worker')} cannot be run.", limit.text if limit else ""
            )
        cell = Cell(
            placement_of(plan.cut, len(self.target.chain)),
            plan.cut,
            plan.worker_engine,
            plan.device_engine,
            plan.num_workers,
            plan.prefetch_factor,
            plan.pin_memory,
            plan.threads,
            plan.persistent_workers,
            plan.start_method,
        )
        assert self.report.current is not None
        arms = [self.report.current] if cell.name == self.report.current.name else [self.report.current, cell]
        self._grow(cells=tuple(arms))
        return self._race(arms)

    def _decide(self, arms: Sequence[Cell], measurements: Mapping[str, Measurement]) -> Report:
        raced = {
            cell.name: self.racer.measured(cell, measurements[cell.name]) for cell in arms if cell.name in measurements
        }
        if self.today.name not in raced:
            failed = (notice.text for notice in self.report.notices if notice.id == "arm_failed")
            raise MeasurementError("What you do today failed in the race.", " ".join(failed))
        current = self._with_stall(raced[self.today.name])
        rest = tuple(cell for cell in self.report.cells if cell.name not in raced)
        cells = tuple(self._with_stall(cell) for cell in raced.values())
        earlier = (one for one in self.report.measurements if one.cell not in measurements)
        self._grow(cells=(*cells, *rest), current=current, measurements=(*measurements.values(), *earlier))
        return recommend(self._with_cost(), measurements)

    # How it is measured

    def _seconds(self, stage: str) -> float:
        """Return how long a stage may take: its part of the time that is left, but never nothing."""
        names = list(SHARES)
        left = self.options.budget * (1 - sum(self._left_out.values())) - (time.monotonic() - self._began)
        rest = sum(SHARES[name] for name in names[names.index(stage) :])
        return max(left, 0.2 * self.options.budget) * SHARES[stage] / rest

    def _threads(self, cell: Cell) -> int:
        return cell.threads or self.report.host.torch_threads

    def _step_on_cached(self) -> Callable[[], None]:
        batches = cycle(self._batches)
        return lambda: self.target.step(next(batches))

    def _step_on(self, cell: Cell) -> Callable[[], None]:
        feeder = iter(open_loader(self.target, cell))
        return lambda: self.target.step(next(feeder))

    def _with_stall(self, cell: Cell) -> Cell:
        return replace(cell, stall=stall(self.report, cell.measured_ms)) if cell.measured_ms else cell

    def _worker_stage(self, name: str, timing: Timing) -> StageCost:
        """Scale a time for ``CLIPS`` clips to a batch, and an op's to how often it is applied."""
        op = int(name) if name.isdigit() else None
        factor = self.target.batch_size / CLIPS * (1.0 if op is None else self.target.chain.ops[op].p)
        low, high = timing.ci_ms
        engine = "audiomentations" if op is not None else ""
        label = name if op is None else self.report.chain.ops[op]
        samples = tuple(ms * factor for ms in timing.samples_ms)
        return StageCost(label, "worker", timing.ms * factor, (low * factor, high * factor), op, engine, "", samples)

    def _op_stage(self, where: Where, name: str, timing: Timing) -> StageCost:
        """Return the cost of an op for a whole batch; the name is engine and place in the chain: ``batched 3``."""
        engine, op = name.split()
        label = self.report.chain.ops[int(op)]
        return StageCost(label, where, timing.ms, timing.ci_ms, int(op), engine, samples_ms=timing.samples_ms)

    def _cell(self, cut: int, workers: int) -> Cell:
        return Cell(placement_of(cut, len(self.target.chain)), cut, num_workers=workers)

    def _worker_counts(self) -> tuple[int, ...]:
        """Return the worker counts to consider: none, powers of two, all usable cores, and today's."""
        return tuple(count for count in self._wanted_counts() if count <= self.most_workers) or (0,)

    def _wanted_counts(self) -> tuple[int, ...]:
        if self.options.workers is not None:
            return self.options.workers
        most = max(1, int(self.report.host.usable_cores))
        counts = {0, most, self.today.num_workers} | {2**k for k in range(10) if 2**k <= most}
        return tuple(sorted(counts))

    @property
    def _pin(self) -> bool:
        """Whether page-locked memory won where copies were measured."""
        copies = {stage.name: stage.ms_per_batch or 0.0 for stage in self.report.stages if stage.where == "transfer"}
        return "copy, pinned" in copies and copies["copy, pinned"] < copies.get("copy, pageable", 0.0)

    # The report

    def _grow(self, **found: Any) -> None:
        self.report = replace(self._with_cost(), **found)
        self.on_update(self.report)

    def _notice(self, id: str, text: str) -> None:
        self._grow(notices=(*self.report.notices, Notice(id, text)))

    def _with_cost(self) -> Report:
        return replace(self.report, cost_seconds=time.monotonic() - self._began)

    def _finish(self, report: Report) -> Report:
        names = ("cells", "verdict", "cause", "recommendation", "before", "after", "notices")
        self._grow(**{name: getattr(report, name) for name in names})
        self._grow(break_even_steps=report.break_even_steps, what_if=crossovers(report))
        self._measure_also()
        self._grow(complete=True)
        return self.report

    def _measure_also(self) -> None:
        """Time the step with another precision or batch size, where that was asked for."""
        if not self.options.also:
            return
        seconds = ALSO * self.options.budget * len(self.options.also)
        with self.progress.stage("the step in other ways", seconds):
            found = measure_also(self.target, self._batches, self.options.also, self.clock, seconds)
        self._grow(variants=found)
        self._grow(what_if=(*self.report.what_if, *variant_sentences(self.report)))


def _part(where: Where, cut: int, threads: int, timing: Timing) -> PartCost:
    return PartCost(where, cut, threads, timing.ms, timing.ci_ms, timing.samples_ms)


def _chain_facts(target: Target) -> ChainFacts:
    chain = target.chain
    first, last = chain.device_from, chain.worker_until
    return ChainFacts(
        ops=tuple(op.name for op in chain.ops),
        sample_rate=int(chain.sample_rate),
        hash=chain.hash,
        declaration=chain.describe(),
        device_from=first,
        device_from_reason=chain.why_not_cut(first - 1) if first else "",
        worker_until=last if last < len(chain) else None,
        worker_until_reason=chain.why_not_cut(last + 1) if last < len(chain) else "",
    )


def _workload(target: Target) -> Workload:
    return Workload(
        model=target.name,
        parameters=sum(parameter.numel() for parameter in target.model.parameters()),
        batch_size=target.batch_size,
        clip_seconds=target.clip_seconds,
        sample_rate=int(target.chain.sample_rate),
        precision=target.precision,
        dataset=target.data_name,
        clips=len(target.dataset),
        sources=target.sources,
    )
