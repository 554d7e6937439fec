"""Survey: which measurements, in which order. Each stage adds to the report, so that an interruption loses nothing.

The ceiling comes first, together with what the user does today; if these are equally fast, that is the answer. Then
what each stage costs alone, a prediction for every cell, and a race of the promising ones with real training steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from audioaug.advise import device_stages, loader_stages
from audioaug.advise.arms import CACHED, FEW_CACHED, cached_batches, cell_at, cell_of, stock_of
from audioaug.advise.bench import Bench
from audioaug.advise.budget import ALSO, ALSO_RACED, SHARES, Budget
from audioaug.advise.cache import Cache, fingerprint
from audioaug.advise.cells import after_earlier_heats, after_heat, after_race, predicted, with_stall
from audioaug.advise.facts import chain_facts, workload
from audioaug.advise.progress import Progress, told_once
from audioaug.advise.racing import CEILING, HEAT_ROUNDS, Racer
from audioaug.advise.schedule import Schedule
from audioaug.advise.start_methods import race_starts
from audioaug.advise.target import Target, in_one_line
from audioaug.advise.today import measure_today
from audioaug.advise.variants import Wanted, measure_also, raced_engines, why_no_graph
from audioaug.advise.worker_counts import WorkerCounts
from audioaug.advise.worker_probe import Memory
from audioaug.advise.worker_stages import worker_stages
from audioaug.decide.recommend import leave_as_it_is, may_leave, recommend
from audioaug.decide.refine import refined
from audioaug.decide.shortlist import worth_a_heat
from audioaug.decide.variants import variant_sentences
from audioaug.decide.what_if import crossovers
from audioaug.errors import AudioaugError, MeasurementError
from audioaug.loader.prefetch import tensors
from audioaug.measure import clock_for, effective_cores, host_facts
from audioaug.records import Cell, DeviceEngine, Measurement, Notice, Plan, Report
from audioaug.units import Seconds, format_seconds

CPU_TRAINING = (
    'There is no GPU here: the model trains on the CPU, where workers compete with it for cores, and "on the device" '
    "means whole batches in the training process."
)

NOT_FINITE = (
    " after today's training steps. Their times hold, but nothing is learned: look at the learning rate, the labels "
    "and the precision."
)

TWO_ARMS = 2
"""Blocks can be so many times as long where only a plan and what is done today race."""


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
        self.bench = Bench(target, clock_for(target.device))
        hurry = options.budget if options.verify is None else TWO_ARMS * options.budget
        self.racer = Racer(target, self.bench.clock, hurry, self._notice)
        self.budget = Budget(options.budget, self.bench.clock)
        host = host_facts(target.device)
        self.report = Report(host, chain_facts(target), workload(target))
        self.counts = WorkerCounts(host, options.workers, target.num_workers)

    def run(self) -> Report:
        """Measure, decide, and return the complete report."""
        for notice in self.target.notices:
            self._notice(notice.id, notice.text)
        with told_once(lambda text: self._notice("warning", text)):
            try:
                return self._run()
            except AudioaugError:
                raise
            except Exception as error:
                reason = in_one_line(error, self.target.path)
                raise MeasurementError(f"{self.target.name}: a measurement failed: {reason}") from error

    def _run(self) -> Report:
        if not self.report.host.has_gpu:
            self._notice("cpu_training", CPU_TRAINING)
        if self.options.verify is not None:
            return self._finish(self._verify(self.options.verify))
        measurements = self._measure_today(self.budget.seconds_for("today"))
        if may_leave(*(measurements[name] for name in (self.today.name, CEILING))):
            return self._finish(leave_as_it_is(self._with_cost()))
        self._measure_cores()
        cache = Cache(self._fingerprint())
        if self.options.fresh or not self._recall(cache):
            self._measure_workers()
            self._measure_device()
            self._measure_loaders()
            self._grow(**predicted(self.report, self.target.chain, self.counts))
            self._run_heats()
            cache.save(self.report)
        return self._finish(self._run_race())

    @property
    def today(self) -> Cell:
        """What the user does, measured."""
        assert self.report.current is not None
        return self.report.current

    # What an earlier run has shown

    def _fingerprint(self) -> str | None:
        shapes = [tuple(each.shape) for each in tensors(self.bench.batches[0])]
        asked = (self.options.budget, self.counts.possible, self.today.num_workers, shapes)
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
        self._grow(**{name: getattr(earlier, name) for name in ("stages", "parts", "loader_costs", "steals")})
        self._lower_ceiling()
        self._grow(**predicted(self.report, self.target.chain, self.counts))
        self._grow(**after_earlier_heats(self.report, earlier))
        self._grow(cells=refined(self.report))
        self.budget.leave_out([name for name in SHARES if name not in ("today", "race")])
        return True

    # What is measured

    def _measure_today(self, seconds: Seconds, beside: Sequence[Cell] = ()) -> dict[str, Measurement]:
        """Race the user's own configuration, batches that already lie on the device, and others beside them."""
        chain = self.target.chain
        cell = cell_at(chain, chain.worker_until, self.target.num_workers)
        name = "ceiling, what you do today, and the plan" if beside else "ceiling, and what you do today"
        with self.progress.stage(name, seconds) as tick:
            batches = cached_batches(self.target, cell, FEW_CACHED if self.budget.is_small else CACHED)
            self.bench = replace(self.bench, batches=batches)
            found = measure_today(self.bench, cell, self.counts, self.racer, seconds, tick, beside)
        self.counts, measured = found.counts, found.measurements
        raced = (measured[found.cell.name],)
        self._grow(ceiling=found.ceiling, current=found.cell, measurements=raced, signals=found.signals)
        self._grow(current=with_stall(self.report, self.today))
        if reason := self.target.why_not_finite():
            self._notice("not_finite", f"{reason}{NOT_FINITE}")
        return measured

    def _measure_cores(self) -> None:
        """Measure what the cores do together, which predictions reckon with."""
        host = self.report.host
        self._grow(host=replace(host, effective_cores=effective_cores(int(host.usable_cores), self.bench.clock)))

    def _measure_workers(self) -> None:
        seconds = self.budget.seconds_for("workers")
        with self.progress.stage("each transform in a worker", seconds) as tick:
            stages, parts = worker_stages(self.bench, seconds, tick)
        self._grow(stages=stages, parts=parts)

    def _measure_device(self) -> None:
        """Time the step on any threads it may get, all behind each cut as it is built, every op, and the copy."""
        seconds, bench, usual = self.budget.seconds_for("device"), self.bench, self.report.host.torch_threads
        with self.progress.stage("each transform on the device", seconds) as tick:
            counts = device_stages.thread_counts(self.report, self.counts.possible)
            self._add(stages=device_stages.steps_on_threads(bench, {usual, *counts}, 0.1 * seconds))
            self._lower_ceiling()
            counts = device_stages.thread_counts(self.report, self.counts.possible)
            parts = device_stages.parts_to_time(bench, counts)
            for count, ours in parts.items():
                tick()
                self._add(parts=device_stages.parts_on_threads(bench, count, ours, 0.4 * seconds / len(parts)))
            assert self.report.ceiling is not None
            self._add(stages=device_stages.ops_on_device(bench, self.report.ceiling.threads, 0.4 * seconds, tick))
            self._add(stages=device_stages.copies(bench, 0.1 * seconds))

    def _lower_ceiling(self) -> None:
        """Take the step on fewer threads for the ceiling if it is faster so, as those of small models are."""
        if ceiling := device_stages.ceiling_on_fewer_threads(self.report):
            self._grow(ceiling=ceiling)
            self._grow(current=with_stall(self.report, self.today))

    def _measure_loaders(self) -> None:
        """Time loaders without the device part, and how they and training steps slow each other down."""
        needed, others = loader_stages.loaders(self.report, self.target.chain, self.counts.possible)
        stealing, seconds = loader_stages.beside_training(self.report, needed), self.budget.seconds_for("loader")
        share, end = seconds / (len(needed) + len(others) + len(stealing)), self.budget.spent + seconds
        with self.progress.stage("the loader alone, and beside training", seconds) as tick:
            for cell in (*needed, *others):
                is_due = cell in needed or self.budget.spent < end
                if is_due and cell.num_workers <= self.counts.most:
                    self._measure_loader(cell, share, cell.name in stealing)
                    tick()

    def _measure_loader(self, cell: Cell, seconds: float, steals: bool) -> None:
        """Time a loader alone and, if asked, beside training steps."""
        bench, threads = self.bench, cell.threads or self.report.host.torch_threads
        alone = loader_stages.steps_alone(bench, threads, seconds / 4) if steals else None
        messages = loader_stages.open_messages(bench, cell)
        self._add(loader_costs=(loader_stages.loader_cost(bench, cell, messages, seconds),))
        if alone is not None:
            self._add(steals=(loader_stages.steal_cost(bench, cell, threads, messages, alone, seconds * 3 / 4),))
        self._look_at_memory(cell, messages, seconds / 4)

    def _look_at_memory(self, cell: Cell, messages: Iterator[Any], seconds: float) -> None:
        """Keep what workers take of the memory, which limits how many there can be, and whether today's grow."""
        memory, is_today = Memory(), (cell.cut, cell.num_workers) == (self.today.cut, self.today.num_workers)
        if is_today and cell.num_workers:
            memory.watch(messages, stock_of(cell), self.bench.clock, seconds)
        else:
            memory.look()
        if memory.worker_bytes is None:
            return
        self.counts = self.counts.with_memory(memory.worker_bytes)
        signals = replace(self.report.signals, worker_bytes=self.counts.needs.worker_bytes)
        if is_today:
            signals = replace(signals, worker_growth_bytes=memory.growth_bytes)
        self._grow(signals=signals)

    # What is decided on the way

    def _run_heats(self) -> None:
        """Give every cut and engine, and other numbers of workers, a few training steps beside what is done today."""
        schedule, seconds = Schedule(self.report, self.racer, self.counts.most), self.budget.seconds_for("heats")
        waiting = [cell for cell in worth_a_heat(self.report.cells) if cell.name != self.today.name]
        end = self.budget.spent + seconds
        with self.progress.stage(f"heats of {len(waiting)}, with training steps", seconds) as tick:
            while heat := schedule.heat(waiting, left := end - self.budget.spent):
                waiting = waiting[len(heat) :]
                arms = [self.today, *heat]
                rounds = HEAT_ROUNDS if waiting else schedule.heat_rounds(arms, left)
                measurements = self.racer.heat(arms, schedule.expected(arms), tick, rounds)
                self._grow(**after_heat(self.report, self.racer, heat, measurements))
        self._grow(cells=refined(self.report))
        if waiting:
            self._notice(
                "only_predicted",
                f"There was no time for heats of {len(waiting)} of the ways to cut the chain: they are only predicted. "
                "A larger --budget measures them.",
            )

    def _run_race(self) -> Report:
        """Race the most promising cells against today's configuration, and decide."""
        schedule, seconds = Schedule(self.report, self.racer, self.counts.most), self.budget.seconds_for("race")
        arms = schedule.race(seconds, [it for it in self._engines if not why_no_graph(it, self.target.device)])
        with self.progress.stage(f"race of {len(arms)}, with training steps", seconds) as tick:
            measurements = self.racer.run(arms, schedule.expected(arms), seconds, tick)
        return self._decide(arms, measurements)

    def _verify(self, plan: Plan) -> Report:
        """Race a given plan against today's configuration only; raise ``MeasurementError`` if it cannot be run here."""
        self.counts.check(plan.num_workers)
        cell = cell_of(plan, self.target.chain)
        measurements = self._measure_today(self.options.budget, [cell])
        arms = [self.today] if cell.name == self.today.name else [self.today, cell]
        return self._decide(arms, {arm.name: measurements[arm.name] for arm in arms})

    def _decide(self, arms: Sequence[Cell], measurements: Mapping[str, Measurement]) -> Report:
        """Note what the race has shown of its arms, today's configuration the first of them, and choose one."""
        self._grow(**after_race(self.report, self.racer, arms, measurements))
        self._grow(cells=refined(self.report))
        return recommend(self._with_cost(), measurements, self.racer.margin)

    # The report

    def _grow(self, **found: Any) -> None:
        self.report = replace(self._with_cost(), **found)
        self.on_update(self.report)

    def _add(self, **found: tuple[Any, ...]) -> None:
        """Append to what the report has of these."""
        self._grow(**{name: (*getattr(self.report, name), *more) for name, more in found.items()})

    def _notice(self, id: str, text: str) -> None:
        self._add(notices=(Notice(id, text),))

    def _with_cost(self) -> Report:
        return replace(self.report, cost_seconds=self.budget.spent)

    def _finish(self, report: Report) -> Report:
        names = ("cells", "verdict", "cause", "recommendation", "before", "after", "notices")
        self._grow(**{name: getattr(report, name) for name in names})
        self._grow(break_even_steps=report.break_even_steps, what_if=crossovers(report))
        self._measure_also()
        self._grow(complete=True)
        return self.report

    @property
    def _engines(self) -> list[DeviceEngine]:
        """The device engines that were asked for."""
        return [it.engine for it in self.options.also if it.engine is not None]

    def _measure_also(self) -> None:
        """Measure the step in other ways, where that was asked for, and note what the race has shown of engines."""
        if not self.options.also:
            return
        chosen, usual = self.report.recommendation, self.report.host.start_method
        assert chosen is not None
        methods = [it.start_method for it in self.options.also if it.start_method is not None]
        steps = [it for it in self.options.also if it.precision is not None or it.batch_size is not None]
        timed, raced = (share * self.options.budget for share in (ALSO * len(steps), ALSO_RACED * len(methods)))
        found = raced_engines(self.report, self.target.device, self._engines, self.racer.failed)
        with self.progress.stage("the step in other ways", timed + raced) as tick:
            found += measure_also(self.bench, steps, timed) if steps else ()
            found += race_starts(self.racer, chosen, usual, methods, raced, tick)
        self._grow(variants=found)
        self._grow(what_if=(*self.report.what_if, *variant_sentences(self.report)))
