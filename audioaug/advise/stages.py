"""Stages: the parts of a step, timed alone: in a worker, on the device, in a loader."""

import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch

from audioaug.advise.candidates import Reader, candidate_at, encoded_clips, open_loader
from audioaug.advise.racing import settling
from audioaug.advise.training_job import TrainingJob
from audioaug.audio.decoders import decoders
from audioaug.core import Chain, Op, always, why_not_in_worker, why_not_on_device
from audioaug.decide.predict import best_threads, threads_beside, worker_engines
from audioaug.engine import Preparer, WorkerChain, build_cpu, build_device
from audioaug.engine.torch_audiomentations import has_counterpart
from audioaug.features import SpecAugment
from audioaug.loader.examples import padded, with_wave
from audioaug.loader.prefetch import run_ahead, to_device
from audioaug.loader.processes import torch_threads
from audioaug.loader.targets import LabelTransforms
from audioaug.loader.worker import Collate, Fetcher
from audioaug.measure import Clock, interleave, measure_contention, measure_loader, measure_transfer, repeat
from audioaug.records import (
    Candidate,
    Ceiling,
    ContentionCost,
    DeviceEngine,
    LoaderCost,
    Location,
    PartCost,
    Report,
    StageCost,
    Timing,
)
from audioaug.units import Seconds, plural

ROUNDS = 3
"""Fewest rounds of an interleaved measurement."""


@dataclass(frozen=True)
class Bench:
    """A training job, the clock of its device, and batches cached on the device.

    ``load_seconds``: to load one of them. ``few_steps``: the budget allows only a few training steps or batches, so
    stages that need several are left out.
    """

    job: TrainingJob
    clock: Clock
    batches: Sequence[Any] = ()
    load_seconds: Seconds = 0.0
    few_steps: bool = False

    @property
    def typical(self) -> Any:
        """The batch of median audio length, which represents all of them."""
        return sorted(self.batches, key=lambda batch: self.job.wave_of(batch).shape[-1])[len(self.batches) // 2]

    @cached_property
    def wave(self) -> torch.Tensor:
        """The audio of the typical batch, on the device; if that holds features, audio from before the chain."""
        if self.job.chain.feature is None:
            return self.job.wave_of(self.typical)
        examples = readable(Reader(self.job.dataset), self.job.clip_of, self.job.batch_size)
        clips = [torch.from_numpy(self.job.clip_of(example)) for _, example in examples]
        return torch.stack(padded(clips)).to(self.job.device)

    def step(self) -> Callable[[], None]:
        """Return a training step that cycles through the batches."""
        batches = cycle(self.batches)
        return lambda: self.job.step(next(batches))

    def interleave(
        self, works: Mapping[str, Callable[[], object]], seconds: Seconds, tick: Callable[..., None] | None = None
    ) -> dict[str, Timing]:
        """Time several works under the same conditions for about ``seconds``; ``tick`` is called every round."""
        return interleave(works, self.clock, seconds=seconds, at_least=ROUNDS, on_round=tick)


CLIPS, FEW_CLIPS = 16, 4
"""Clips that an op in a worker is timed on; fewer if the budget allows only a few batches."""

DRAWS = 8
"""Batches of draws that an op on the device cycles through."""

MOST_TRIED = 512
"""Most examples that are tried to find enough readable ones."""


def worker_works(job: TrainingJob, count: int = CLIPS) -> dict[str, Callable[[], object]]:
    """Return the parts of a worker's work, each for ``count`` clips: decode, every op (always applied), collate."""
    chain, read = job.chain, Reader(job.dataset)
    examples = readable(read, job.clip_of, count)
    clips = [job.clip_of(example) for _, example in examples]
    works: dict[str, Callable[[], object]] = {"decode": lambda: [job.clip_of(read(number)) for number, _ in examples]}
    for place, op in enumerate(chain.ops):
        if not why_not_in_worker(op):
            works[str(place)] = _worker_op(always(op), clips, chain.sample_rate)
    worker = WorkerChain(chain, job.least_cut, seed=0)
    followers = LabelTransforms(job.targets, chain, worker.cut)
    fetcher = Fetcher(dict(examples), worker, "raise", bool(followers), job.lengths, job.audio_key)
    preparer = Preparer(chain, job.least_cut)
    collate = Collate(preparer, job.collate_fn, job.pad, None, followers, job.lengths)
    fetched = fetcher.__getitems__([(0, number, 0) for number, _ in examples])
    works["collate"] = lambda: collate(fetched)
    return works


def device_works(
    job: TrainingJob, wave: torch.Tensor, engine: DeviceEngine = "batched"
) -> dict[str, Callable[[], object]]:
    """Return every op that the engine supports, each on a batch on the device."""
    works: dict[str, Callable[[], object]] = {}
    for place, op in enumerate(job.chain.ops):
        if why_not_on_device(op) or (engine == "torch-audiomentations" and not has_counterpart(op)):
            continue
        works[str(place)] = _on_batches(Chain([op], job.chain.sample_rate), 0, None, wave, engine)
    return works


def device_parts(job: TrainingJob, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return, for each cut, our ops after it as they are built for the device."""
    chain = job.chain
    cuts = range(job.least_cut, min(len(chain), chain.worker_until + 1))
    return {cut: _on_batches(chain, cut, None, wave) for cut in cuts}


def worker_parts(job: TrainingJob, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return, for each cut, our ops before it as batched workers run them, on a batch in main memory."""
    chain, first = job.chain, job.least_cut
    cuts = range(first + 1, chain.worker_until + 1)
    return {cut: _on_batches(chain, first, cut, wave) for cut in cuts}


def step_with_part(bench: Bench, part: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """Return a training step with everything that a Loader does on the device: the copy and the device part.

    Both run on a side stream, if there is one, during the previous step.
    """
    job, wave = bench.job, bench.wave.cpu()
    on_host = to_device(bench.typical, torch.device("cpu"))
    on_host = with_wave(on_host, wave.pin_memory() if job.device.type == "cuda" else wave, job.audio_key)

    def finish(batch: Any) -> Any:
        return with_wave(to_device(batch, job.device), part(), job.audio_key)

    feeder = run_ahead(itertools.repeat(on_host), job.device, finish)
    return lambda: job.step(next(feeder))


def readable(read: Reader, clip_of: Callable[[Any], object], count: int = CLIPS) -> list[tuple[int, Any]]:
    """Return ``count`` readable examples with their numbers, repeated if there are fewer."""
    found: dict[int, Any] = {}
    for number in read.numbers(MOST_TRIED):
        with suppress(Exception):
            example = read(number)
            clip_of(example)
            found[number] = example
        if len(found) == count:
            break
    return list(islice(cycle(found.items()), count))


def _worker_op(op: Op, clips: Sequence[Any], sample_rate: int) -> Callable[[], object]:
    chain = Chain([op], sample_rate)
    worker, draws = build_cpu(chain), list(chain.draw(range(len(clips))))
    return lambda: [worker(clip, draws=draw) for clip, draw in zip(clips, draws, strict=True)]


def _on_batches(
    chain: Chain, start: int, stop: int | None, wave: torch.Tensor, engine: DeviceEngine = "batched"
) -> Callable[[], torch.Tensor]:
    """Return the ops from ``start`` to ``stop`` on this batch, on its device, with different draws each time.

    On a GPU all of these have run once: the first time, FFTs are planned and memory is allocated.
    """
    module = build_device(chain, start, engine, stop=stop)
    shape = tuple(wave.shape) if wave.ndim == 3 else (len(wave), 1, wave.shape[-1])
    prepared = [module.prepare(chain.draw(np.arange(len(wave)) + len(wave) * turn), shape) for turn in range(DRAWS)]
    turns = [each.pin_memory() for each in prepared] if wave.is_cuda else prepared
    if wave.device.type != "cpu":
        for each in turns:
            module.augment(wave, each)
    endless = cycle(turns)
    return lambda: module.augment(wave, next(endless))[0]


def worker_stage(job: TrainingJob, name: str, timing: Timing, count: int = CLIPS) -> StageCost:
    """Return a worker's stage: the time of ``count`` clips scaled to a batch, and an op's to its probability."""
    op = int(name) if name.isdigit() else None
    factor = job.batch_size / count * (1.0 if op is None else job.chain.ops[op].p)
    low, high = timing.ci_ms
    engine = "audiomentations" if op is not None else ""
    label = name if op is None else job.chain.ops[op].name
    samples = tuple(ms * factor for ms in timing.samples_ms)
    return StageCost(label, "worker", timing.ms * factor, (low * factor, high * factor), op, engine, "", samples)


def op_stage(chain: Chain, where: Location, name: str, timing: Timing) -> StageCost:
    """Return the cost of an op for a whole batch; ``name`` is the engine and the position: ``batched 3``."""
    engine, op = name.split()
    label = chain.ops[int(op)].name
    return StageCost(label, where, timing.ms, timing.ci_ms, int(op), engine, samples_ms=timing.samples_ms)


def part_cost(where: Location, cut: int, threads: int, timing: Timing) -> PartCost:
    """Return the cost of our ops on one side of a cut."""
    return PartCost(where, cut, threads, timing.ms, timing.ci_ms, timing.samples_ms)


def worker_stages(
    bench: Bench, seconds: Seconds, tick: Callable[..., None]
) -> tuple[tuple[StageCost, ...], tuple[PartCost, ...]]:
    """Time decoding, collating and every op with either engine, and the batched part before each cut, on one thread."""
    job, wave = bench.job, bench.wave.cpu()
    count = FEW_CLIPS if bench.few_steps else CLIPS
    on_clips = worker_works(job, count)
    on_batches = {
        f"batched {op}": work
        for op, work in device_works(job, wave).items()
        if job.least_cut <= int(op) < job.chain.worker_until
    }
    parts = {f"until {cut}": work for cut, work in worker_parts(job, wave).items()}
    with torch_threads(1):
        times = bench.interleave(on_clips | on_batches | parts, seconds, tick)
    stages = [worker_stage(job, name, times[name], count) for name in on_clips]
    stages += [op_stage(job.chain, "worker", name, times[name]) for name in on_batches]
    built = [part_cost("worker", int(name.split()[1]), 1, times[name]) for name in parts]
    return tuple(stages), tuple(built)


DECODERS_SECONDS, DECODER_MS = 0.3, 100.0
"""Seconds to compare decoders, and the most milliseconds that soundfile takes for the clips that each decodes."""


def decoder_stages(bench: Bench, stages: Iterable[StageCost]) -> tuple[StageCost, ...]:
    """Time decoders on some of the clips, ours first, if audioaug decodes them and that is the largest stage."""
    job, slowest = bench.job, max(stages, key=lambda stage: stage.ms_per_batch or 0.0)
    clip_ms = (slowest.ms_per_batch or math.inf) / job.batch_size
    clips = list(islice(encoded_clips(job), min(CLIPS, int(DECODER_MS / clip_ms)))) if slowest.name == "decode" else []
    if not clips:
        return ()
    with tempfile.TemporaryDirectory() as folder, torch_threads(1):
        times = bench.interleave(decoders(clips, int(job.chain.sample_rate), folder), DECODERS_SECONDS)
    batches = {name: Timing(tuple(it * job.batch_size / len(clips) for it in times[name].seconds)) for name in times}
    return tuple(
        StageCost("decode", "comparison", it.ms, it.ci_ms, engine=name, samples_ms=it.samples_ms)
        for name, it in batches.items()
    )


Parts = dict[int, Callable[[], torch.Tensor]]
"""The device part of each cut, the longest first."""


def thread_counts(report: Report, workers: Iterable[int]) -> tuple[int, ...]:
    """Return how many threads training steps get beside these numbers of workers."""
    usual = report.host.torch_threads
    return tuple(sorted({threads_beside(report, count) or usual for count in workers}))


def steps_on_threads(bench: Bench, counts: Iterable[int], seconds: Seconds) -> tuple[StageCost, ...]:
    """Time the training step with each number of threads."""
    threads, step = {plural(count, "thread"): count for count in sorted(counts, reverse=True)}, bench.step()
    untimed = 0 if bench.few_steps else settling(threads.values())

    def prepare(name: str) -> None:
        torch.set_num_threads(threads[name])
        for _ in range(untimed):
            step()

    least, warm_up = (1, 0) if bench.few_steps else (ROUNDS, 1)
    works = dict.fromkeys(threads, step)
    with torch_threads(torch.get_num_threads()):
        times = interleave(works, bench.clock, seconds=seconds, at_least=least, warm_up=warm_up, prepare=prepare)
    return tuple(
        StageCost("step", "model", it.ms, it.ci_ms, engine=name, samples_ms=it.samples_ms) for name, it in times.items()
    )


def ceiling_on_fewer_threads(report: Report) -> Ceiling | None:
    """Return the ceiling with fewer threads than torch's default, if the step is faster with them (small models)."""
    usual, best = report.host.torch_threads, best_threads(report)
    step = next(it for it in report.stages if (it.where, it.engine) == ("model", plural(best, "thread")))
    if best == usual or not step.ms_per_batch or not step.ci_ms:
        return None
    rate = report.workload.batch_size / step.ms_per_batch * 1e3
    return Ceiling(step.ms_per_batch, step.ci_ms, rate, best, step.samples_ms)


def parts_to_time(bench: Bench, counts: Sequence[int]) -> dict[int, Parts]:
    """Return the parts to time by number of threads: all with the median one, the longest with the others."""
    parts = device_parts(bench.job, bench.wave)
    longest = dict(list(parts.items())[:1])
    return {count: parts if count == counts[(len(counts) - 1) // 2] else longest for count in counts}


def parts_on_threads(bench: Bench, count: int, parts: Parts, seconds: Seconds) -> tuple[PartCost, ...]:
    """Time device parts with ``count`` threads, and the longest one together with the copy and the step."""
    works: dict[str, Callable[[], object]] = {str(cut): work for cut, work in parts.items()}
    if parts and not bench.job.pad and not bench.few_steps:  # padded batches would need their new lengths
        behind = step_with_part(bench, parts[min(parts)])
        works |= {"step": bench.step(), "both": behind}
    with torch_threads(count):
        times = bench.interleave(works, seconds)
    found = [part_cost("device", cut, count, times[str(cut)]) for cut in parts]
    if found and "both" in times:
        found[0] = replace(found[0], step_ms=times["step"].ms, both_ms=times["both"].ms)
    return tuple(found)


def ops_on_device(bench: Bench, threads: int, seconds: Seconds, tick: Callable[..., None]) -> tuple[StageCost, ...]:
    """Time every op alone, with that many threads."""
    works = {f"batched {op}": work for op, work in device_works(bench.job, bench.wave).items()}
    with torch_threads(threads):
        times = bench.interleave(works, seconds, tick)
    return tuple(op_stage(bench.job.chain, "device", name, timing) for name, timing in times.items())


def augmentation_in_model(bench: Bench, threads: int, seconds: Seconds) -> tuple[StageCost, ...]:
    """Time each ``SpecAugment`` of the model alone, on the spectrograms that it gets in a training step.

    Its time is a part of the step's; the engine is the module's name.
    """
    modules = {name: module for name, module in bench.job.model.named_modules() if isinstance(module, SpecAugment)}
    if not modules or bench.few_steps:
        return ()
    works: dict[str, Callable[[], object]] = {}

    def note(name: str, module: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        given = {argument: _detached(value) for argument, value in named.items()}
        works[name] = partial(module.forward, *map(_detached, args), **given)

    handles = [each.register_forward_pre_hook(partial(note, name), with_kwargs=True) for name, each in modules.items()]
    try:
        bench.job.step(bench.typical)
    finally:
        for handle in handles:
            handle.remove()
    with torch_threads(threads):
        times = bench.interleave(works, seconds) if works else {}
    return tuple(StageCost("SpecAugment", "device", it.ms, it.ci_ms, engine=name) for name, it in times.items())


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def copies(bench: Bench, seconds: Seconds) -> tuple[StageCost, ...]:
    """Time the copy of a batch to the device, from pageable and from pinned memory."""
    found = measure_transfer(bench.wave.cpu(), bench.job.device, bench.clock, seconds=seconds)
    return tuple(StageCost(f"copy, {kind}", "transfer", it.ms, it.ci_ms) for kind, it in found.items())


CONTENTION_BLOCK = 0.05
"""Seconds of a block of training steps beside workers."""


def loaders_to_time(report: Report, chain: Chain, counts: Sequence[int]) -> tuple[list[Candidate], list[Candidate]]:
    """Return the loaders to time: those that predictions need, then those that improve them if there is time.

    Loaders run the whole chain, or as little of it as possible.
    """
    first, last = report.chain.cuts[0], report.chain.cuts[-1]
    engines = worker_engines(report, last)
    ends = {(first, "audiomentations"), *((last, engine) for engine in engines)}
    needed, others = list[Candidate](), list[Candidate]()
    for cut, engine in sorted(ends):
        for count in counts if engine == "audiomentations" else filter(None, counts):
            it = replace(candidate_at(chain, cut, count), worker_engine=engine, threads=threads_beside(report, count))
            is_end = (cut, engine) == (last, engines[-1]) or (cut == first and count == max(counts))
            (needed if is_end or not count else others).append(it)
    return needed, others


def contention_names(report: Report, candidates: Sequence[Candidate]) -> set[str]:
    """Return the names of the loaders to time beside training: the whole chain, with the faster engine."""
    last = report.chain.cuts[-1]
    engine = worker_engines(report, last)[-1]  # the faster one
    return {it.name for it in candidates if it.num_workers and (it.cut, it.worker_engine) == (last, engine)}


def open_messages(bench: Bench, candidate: Candidate) -> Iterator[Any]:
    """Open a candidate's loader and return its messages, before the device part."""
    return open_loader(bench.job, replace(candidate, threads=None)).worker_batches()


def loader_cost(bench: Bench, candidate: Candidate, messages: Iterator[Any], seconds: Seconds) -> LoaderCost:
    """Time a loader alone."""
    block = max(1, candidate.num_workers)
    result = measure_loader(
        messages,
        bench.clock,
        seconds=seconds,
        discard=1 + candidate.num_workers,  # later batches are taken as they are made: none is queued
        block_batches=block,
        at_least=max(4, 3 * block),
    )
    timing, engine = result.per_batch, candidate.worker_engine
    (low, high), mean = timing.ci_ms, timing.mean_ms
    return LoaderCost(
        candidate.cut,
        candidate.num_workers,
        mean,
        (min(low, mean), max(high, mean)),
        result.first_batch_seconds,
        engine,
        timing.samples_ms,
        result.cpu_seconds * 1e3 if candidate.num_workers else 0.0,
    )


def steps_alone(bench: Bench, threads: int, seconds: Seconds) -> Timing:
    """Time training steps with this many threads and no loader."""
    least, warm_up = (1, 0) if bench.few_steps else (ROUNDS, 2)
    with torch_threads(threads):
        return repeat(bench.step(), bench.clock, seconds=seconds, at_least=least, warm_up=warm_up)


def contention_cost(
    bench: Bench, candidate: Candidate, threads: int, messages: Iterator[Any], alone: Timing, seconds: Seconds
) -> tuple[ContentionCost, ...]:
    """Time training steps while this candidate's workers run at full speed; none if they were too slow for the time."""
    with torch_threads(threads):
        found = measure_contention(
            bench.step(),
            messages,
            bench.clock,
            seconds=seconds,
            discard=1,
            block_steps=max(1, round(CONTENTION_BLOCK / alone.median)),
            block_batches=candidate.num_workers,
        )
    if not found.batch.seconds:
        return ()
    cost = ContentionCost(
        candidate.cut,
        candidate.worker_engine,
        candidate.num_workers,
        threads,
        alone.ms,
        found.step.ms,
        found.batch.mean_ms,
        found.step.samples_ms,
        found.batch.samples_ms,
    )
    return (cost,)
