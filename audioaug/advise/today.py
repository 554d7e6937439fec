"""Today: what the user does now, raced against the ceiling, and the signals that a diagnosis reads."""

import copy
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader

from audioaug.advise.candidates import Reader, WorkerCounts, candidate_at, needs_of, open_brief_loader, open_loader
from audioaug.advise.racing import CEILING, Racer
from audioaug.advise.stages import Bench
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.causes.model import are_new_shapes_slow
from audioaug.decide.diagnose import NOT_THE_BOTTLENECK
from audioaug.decide.race import typical_ms
from audioaug.decide.recommend import may_leave, without_waiting
from audioaug.engine import WorkerChain
from audioaug.loader.pickling import WorkerBatch
from audioaug.loader.prefetch import map_leaves, tensors, unpinned_types
from audioaug.measure import Clock, Watch, delayed_seconds, measure_loader, page_faults, repeat, trace
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import Candidate, Ceiling, Examples, Measurement, Notice, Signals, Timing
from audioaug.units import Seconds

FEW_STEPS = 50
"""Training steps in the budget below which every step is planned."""

FEWEST_STEPS, SHORT_STEPS = 3, 3
"""Fewest steps of a pilot, and its blocks if the budget allows only a few steps."""

ENOUGH_STEPS, ENOUGH_SECONDS = 24, 1.0
"""Steps and seconds that resolve a wait of 1 % of a step from 2 %, on a machine where every tenth wait is 3x longer."""

PILOT_SHARES = (0.5, 0.25)
"""Shares of the time for up to two pilots. One disturbed step of twenty can hide that there is hardly any waiting, and
a second pilot costs less than the stages that would follow."""

SIGNALS_SHARE = 0.016
"""Share of the budget for signals of examples and workers."""


@dataclass(frozen=True)
class Today:
    """The results: today's candidate, the ceiling, all measurements by name, the signals, and the worker counts."""

    candidate: Candidate
    ceiling: Ceiling
    measurements: dict[str, Measurement]
    signals: Signals
    counts: WorkerCounts


def measure_today(
    bench: Bench,
    candidate: Candidate,
    counts: WorkerCounts,
    racer: Racer,
    seconds: Seconds,
    tick: Callable[..., None],
    rivals: Sequence[Candidate] = (),
) -> Today:
    """Race this candidate (with fewer workers if the machine cannot run all of them), the ceiling and ``rivals``."""
    job = bench.job
    few_steps, slow_data = _takes_long(bench, candidate, racer.budget)
    bench = replace(bench, few_steps=few_steps)
    if few_steps:
        racer.expect_few_steps(slow_data)
    signals = step_signals(bench, seconds / 20)
    racer.own_batches = job.pad and are_new_shapes_slow(signals)
    # Where loading is slow, a batch on the device has to do instead of one that a worker would send.
    message = None if bench.few_steps else next(open_loader(job, replace(candidate, num_workers=0)).worker_batches())
    batch = bench.batches[0] if message is None else message.batch
    prepared = None if message is None else message.prepared
    sent = [*tensors(batch), *([] if prepared is None else [prepared.numbers.pack()])]
    counts = replace(counts, needs=needs_of(job, sent, counts.host.start_method))
    signals = replace(
        signals,
        batch_bytes=counts.needs.batch_bytes,
        batch_tensors=counts.needs.batch_tensors,
        unpinned_types=tuple(sorted(unpinned_types(batch))),
    )
    candidate, refused = _within_limits(bench, candidate, counts)
    watch = Watch(bench.clock)
    candidates = [candidate, *(other for other in rivals if other.name != candidate.name)]
    result = _raced(bench, candidates, racer, seconds, tick)
    signals = _with_race(replace(signals, refused=refused), watch, racer, result[candidate.name])
    signals = example_and_worker_signals(bench, candidate, message, signals, SIGNALS_SHARE * racer.budget)
    step_ms, ci_ms = typical_ms(CEILING, result)
    rate, samples_ms = 1e3 * job.batch_size / step_ms, result[CEILING].step.samples_ms
    ceiling = Ceiling(step_ms, ci_ms, rate, counts.host.torch_threads, samples_ms)
    counts = replace(counts, today=candidate.num_workers)
    return Today(racer.measured(candidate, result), ceiling, result, signals, counts)


def _takes_long(bench: Bench, today: Candidate, budget: Seconds) -> tuple[bool, bool]:
    """Take the first training step; return whether the budget allows only a few, and whether batches come slower."""
    job, batch, clock, most = bench.job, bench.batches[0], bench.clock, budget / FEW_STEPS
    step = seconds_per_call(partial(job.try_step, batch), clock, 1)
    if step > most:  # perhaps only the first one
        step = seconds_per_call(partial(job.step, bench.typical), clock, 1)
    load = bench.load_seconds / max(1, today.num_workers)
    return max(step, load) > most, load > step


def _within_limits(bench: Bench, candidate: Candidate, counts: WorkerCounts) -> tuple[Candidate, Notice | None]:
    """Return the candidate with as many workers as possible, and the limit if these are fewer."""
    limit = counts.why_no_more()
    if limit is None or candidate.num_workers <= counts.most:
        return candidate, None
    text = (
        f"{limit.text} Your current configuration was measured with {counts.most} instead of {candidate.num_workers}."
    )
    return candidate_at(bench.job.chain, candidate.cut, counts.most), Notice(limit.id, text)


def _raced(
    bench: Bench, candidates: Sequence[Candidate], racer: Racer, seconds: Seconds, tick: Callable[..., None]
) -> dict[str, Measurement]:
    """Measure the candidates and the ceiling; from a pilot alone if there is nothing else and hardly any waiting."""
    first = candidates[0]
    alone = len(candidates) == 1 and first.num_workers == 0 and bench.job.device.type == "cpu"
    if bench.few_steps and len(candidates) == 1:
        block = max(1, first.num_workers) if racer.slow_data else 1  # workers that started together deliver together
        found = racer.pilot(first, seconds, lambda measured: len(measured.step.seconds) >= SHORT_STEPS, block)
        return {first.name: found, CEILING: without_waiting(found, CEILING) if alone else _few_cached_steps(bench)}
    for share in PILOT_SHARES:
        found = racer.pilot(first, share * seconds, partial(_is_over, alone, first.num_workers))
        model = without_waiting(found, CEILING)
        if not (alone and _hardly_waits(found)):
            break
        if may_leave(found, model):
            return {first.name: found, CEILING: model}
    expected = {candidate.name: fmean(found.step.seconds) for candidate in candidates} | {
        CEILING: fmean(model.step.seconds)
    }
    return racer.run(candidates, expected, seconds / 2, tick, cached=bench.batches)


def _few_cached_steps(bench: Bench) -> Measurement:
    step = repeat(bench.step(), bench.clock, seconds=0.0, at_least=SHORT_STEPS, warm_up=0)
    return Measurement(CEILING, step, Timing((0.0,) * SHORT_STEPS), 1)


def _is_over(alone: bool, workers: int, found: Measurement) -> bool:
    """Return whether a pilot is long enough; it must be longer if it may be the only measurement.

    Workers that started together deliver together, so only the mean of several steps is meaningful.
    """
    steps = len(found.step.seconds)
    if alone and _hardly_waits(found):
        return steps >= ENOUGH_STEPS and sum(found.step.seconds) >= ENOUGH_SECONDS
    return steps >= max(FEWEST_STEPS, 2 * workers)


def _hardly_waits(found: Measurement) -> bool:
    return found.wait.median <= NOT_THE_BOTTLENECK * found.step.median


def _with_race(signals: Signals, watch: Watch, racer: Racer, today: Measurement) -> Signals:
    """Add the signals of the race of today's configuration."""
    others, usage, name = watch.interference(), racer.usage, today.candidate
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


def example_and_worker_signals(
    bench: Bench, today: Candidate, message: WorkerBatch | None, signals: Signals, seconds: float
) -> Signals:
    """Add the signals of single examples and of today's workers, in about ``seconds``."""
    job, clock = bench.job, bench.clock
    signals = replace(signals, examples=time_examples(job, clock, seconds / 2), threads_alive=job.threads)
    if not today.num_workers or message is None:
        return signals
    start, gap = start_and_gap(job, today, clock)
    received = receive_ms(message, today.num_workers, clock, seconds / 4)
    return replace(signals, start_seconds=start, epoch_gap_ms=gap * 1e3, receive_ms=received)


def step_signals(bench: Bench, seconds: float) -> Signals:
    """Return the signals of the training step: new batch shapes, page faults, and synchronizations."""
    job, clock, batches = bench.job, bench.clock, bench.batches
    end = clock.now() + seconds
    seen, first, again = {tuple(job.wave_of(batches[0]).shape)}, list[float](), list[float]()
    for batch in batches[1:]:
        shape = tuple(job.wave_of(batch).shape)
        if shape not in seen and clock.now() < end:
            seen.add(shape)
            times = [seconds_per_call(partial(job.step, batch), clock, 1) * 1e3 for _ in range(2)]
            first.append(times[0])
            again.append(times[1])
    on_cpu = job.device.type == "cpu"
    fresh = page_faults(partial(job.step, batches[0]), clock, seconds) if on_cpu and not bench.few_steps else None
    waits = trace(lambda: job.step(batches[0]), job.device).waits if job.device.type == "cuda" else ()
    return Signals(
        batch_shapes=len({tuple(job.wave_of(batch).shape) for batch in batches}),
        first_step_ms=median(first) if first else None,
        again_step_ms=median(again) if again else None,
        step_waits=waits,
        page_faults=fresh.per_call if fresh else None,
        kernel_share=fresh.kernel_share if fresh else None,
    )


MOST_EXAMPLES, FEWEST_EXAMPLES = 256, 32
"""Most and fewest examples that are timed one by one."""


PATIENCE = 1.5
"""Seconds for the fewest examples, whatever the budget."""


def time_examples(job: TrainingJob, clock: Clock, seconds: float) -> Examples:
    """Read sampled examples twice and augment them as a worker would, one by one, for about ``seconds``.

    A stream cannot read an example again: the second is the next one. Time spent waiting for a core is subtracted.
    """
    worker = WorkerChain(job.chain, job.chain.worker_until, seed=0)
    rows: list[tuple[float, float, float, float, int]] = []
    read = Reader(job.dataset)
    begin = clock.now()
    for index in read.numbers(2 * MOST_EXAMPLES):
        try:
            first, _, wave = _read(job, clock, partial(read, index))
            again, on_core, _ = _read(job, clock, partial(read, index))
        except Exception:  # unreadable examples are left out
            continue
        if not rows:
            worker(wave, key=index)  # builds all transforms
            begin = clock.now()
        # The first call may read a noise or an impulse response from disk.
        augment = min(_timed(clock, partial(worker, wave, key=index))[0] for _ in range(2))
        rows.append((first * 1e3, again * 1e3, on_core * 1e3, augment * 1e3, wave.shape[-1]))
        spent = clock.now() - begin
        if (
            len(rows) >= MOST_EXAMPLES
            or spent > max(PATIENCE, 2 * seconds)
            or (len(rows) >= FEWEST_EXAMPLES and spent > seconds)
        ):
            break
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Examples(*columns)


def _read(job: TrainingJob, clock: Clock, read: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of reading an example, its CPU seconds, and the wave."""
    return _timed(clock, lambda: job.clip_of(read()))


def _timed(clock: Clock, work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of a call with free cores, its CPU seconds, and its result."""
    begin, delayed, on_core = clock.now(), delayed_seconds(), time.thread_time()
    result = work()
    on_core, delayed = time.thread_time() - on_core, delayed_seconds() - delayed
    return max(on_core, clock.now() - begin - delayed), on_core, result


LEAST_LOOKS = 5
"""Fewest samples to estimate growth: workers may be a batch further at one sample than at the next."""

LOOK_AFTER = (0.75, 1, 1.25, 1.5, 1.75, 2, 3, 4, 6, 8, 12, 16)
"""When memory is sampled, in multiples of the queue length."""

STEADY = 2.0
"""Memory grows steadily if its rates in both halves differ by at most this factor; warming up slows down."""


class Ready:
    """A dataset that returns the same finished message every time."""

    def __init__(self, message: Any) -> None:
        self.message = message

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> Any:
        return map_leaves(torch.Tensor.clone, copy.deepcopy, self.message)


def _unchanged(message: Any) -> Any:
    return message


def receive_ms(message: Any, workers: int, clock: Clock, seconds: float) -> float:
    """Return the milliseconds to receive a batch from workers that do nothing else."""
    loader: DataLoader[Any] = DataLoader(
        Ready(message),  # type: ignore[arg-type]
        batch_size=None,
        collate_fn=_unchanged,
        shuffle=False,
        num_workers=workers,
    )
    found = measure_loader(loader, clock, seconds=seconds, discard=2 * workers + 2, block_batches=max(2, workers))
    return found.per_batch.ms


def start_and_gap(job: TrainingJob, candidate: Candidate, clock: Clock) -> tuple[float, float]:
    """Return the seconds to the first batch of a run, and of a second epoch with the same workers."""
    loader = open_brief_loader(job, candidate)
    first = []
    for number in range(2):
        begin = clock.now()
        messages = loader.worker_batches(number)
        next(messages)
        first.append(clock.now() - begin)
        for _ in messages:
            pass
    return first[0], first[1]


class Memory:
    """Sample the memory that workers do not share; not while they are timed, since a sample takes milliseconds.

    ``worker_bytes``: the most of any worker. ``growth_bytes``: growth of all workers per batch, 0 unless steady. Both
    are ``None`` until known.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []
        self.worker_bytes: int | None = None

    def watch(self, messages: Iterator[Any], queued: int, clock: Clock, seconds: Seconds) -> None:
        """Take batches for about ``seconds``, until growth can be estimated; ``queued``: the queue length."""
        deadline, looks = clock.now() + seconds, sorted({round(queued * times) for times in LOOK_AFTER})
        for number, _ in enumerate(messages):
            if number in looks:
                self.look(number)
            if number >= looks[-1] or (clock.now() > deadline and number >= looks[LEAST_LOOKS - 1]):
                return

    def look(self, number: int = 0) -> None:
        """Sample the running workers after ``number`` batches."""
        own = []
        for worker in multiprocessing.active_children():
            try:
                own.append(psutil.Process(worker.pid).memory_full_info().uss)
            except (psutil.Error, OSError):
                continue
        if own:
            self._seen.append((number, sum(own)))
            self.worker_bytes = max(self.worker_bytes or 0, *own)

    @property
    def growth_bytes(self) -> float | None:
        """Bytes a batch, over all workers."""
        if len(self._seen) < LEAST_LOOKS:
            return None
        (n0, b0), (n1, b1), (n2, b2) = self._seen[0], self._seen[len(self._seen) // 2], self._seen[-1]
        before, now = (b1 - b0) / (n1 - n0), (b2 - b1) / (n2 - n1)
        return now if now > 0 and before > 0 and 1 / STEADY <= now / before <= STEADY else 0.0
