"""Survey: which measurements, in which order. Each stage adds to the report, so that an interruption loses nothing.

The ceiling comes first, together with what the user does today; if these are equally fast, that is the answer. Then
what each stage costs alone, a prediction for every cell, and a race of the promising ones with real training steps.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

from audioaug.advise.also import Wanted, measure_also
from audioaug.advise.arms import (
    CLIPS,
    cached_batches,
    device_works,
    open_loader,
    stock_cuts,
    stock_of,
    worker_works,
)
from audioaug.advise.beside import look_at_step, look_beside
from audioaug.advise.limits import needs_of
from audioaug.advise.progress import Progress, told_once
from audioaug.advise.racing import CEILING, HEAT_BLOCK, HEAT_ROUNDS, ROUNDS, Racer
from audioaug.advise.target import Target, in_one_line
from audioaug.advise.worker_probe import Memory
from audioaug.build.stock import why_unavailable
from audioaug.decide.diagnose import stall
from audioaug.decide.limits import Needs, most_workers
from audioaug.decide.predict import threads_beside, with_prediction
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
    measure_transfer,
)
from audioaug.records import (
    Ceiling,
    Cell,
    ChainFacts,
    DeviceEngine,
    LoaderCost,
    Measurement,
    Notice,
    Plan,
    Report,
    Signals,
    StageCost,
    Timing,
    Where,
    Workload,
)
from audioaug.train.examples import get_wave
from audioaug.train.threads import torch_threads
from audioaug.units import plural

SHARES = {"today": 0.1, "workers": 0.05, "device": 0.06, "loader": 0.11, "heats": 0.37, "race": 0.31}
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

STARTING = 0.5
"""Seconds that a loader takes to start, about."""


@dataclass(frozen=True)
class Options:
    """How to survey: seconds in all, worker counts to consider (``None``: by the cores), a plan to verify, rows."""

    budget: float
    workers: tuple[int, ...] | None = None
    verify: Plan | None = None
    also: tuple[Wanted, ...] = ()


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
        self._measure_workers()
        self._measure_device()
        self._measure_loader()
        self._predict()
        self._run_heats()
        return self._finish(self._race(self._arms()))

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
        ceiling = Ceiling(timing.ms, timing.ci_ms, rate)
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
        on_clips = worker_works(self.target)
        on_batches = device_works(self.target, get_wave(self._batches[0]).cpu(), "batched")
        on_batches = {f"batched {op}": work for op, work in on_batches.items() if int(op) in cuts[:-1]}
        works = on_clips | on_batches
        with self.progress.stage("each transform in a worker", seconds) as tick, torch_threads(1):
            times = interleave(works, self.clock, seconds=seconds, at_least=3, on_round=tick)
        stages = [self._worker_stage(name, times[name]) for name in on_clips]
        stages += [self._op_stage("worker", name, times[name]) for name in on_batches]
        self._grow(stages=tuple(stages))

    def _measure_device(self) -> None:
        """Time every op on the device with both engines, and the copy."""
        wave = get_wave(self._batches[0])
        engines: list[DeviceEngine] = ["batched"] if why_unavailable() else ["batched", "torch-audiomentations"]
        works = {
            f"{engine} {op}": work for engine in engines for op, work in device_works(self.target, wave, engine).items()
        }
        seconds = self._seconds("device")
        with self.progress.stage("each transform on the device", seconds) as tick:
            times = interleave(works, self.clock, seconds=seconds, at_least=3, on_round=tick) if works else {}
            copies = measure_transfer(wave.cpu(), self.target.device, self.clock, seconds=seconds / 10)
            steps = self._on_fewer_threads(seconds / 5)
        stages = [self._op_stage("device", name, timing) for name, timing in times.items()]
        stages += [StageCost(f"copy, {kind}", "transfer", timing.ms, timing.ci_ms) for kind, timing in copies.items()]
        stages += [StageCost("step", "model", timing.ms, timing.ci_ms, engine=name) for name, timing in steps.items()]
        self._grow(stages=(*self.report.stages, *stages))

    def _on_fewer_threads(self, seconds: float) -> dict[str, Timing]:
        """Time the training step on the threads that workers would leave it, beside those it has."""
        counts = {threads_beside(self.report, workers) for workers in self._worker_counts()} - {None}
        if not counts:
            return {}
        step = self._step_on_cached()

        def on_threads(count: int) -> None:
            with torch_threads(count):
                step()

        works = {
            plural(count, "thread"): partial(on_threads, count)
            for count in (self.report.host.torch_threads, *counts)
            if count is not None
        }
        return interleave(works, self.clock, seconds=seconds, at_least=3)

    def _measure_loader(self) -> None:
        """Time the loader without the device part, for the whole chain and for as little of it as can be."""
        cuts = self.report.chain.cuts
        cells = [self._cell(cut, count) for cut in sorted({cuts[0], cuts[-1]}) for count in self._worker_counts()]
        seconds = self._seconds("loader")
        with self.progress.stage("the loader alone", seconds) as tick:
            for cell in cells:
                if cell.num_workers > self.most_workers:
                    continue
                self._grow(loader_costs=(*self.report.loader_costs, self._loader_cost(cell, seconds / len(cells))))
                tick()

    def _loader_cost(self, cell: Cell, seconds: float) -> LoaderCost:
        loader = open_loader(self.target, cell)  # kept, since its workers end with it
        memory = Memory(cell)
        result = measure_loader(
            memory.over(loader.messages()),
            self.clock,
            seconds=seconds,
            discard=stock_of(cell),
            block_batches=max(2, cell.num_workers),
            at_least=2 * max(2, cell.num_workers),
        )
        self._note_memory(cell, memory)
        timing = result.per_batch
        return LoaderCost(cell.cut, cell.num_workers, timing.ms, timing.ci_ms, result.first_batch_seconds)

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
        left = self.options.budget - (time.monotonic() - self._began)
        rest = sum(SHARES[name] for name in names[names.index(stage) :])
        return max(left, 0.2 * self.options.budget) * SHARES[stage] / rest

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
        return StageCost(label, "worker", timing.ms * factor, (low * factor, high * factor), op, engine)

    def _op_stage(self, where: Where, name: str, timing: Timing) -> StageCost:
        """Return the cost of an op for a whole batch; the name is engine and place in the chain: ``batched 3``."""
        engine, op = name.split()
        return StageCost(self.report.chain.ops[int(op)], where, timing.ms, timing.ci_ms, int(op), engine)

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
