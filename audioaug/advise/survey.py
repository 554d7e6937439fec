"""Survey: which measurements, in which order. Each stage adds to the report, so that an interruption loses nothing.

The ceiling comes first, together with what the user does today; if these are equally fast, that is the answer. Then
what each stage costs alone, a prediction for every candidate, and a race of the promising ones with real training
steps.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import torch

from audioaug.advise.cache import Cache, fingerprint
from audioaug.advise.candidates import (
    CACHED,
    FEW_CACHED,
    WorkerCounts,
    cached_batches,
    candidate_at,
    candidate_of,
    check_memory,
    queued_batches,
)
from audioaug.advise.progress import Progress, checks, warnings_once
from audioaug.advise.racing import CEILING, Racer
from audioaug.advise.schedule import (
    ALSO,
    ALSO_RACED,
    CHANGE_BLOCK,
    CHANGE_ROUNDS,
    SHARES,
    Budget,
    Schedule,
    after_changes,
    after_earlier_screening,
    after_race,
    after_screening,
    predicted,
    with_stall,
)
from audioaug.advise.stages import (
    Bench,
    augmentation_in_model,
    ceiling_on_fewer_threads,
    contention_cost,
    contention_names,
    copies,
    decoder_stages,
    loader_cost,
    loaders_to_time,
    open_messages,
    ops_on_device,
    parts_on_threads,
    parts_to_time,
    steps_alone,
    steps_on_threads,
    thread_counts,
    worker_stages,
)
from audioaug.advise.today import FEW_STEPS, Memory, measure_today
from audioaug.advise.training_job import TrainingJob, chain_facts, led_by, workload
from audioaug.advise.variants import VariantRequest, measure_also, race_starts, raced_engines, why_no_graph
from audioaug.decide.ablation import changes_to_time, differing_knobs
from audioaug.decide.predict import best_threads
from audioaug.decide.recommend import (
    beside_others,
    is_impossible,
    is_too_busy,
    leave_as_it_is,
    may_leave,
    recommend,
    too_few_steps,
)
from audioaug.decide.refine import refined
from audioaug.decide.shortlist import worth_screening
from audioaug.decide.what_if import crossovers, variant_sentences
from audioaug.engine import build_cpu, build_device, check_plan
from audioaug.errors import AudioaugError, MeasurementError, in_one_line
from audioaug.loader.prefetch import tensors
from audioaug.measure import Watch, clock_for, effective_cores, host_facts
from audioaug.measure.lockstep import leading
from audioaug.measure.receive import receive_rates
from audioaug.process import Interrupt
from audioaug.records import (
    Candidate,
    Ceiling,
    DeviceEngine,
    Measurement,
    Notice,
    Plan,
    Report,
)
from audioaug.units import Seconds, format_ms, format_seconds, plural

CPU_TRAINING = (
    'No GPU: the model trains on the CPU, where workers compete with it for cores, and "on the device" '
    "means whole batches in the training process."
)

NAN_LOSS = (
    " after today's training steps. The times are valid, but the model does not learn: check the learning rate, the "
    "labels and the precision."
)

NAN_AUDIO = (
    " after today's training steps, since the audio itself has NaN or infinite values. The times are "
    "valid, but the model does not learn: leave such clips out of the dataset."
)

FEWER_THREADS_SHARE = 0.03
"""Share of the budget to time the step on fewer threads before it is left as it is."""

SLOW_LOADER = 3
"""Batches that it takes to time a loader, where loading is slow."""

RECEIVING_SECONDS: Seconds = 8.0
"""Time to measure how fast batches come from other nodes, once Ray has started."""

COMPILE_SECONDS: Seconds = 20.0
"""What compiling takes if nothing is compiled yet."""

CACHED_SHARE = 0.25
"""Most of the budget to load batches that stay on the device."""

OVERDRAFT = 0.15
"""Share of the budget by which a stage may exceed its own: five long stages and a race end within twice the budget."""

CHANGES_SECONDS: Seconds = 8.0
"""Time for single changes, however small the budget, unless its limit is near."""

CHANGED = 1.5
"""Results of an earlier run are discarded if the time of today's step differs by more than this factor."""

CEILING_AGAIN_SHARE = 0.03
"""Share of the budget to measure the ceiling again if a candidate was faster."""

TWO_CANDIDATES = 2
"""Factor on the budget if only a plan and today's configuration race: blocks can be longer."""


@dataclass(frozen=True)
class Options:
    """Options of a survey: budget in seconds, worker counts (``None``: from the cores), a plan to verify, variants.

    ``fresh``: ignore cached results. ``receive``: also measure how fast batches come from other nodes, if Ray is
    installed.
    """

    budget: float
    workers: tuple[int, ...] | None = None
    verify: Plan | None = None
    also: tuple[VariantRequest, ...] = ()
    fresh: bool = False
    receive: bool = False


def survey(
    build: Callable[[], TrainingJob],
    options: Options,
    *,
    quiet: bool = False,
    ranks: int | None = None,
    command: Sequence[str] = (),
    on_update: Callable[[Report], None] = lambda report: None,
    at_end: Callable[[TrainingJob, Progress], None] = lambda job, progress: None,
) -> Report:
    """Survey the job that ``build`` returns, with the other ranks of this machine, if any.

    Args:
        quiet: whether to show no progress.
        ranks: how many to start, each by ``command``; default: those of torchrun.
        on_update: receives the report after each change.
        at_end: called while Ctrl-C is still noticed.
    """
    with (
        leading(ranks, command) as leader,
        Interrupt() as interrupt,
        Progress(checks(interrupt, leader), quiet=quiet) as progress,
    ):
        job = led_by(leader, build())
        if options.verify is not None:
            check_plan(job.chain, options.verify)
        report = Survey(job, options, progress, on_update).run()
        if leader is not None:
            leader.end(report)
        at_end(job, progress)
        return report


class Survey:
    """One run of the advisor. ``report`` holds the results so far; ``on_update`` is called after each change."""

    def __init__(
        self, job: TrainingJob, options: Options, progress: Progress, on_update: Callable[[Report], None]
    ) -> None:
        self.job, self.options, self.progress, self.on_update = job, options, progress, on_update
        self.bench = Bench(job, clock_for(job.device))
        hurry = options.budget if options.verify is None else TWO_CANDIDATES * options.budget
        self.racer = Racer(job, self.bench.clock, hurry, self._notice)
        self.budget = Budget(options.budget, self.bench.clock)
        self.watch = Watch(self.bench.clock)
        host = host_facts(job.device)
        for size in (job.batch_size, *(it.batch_size for it in options.also if it.batch_size)):
            check_memory(job, size, host.ram_available_bytes)
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.report = Report(host, chain_facts(job), workload(job), date=date)
        self.counts = WorkerCounts(host, options.workers, job.num_workers)

    def run(self) -> Report:
        """Measure, decide, and return the complete report."""
        for notice in self.job.notices:
            self._notice(notice.id, notice.text)
        with warnings_once(lambda text: self._notice("warning", text)):
            try:
                self._compile()
                return self._run()
            except AudioaugError:
                raise
            except (Exception, SystemExit) as error:
                reason = in_one_line(error)
                raise MeasurementError(f"{self.job.name}: a measurement failed: {reason}") from error

    def _compile(self) -> None:
        """Compile and prove transforms before the time of the budget counts: once on a machine, that takes longer."""
        chain = self.job.chain
        with self.progress.stage("transforms, which are compiled once on a machine", COMPILE_SECONDS) as tick:
            build_cpu(chain, chain.worker_until, seed=0).warm_up()
            for device in {torch.device("cpu"), self.job.device}:
                tick()
                build_device(chain, chain.device_from, seed=0).prove_on(device)
        self.budget.restart()

    def _run(self) -> Report:
        if not self.report.host.has_gpu:
            self._notice("cpu_training", CPU_TRAINING)
        if self.options.verify is not None:
            return self._finish(self._verify(self.options.verify))
        measurements = self._measure_today(self.budget.seconds_for("today"))
        if self._may_leave(measurements[self.today.name], measurements[CEILING]):
            return self._finish(leave_as_it_is(beside_others(self._with_cost())))
        self._measure_cores()
        cache = Cache(self._fingerprint())
        if self.options.fresh or not self._recall(cache):
            self._measure_workers()
            self._measure_device()
            self._measure_loaders()
            self._grow(**predicted(self.report, self.job.chain, self.counts))
            if not self.bench.few_steps:
                self._run_screening()
                cache.save(self.report)
        return self._finish(self._run_race())

    @property
    def today(self) -> Candidate:
        """Today's configuration, measured."""
        assert self.report.current is not None
        return self.report.current

    # Cached results

    def _fingerprint(self) -> str | None:
        shapes = [tuple(each.shape) for each in tensors(self.bench.batches[0])]
        asked = (self.options.budget, self.counts.possible, self.today.num_workers, shapes)
        return fingerprint(self.job, self.report, asked)

    def _recall(self, cache: Cache) -> bool:
        """Load the stages and screening results of an earlier run, if they still hold; the race is measured again."""
        found = cache.load()
        if found is None:
            return False
        earlier, age = found
        if self._has_changed(earlier):
            return False
        self._notice(
            "cached",
            f"Stage costs and screening results are from {format_seconds(age)} ago ({cache.path}); "
            "your current configuration and the race were measured now. --fresh measures everything again.",
        )
        self._grow(**{name: getattr(earlier, name) for name in ("stages", "parts", "loader_costs", "contention")})
        self._lower_ceiling()
        self._grow(**predicted(self.report, self.job.chain, self.counts))
        self._grow(**after_earlier_screening(self.report, earlier))
        self._grow(candidates=refined(self.report))
        self.budget.leave_out([name for name in SHARES if name not in ("today", "race")])
        return True

    def _has_changed(self, earlier: Report) -> bool:
        """Return whether the time of today's step differs by more than ``CHANGED`` from that of an earlier run."""
        before, now = earlier.current and earlier.current.measured_ms, self.today.measured_ms
        return not before or not now or max(before, now) > CHANGED * min(before, now)

    # Measurements

    def _measure_today(self, seconds: Seconds, rivals: Sequence[Candidate] = ()) -> dict[str, Measurement]:
        """Race today's configuration, batches cached on the device, and ``rivals``."""
        chain = self.job.chain
        candidate = candidate_at(chain, chain.worker_until, self.job.num_workers)
        name = "ceiling, current configuration, and the plan" if rivals else "ceiling and current configuration"
        with self._stage(name, seconds) as tick:
            count = FEW_CACHED if self.budget.is_small else CACHED
            batches, load_seconds = cached_batches(self.job, candidate, count, CACHED_SHARE * self.options.budget)
            self.bench = replace(self.bench, batches=batches, load_seconds=load_seconds)
            found = measure_today(self.bench, candidate, self.counts, self.racer, seconds, tick, rivals)
        self.counts, measured = found.counts, found.measurements
        self.bench = replace(self.bench, few_steps=self.racer.few_steps)
        raced = (measured[found.candidate.name],)
        self._grow(ceiling=found.ceiling, current=found.candidate, measurements=raced, signals=found.signals)
        self._grow(current=with_stall(self.report, self.today))
        if self.bench.few_steps:
            self._plan_few_steps()
        if reason := self.job.why_not_finite():
            is_audio = not all(bool(self.job.wave_of(batch).isfinite().all()) for batch in batches)
            self._notice("nan_loss", f"{reason}{NAN_AUDIO if is_audio else NAN_LOSS}")
        return measured

    def _plan_few_steps(self) -> None:
        """Leave out screening, and say what the budget allows."""
        assert self.report.ceiling is not None
        self.budget.leave_out(["screening"])
        step, budget = (self.today.measured_ms or 0.0) / 1e3, self.options.budget
        needed = math.ceil(FEW_STEPS * step)
        cause = f"A training step takes {format_seconds(step)} with its data, so a budget"
        advice = f"--budget {needed} or more measures all."
        if needed <= budget:  # by now, the machine is less busy
            cause = f"The first step or batch took over {format_seconds(budget / FEW_STEPS)}, so a budget"
            advice = "Run this again: a step, with its data, takes less by now."
        text = (
            f"{cause} of {format_seconds(budget)} allows only a few: at most the most promising candidates are raced. "
            f"{advice}"
        )
        self._notice("few_steps", text)
        self.progress.note(text)

    def _may_leave(self, today: Measurement, ceiling: Measurement) -> bool:
        """Return whether nothing better can be found; on a busy machine, that takes the whole survey."""
        self._note_load()
        return may_leave(today, ceiling) and not is_too_busy(self.report) and not self._fewer_threads_help()

    def _note_load(self) -> None:
        """Record what other programs have used since the start."""
        share = self.watch.interference().foreign_share
        self._grow(signals=replace(self.report.signals, foreign_share=share))

    def _fewer_threads_help(self) -> bool:
        """Return whether the step is significantly faster on fewer threads, which it can be without any waiting."""
        usual = self.report.host.torch_threads
        if self.report.host.has_gpu or usual == 1:
            return False
        with self._stage("the step on fewer threads", seconds := FEWER_THREADS_SHARE * self.options.budget):
            self._add(stages=steps_on_threads(self.bench, {usual, max(1, usual // 2), 1}, seconds))
        self._lower_ceiling()
        return best_threads(self.report) < usual

    def _measure_cores(self) -> None:
        """Measure the effective number of cores, which predictions use."""
        host = self.report.host
        self._grow(host=replace(host, effective_cores=effective_cores(int(host.usable_cores), self.bench.clock)))

    def _measure_workers(self) -> None:
        seconds = self.budget.seconds_for("workers")
        with self._stage("each transform in a worker", seconds) as tick:
            stages, parts = worker_stages(self.bench, seconds, tick)
        self._grow(stages=(*stages, *decoder_stages(self.bench, stages)), parts=parts)

    def _measure_device(self) -> None:
        """Time the step with each number of threads, the device part of each cut, every op, and the copy."""
        seconds, bench, usual = self.budget.seconds_for("device"), self.bench, self.report.host.torch_threads
        with self._stage("each transform on the device", seconds) as tick:
            counts = thread_counts(self.report, self.counts.possible)
            known = {stage.engine for stage in self.report.stages if stage.where == "model"}
            if unknown := {count for count in {usual, *counts} if plural(count, "thread") not in known}:
                self._add(stages=steps_on_threads(bench, unknown, 0.1 * seconds))
            self._lower_ceiling()
            counts = thread_counts(self.report, self.counts.possible)
            parts = parts_to_time(bench, counts)
            for count, ours in parts.items():
                tick()
                self._add(parts=parts_on_threads(bench, count, ours, 0.4 * seconds / len(parts)))
            assert self.report.ceiling is not None
            self._add(stages=ops_on_device(bench, self.report.ceiling.threads, 0.4 * seconds, tick))
            self._add(stages=copies(bench, 0.1 * seconds))
            self._add(stages=augmentation_in_model(bench, self.report.ceiling.threads, 0.05 * seconds))

    def _lower_ceiling(self) -> None:
        """Use fewer threads for the ceiling if the step is faster with them."""
        if ceiling := ceiling_on_fewer_threads(self.report):
            self._grow(ceiling=ceiling)
            self._grow(current=with_stall(self.report, self.today))

    def _measure_loaders(self) -> None:
        """Time loaders without the device part, and the contention between them and training steps."""
        needed, others = loaders_to_time(self.report, self.job.chain, self.counts.possible)
        contended = set[str]() if self.bench.few_steps else contention_names(self.report, needed)
        seconds = self.budget.seconds_for("loader")
        share, end = seconds / (len(needed) + len(others) + len(contended)), self.budget.spent + seconds
        if self.bench.few_steps:
            needed.sort(key=lambda candidate: -candidate.num_workers)  # the fastest first
            left = self.budget.until_limit  # half of it is for the race
            end = self.budget.spent + min(max(seconds, left / 2), left - SLOW_LOADER * self.bench.load_seconds)
        with self._stage("the loader alone and beside training", seconds) as tick:
            for candidate in (*needed, *others):
                is_due = self.budget.spent < end or (candidate in needed and not self.bench.few_steps)
                if is_due and candidate.num_workers <= self.counts.most:
                    self._measure_loader(candidate, share, candidate.name in contended)
                    tick()

    def _measure_loader(self, candidate: Candidate, seconds: float, contention: bool) -> None:
        """Time a loader alone and, with ``contention``, beside training steps."""
        bench, threads = self.bench, candidate.threads or self.report.host.torch_threads
        alone = steps_alone(bench, threads, seconds / 4) if contention else None
        messages = open_messages(bench, candidate)
        self._add(loader_costs=(loader_cost(bench, candidate, messages, seconds),))
        if alone is not None:
            self._add(contention=contention_cost(bench, candidate, threads, messages, alone, seconds * 3 / 4))
        self._look_at_memory(candidate, messages, seconds / 4)

    def _look_at_memory(self, candidate: Candidate, messages: Iterator[Any], seconds: float) -> None:
        """Record the memory of workers, which limits their number, and whether that of today's workers grows."""
        memory, is_today = Memory(), (candidate.cut, candidate.num_workers) == (self.today.cut, self.today.num_workers)
        if is_today and candidate.num_workers:
            memory.watch(messages, queued_batches(candidate), self.bench.clock, seconds)
        else:
            memory.look()
        if memory.worker_bytes is None:
            return
        self.counts = self.counts.with_memory(memory.worker_bytes)
        signals = replace(self.report.signals, worker_bytes=self.counts.needs.worker_bytes)
        if is_today:
            signals = replace(signals, worker_growth_bytes=memory.growth_bytes)
        self._grow(signals=signals)

    # Screening and racing

    def _run_screening(self) -> None:
        """Time a few steps of every cut and engine, and of other worker counts, beside today's configuration."""
        schedule, seconds = Schedule(self.report, self.racer, self.counts.most), self.budget.seconds_for("screening")
        waiting = [
            candidate for candidate in worth_screening(self.report.candidates) if candidate.name != self.today.name
        ]
        end = self.budget.spent + seconds
        with self._stage(f"screening {len(waiting)} candidates with training steps", seconds) as tick:
            while screening := schedule.screening(waiting, end - self.budget.spent):
                waiting = waiting[len(screening) :]
                candidates = [self.today, *screening]
                measurements = self.racer.screen(candidates, schedule.expected(candidates), tick)
                self._grow(**after_screening(self.report, self.racer, screening, measurements))
        self._grow(candidates=refined(self.report))
        if waiting:
            self._notice(
                "only_predicted",
                f"There was no time to screen {len(waiting)} of the candidates: they are only predicted. "
                "A larger --budget measures them.",
            )

    def _run_race(self) -> Report:
        """Race the most promising candidates against today's configuration, and decide."""
        schedule, seconds = Schedule(self.report, self.racer, self.counts.most), self.budget.seconds_for("race")
        most = self.budget.until_limit if self.bench.few_steps else seconds
        candidates = schedule.race(most, [it for it in self._engines if not why_no_graph(it, self.job.device)])
        if len(candidates) == 1 and self.bench.few_steps:
            self._note_load()
            return too_few_steps(beside_others(self._with_cost()), self.options.budget)
        with self._stage(f"racing {len(candidates)} candidates with training steps", seconds) as tick:
            measurements = self.racer.run(candidates, schedule.expected(candidates), seconds, tick)
        self._grow(**after_race(self.report, self.racer, candidates, measurements))
        self._check_ceiling()
        if not self.bench.few_steps:
            self._time_changes(measurements)
        return self._decide(measurements)

    def _time_changes(self, measurements: Mapping[str, Measurement]) -> None:
        """Time each single change from today's configuration to the recommended one: what does the gain come from?

        With a small budget only if threads differ, since predictions do not know how they compete.
        """
        best = self._recommended(measurements).best
        is_known = self.budget.is_small and "threads" not in differing_knobs(self.report, self.today, best)
        waiting = [] if is_known else changes_to_time(self.report, self.today, best, raced=measurements)
        schedule = Schedule(self.report, self.racer, self.counts.most)
        seconds = max(self.budget.seconds_for("changes"), min(CHANGES_SECONDS, self.budget.until_limit / 2))
        changes = schedule.changes(best, waiting, seconds)
        if not changes:
            return
        with self._stage(f"{plural(len(changes), 'single change')} beside your configuration", seconds) as tick:
            candidates = [self.today, best, *changes]
            expected = schedule.expected(candidates)
            found = self.racer.screen(candidates, expected, tick, CHANGE_ROUNDS, CHANGE_BLOCK)
            self._grow(**after_changes(self.report, self.racer, best, changes, found))

    def _verify(self, plan: Plan) -> Report:
        """Race a plan against today's configuration only; raise ``MeasurementError`` if it cannot run here."""
        candidate = candidate_of(plan, self.job.chain)
        self.counts.check(candidate.num_workers)
        measurements = self._measure_today(self.options.budget, [candidate])
        candidates = [self.today] if candidate.name == self.today.name else [self.today, candidate]
        raced = {candidate.name: measurements[candidate.name] for candidate in candidates}
        self._grow(**after_race(self.report, self.racer, candidates, raced))
        return self._decide(raced)

    def _decide(self, measurements: Mapping[str, Measurement]) -> Report:
        """Choose a candidate; report those below the ceiling."""
        self._note_load()
        self._check_ceiling()
        for each in self._impossible():
            assert self.report.ceiling is not None
            self._notice(
                "impossible_result",
                f"{each.name} was measured at {format_ms(each.measured_ms or 0.0)} a step, below the model alone "
                f"({format_ms(self.report.ceiling.step_ms)}): the load of the machine changed. Run this again.",
            )
        self._grow(candidates=refined(self.report))
        return self._recommended(measurements)

    def _recommended(self, measurements: Mapping[str, Measurement]) -> Report:
        return recommend(beside_others(self._with_cost()), measurements, self.racer.margin)

    def _check_ceiling(self) -> None:
        """Measure the ceiling again if a candidate was faster, which is impossible."""
        ceiling = self.report.ceiling
        if ceiling is None or not self._impossible():
            return
        threads = ceiling.threads or self.report.host.torch_threads
        with self._stage("the ceiling again", seconds := CEILING_AGAIN_SHARE * self.options.budget):
            again = steps_alone(self.bench, threads, seconds)
        if again.ms < ceiling.step_ms:
            rate = 1e3 * self.job.batch_size / again.ms
            ceiling = Ceiling(again.ms, again.ci_ms, rate, ceiling.threads, again.samples_ms)
            self._grow(ceiling=ceiling)
            self._grow(current=with_stall(self.report, self.today))

    def _impossible(self) -> list[Candidate]:
        report = beside_others(self.report)
        return [each for each in report.candidates if is_impossible(report, each)]

    @contextmanager
    def _stage(self, name: str, seconds: Seconds) -> Iterator[Callable[..., None]]:
        """Show a stage with the time left; from well after its share on, its measurements are cut short."""
        left = self.options.budget - self.budget.spent
        words = format_seconds(left) if left > 0 else f"at most {format_seconds(max(1.0, self.budget.until_limit))}"
        self.bench.clock.limit = self.bench.clock.now() + seconds + OVERDRAFT * self.options.budget
        try:
            with self.progress.stage(f"{name}, {words} left", seconds) as tick:
                yield tick
        finally:
            self.bench.clock.limit = math.inf

    # The report

    def _grow(self, **found: Any) -> None:
        self.report = replace(self._with_cost(), **found)
        self.on_update(self.report)

    def _add(self, **found: tuple[Any, ...]) -> None:
        """Append to fields of the report."""
        self._grow(**{name: (*getattr(self.report, name), *more) for name, more in found.items()})

    def _notice(self, id: str, text: str) -> None:
        self._add(notices=(Notice(id, text),))

    def _with_cost(self) -> Report:
        return replace(self.report, cost_seconds=self.budget.spent)

    def _finish(self, report: Report) -> Report:
        names = ("candidates", "current", "ceiling", "verdict", "cause", "recommendation", "before", "after", "notices")
        self._grow(**{name: getattr(report, name) for name in names})
        self._grow(break_even_steps=report.break_even_steps, what_if=crossovers(report))
        self._measure_also()
        if self.options.receive:
            self._measure_receiving()
        if self.racer.skipped:
            setup = replace(self.report.workload.setup, on_error="skip")
            self._grow(workload=replace(self.report.workload, setup=setup))
        self._grow(complete=True)
        return self.report

    @property
    def _engines(self) -> list[DeviceEngine]:
        """The requested device engines."""
        return [it.engine for it in self.options.also if it.engine is not None]

    def _measure_also(self) -> None:
        """Measure the requested variants, and add the race results of requested engines."""
        if not self.options.also:
            return
        chosen, usual = self.report.recommendation, self.report.host.start_method
        assert chosen is not None
        methods = [it.start_method for it in self.options.also if it.start_method is not None]
        steps = [it for it in self.options.also if it.precision is not None or it.batch_size is not None]
        timed, raced = (share * self.options.budget for share in (ALSO * len(steps), ALSO_RACED * len(methods)))
        found = raced_engines(self.report, self.job.device, self._engines, self.racer.failed)
        with self._stage("variants of the step", timed + raced) as tick:
            found += measure_also(self.bench, steps, timed) if steps else ()
            found += race_starts(self.racer, chosen, usual, methods, raced, tick)
        self._grow(variants=found)
        self._grow(what_if=(*self.report.what_if, *variant_sentences(self.report)))

    def _measure_receiving(self) -> None:
        """Measure how fast batches come from other nodes; this is beside the budget, as Ray takes long to start."""
        size, clock, job = self.report.signals.batch_bytes, self.bench.clock, self.job
        if size is None:
            return
        shape = job.batch_size, max(1, size // (4 * job.batch_size))
        with self._stage("receiving batches through Ray, half a minute more", RECEIVING_SECONDS):
            try:
                self._grow(receive_rates=receive_rates(*shape, job.device, clock, RECEIVING_SECONDS))
            except ImportError:
                pass  # the prediction says that it was not measured
            except Exception as error:
                reason = in_one_line(error)
                self._notice("receive_failed", f"How fast batches come from other nodes was not measured: {reason}")
