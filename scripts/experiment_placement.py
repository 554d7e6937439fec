"""Where should augmentation run? The claims of the audiomentations guide "CPU vs. GPU", measured on this machine.

    python scripts/experiment_placement.py                          about two minutes, report on stdout
    python scripts/experiment_placement.py --quick --json result.json
    python scripts/experiment_placement.py --load result.json

Measured: what every op costs on both sides, what a loader delivers, a few training runs end to end (models of several
sizes, the chain once and several times over), and convolution over the length of the impulse response. Predicted:
everything between, by ``audioaug.decide.predict``. ``notebooks/02_cpu_or_gpu.ipynb`` draws what this measures.

Without a GPU, "device" is the same batched ops in the training process, on the CPU. That process then gets one thread,
so that training and workers have cores of their own, as they have beside a GPU.
"""

import math
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from experiment_shared import MODEL, Claim, Finding, Say, experiment, judge, perform, quiet, timed, to_lines

from audioaug import Chain, ops
from audioaug.advise.candidates import cached_batches, open_loader, queued_batches
from audioaug.advise.model_file import load_module, load_training_job
from audioaug.advise.progress import Progress
from audioaug.advise.racing import Usage
from audioaug.advise.stages import CLIPS, device_works, worker_works
from audioaug.advise.survey import Options, Survey
from audioaug.advise.training_job import TrainingJob
from audioaug.core import why_not_on_device
from audioaug.decide.predict import predict, with_prediction, worker_ms
from audioaug.decide.shortlist import placement_of
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import MeasurementError
from audioaug.loader.examples import get_wave
from audioaug.loader.prefetch import as_device
from audioaug.loader.processes import torch_threads
from audioaug.measure import clock_for, host_facts, interleave, measure_steps, race
from audioaug.records import Candidate, Ceiling, DeviceEngine, Interval, LoaderCost, Location, Report, StageCost, Timing
from audioaug.units import format_bytes, format_interval, format_ms, format_percent, plural, significant

# Records


@dataclass(frozen=True)
class Size:
    """How much to measure: seconds for the stages in all, for each point of the map, and for convolution in all.

    ``models`` is how many of ``widths`` are trained, ``repeats`` how many times over each op of the chain is applied.
    """

    stage_seconds: float
    point_seconds: float
    models: int
    repeats: tuple[int, ...]
    response_seconds: tuple[float, ...]
    convolution_seconds: float


QUICK = Size(5, 2, 1, (1,), (0.1, 1.0), 1.5)
FULL = Size(32, 9, 3, (1, 4), (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), 12)


@dataclass(frozen=True)
class Point:
    """One point of the map: a model and a chain, and the candidates that were trained with on it."""

    width: int
    parameters: int
    repeats: int
    ceiling: Ceiling
    candidates: tuple[Candidate, ...]

    def of(self, placement: str, workers: int | None = None) -> Candidate:
        """Return the fastest measured candidate of a placement, with this number of workers or with any."""
        found = [
            candidate
            for candidate in self.candidates
            if candidate.placement == placement and workers in (None, candidate.num_workers)
        ]
        return min(found, key=measured)

    def stall(self, candidate: Candidate) -> float:
        """Return the share of a step that the model alone would not need."""
        return max(0.0, 1 - self.ceiling.step_ms / measured(candidate))


@dataclass(frozen=True)
class Convolution:
    """What convolving a batch costs on each side, by the length of the impulse response; intervals are of 95 %."""

    response_seconds: float
    worker_ms: float
    worker_ci_ms: Interval
    device_ms: float
    device_ci_ms: Interval


@dataclass(frozen=True)
class Experiment:
    """All that was measured."""

    report: Report
    points: tuple[Point, ...] = ()
    convolutions: tuple[Convolution, ...] = ()
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1


def measured(candidate: Candidate) -> float:
    """Return the measured step time in milliseconds; endless for a candidate that was not measured."""
    return inf if candidate.measured_ms is None else candidate.measured_ms


def clearly_faster(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a measured candidate is faster than another, and their intervals do not meet."""
    ours, theirs = candidate.measured_ci_ms, other.measured_ci_ms
    return ours is not None and theirs is not None and ours[1] < theirs[0]


# What is trained

BATCH_SIZE = 16


def make_target(device: torch.device, batch_size: int = BATCH_SIZE, augment: str | None = None) -> TrainingJob:
    """Return the example model with its chain and the demo speech; without a GPU, give training one thread."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    return load_training_job(str(MODEL), device, augment=augment, batch_size=batch_size)


def with_width(target: TrainingJob, width: int) -> TrainingJob:
    """Return the target with a model whose layers are that wide."""
    torch.manual_seed(0)
    model = load_module(str(MODEL)).KeywordCNN(width=width).to(target.device).train()
    return replace(target, model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4))


def with_repeats(target: TrainingJob, repeats: int) -> TrainingJob:
    """Return the target with every op ``repeats`` times over, for a chain that takes that many times as long."""
    ops_ = [op for op in target.chain.ops for _ in range(repeats)]
    return replace(target, chain=Chain(ops_, target.chain.sample_rate))


def widths(device: torch.device) -> tuple[int, ...]:
    """Return how wide the layers of a small, a middling and a large model are, for the device it trains on."""
    return (8, 32, 128) if device.type == "cpu" else (32, 256, 1024)


def worker_counts(target: TrainingJob) -> tuple[int, ...]:
    """Return the worker counts to measure: none, and one for each core but one (eight at most)."""
    cores = host_facts(target.device).usable_cores
    return 0, max(1, min(8, int(cores) - 1))


def candidate_of_cut(report: Report, cut: int, workers: int) -> Candidate:
    """Return the candidate of that cut, with audiomentations in this many workers and our ops on the device."""
    return Candidate(placement_of(cut, len(report.chain.ops)), cut, num_workers=workers, pin_memory=report.host.has_gpu)


# What each stage costs alone


def survey(target: TrainingJob, seconds: float, workers: Sequence[int], say: Say = quiet) -> Report:
    """Measure the model's own step, every op on both sides, and loaders alone at both ends of the chain."""
    report = Survey(target, Options(seconds), Progress(quiet=True), lambda _: None).report
    clock = clock_for(target.device)
    batches, _ = cached_batches(target, candidate_of_cut(report, len(target.chain), 0))
    say("the model's own step")
    step = measure_steps(target.step, batches, clock, seconds=0.1 * seconds, block_steps=3)
    ceiling = Ceiling(step.ms, step.ci_ms, target.batch_size / step.median)
    say("every op on both sides")
    stages = _stages(target, get_wave(batches[0]), 0.5 * seconds)
    report = replace(report, ceiling=ceiling, stages=stages)
    say("loaders alone")
    costs = _loader_costs(target, report, workers, 0.4 * seconds)
    return replace(report, loader_costs=costs, complete=True)


def _stages(target: TrainingJob, wave: torch.Tensor, seconds: float) -> tuple[StageCost, ...]:
    """Time all stages in turn, so that drift affects all equally: ms for a batch, ops as often as they are applied."""
    works: dict[tuple[Location, str, str], Callable[[], object]] = {}
    for name, work in worker_works(target).items():
        works["worker", "audiomentations" if name.isdigit() else "", name] = partial(on_one_thread, work)
    engines: list[DeviceEngine] = ["batched"] if why_unavailable() else ["batched", "torch-audiomentations"]
    for engine in engines:
        for name, work in device_works(target, wave, engine).items():
            works["device", engine, name] = work
    times = interleave({"|".join(key): work for key, work in works.items()}, clock_for(target.device), seconds=seconds)
    return tuple(_stage(target, key, times["|".join(key)]) for key in works)


def _stage(target: TrainingJob, key: tuple[Location, str, str], timing: Timing) -> StageCost:
    where, engine, name = key
    op = int(name) if name.isdigit() else None
    factor = 1.0
    if where == "worker":  # was timed for CLIPS clips, always applied
        factor = target.batch_size / CLIPS * (1.0 if op is None else target.chain.ops[op].p)
    low, high = timing.ci_ms
    label = name if op is None else target.chain.ops[op].name
    return StageCost(label, where, timing.ms * factor, (low * factor, high * factor), op, engine)


def _loader_costs(
    target: TrainingJob, report: Report, workers: Sequence[int], seconds: float
) -> tuple[LoaderCost, ...]:
    """Let loaders take turns at delivering, with the whole chain in them or as little of it as can be.

    What would run on the device is left out: its time is that of the device's stages.
    """
    ends = {(cut, count): candidate_of_cut(report, cut, count) for cut in _ends(report) for count in workers}
    feeders = {}
    for (cut, _), candidate in ends.items():
        part = replace(target, chain=Chain(target.chain.ops[:cut], target.chain.sample_rate))
        feeders[candidate.name] = iter(open_loader(part, candidate))
        next(feeders[candidate.name])
    result = race(
        feeders,
        lambda batch: None,
        clock_for(target.device),
        block_steps=2 * max(1, *workers),
        discard={candidate.name: queued_batches(candidate) for candidate in ends.values()},
        rounds=100,
        seconds=seconds,
        at_least_rounds=5,
    )
    times = {key: result.measurements[candidate.name].step for key, candidate in ends.items()}
    return tuple(LoaderCost(cut, count, timing.ms, timing.ci_ms) for (cut, count), timing in times.items())


def _ends(report: Report) -> tuple[int, int]:
    return report.chain.device_from, len(report.chain.ops)


def on_one_thread(work: Callable[[], object]) -> None:
    """Run a piece of a worker's work as a worker does."""
    with torch_threads(1):
        work()


def chain_ms(report: Report, where: str = "worker") -> float:
    """Return what the whole chain costs for a batch on one side: in one worker, or on the device."""
    engine = "audiomentations" if where == "worker" else "batched"
    return sum(s.ms_per_batch or 0.0 for s in report.stages if s.op is not None and s.engine == engine)


# Predictions


def scaled(report: Report, chain_factor: float, step_ms: float) -> Report:
    """Return the report as if the chain took ``chain_factor`` times as long, and the model alone ``step_ms``."""
    assert report.ceiling is not None
    first = report.chain.device_from
    bare = {cost.num_workers: cost for cost in report.loader_costs if cost.cut == first}

    def loader(cost: LoaderCost) -> LoaderCost:
        base = bare[cost.num_workers].ms_per_batch
        low, middle, high = (
            max(0.0, base + chain_factor * (ms - base)) for ms in (cost.ci_ms[0], cost.ms_per_batch, cost.ci_ms[1])
        )
        return cost if cost.cut == first else replace(cost, ms_per_batch=middle, ci_ms=(low, high))

    def stage(cost: StageCost) -> StageCost:
        if cost.op is None or cost.ms_per_batch is None or cost.ci_ms is None:
            return cost
        low, high = cost.ci_ms
        ci_ms = (low * chain_factor, high * chain_factor)
        return replace(cost, ms_per_batch=cost.ms_per_batch * chain_factor, ci_ms=ci_ms)

    share = step_ms / report.ceiling.step_ms
    low, high = report.ceiling.ci_ms
    return replace(
        report,
        ceiling=Ceiling(step_ms, (low * share, high * share), report.ceiling.clips_per_second / share),
        stages=tuple(map(stage, report.stages)),
        loader_costs=tuple(map(loader, report.loader_costs)),
    )


def best_ms(report: Report, workers: int) -> dict[str, float]:
    """Return the best predicted step time of each placement ("cpu", "split", "gpu") with this many workers."""
    best = dict.fromkeys(("cpu", "split", "gpu"), inf)
    for candidate in candidates_of(report, [workers]):
        found = predict(report, candidate)
        if found is not None:
            best[candidate.placement] = min(best[candidate.placement], found.ms)
    return best


def predicted_map(
    report: Report, workers: int, steps_ms: Sequence[float], factors: Sequence[float], cores: float | None = None
) -> dict[str, np.ndarray]:
    """Return predicted step times in milliseconds by placement, one row a chain factor, one column a model step.

    With ``cores`` they are for a machine with that many free cores.
    """
    if cores is not None:
        report = replace(report, host=replace(report.host, usable_cores=cores, effective_cores=None))
    grid = [[best_ms(scaled(report, factor, step_ms), workers) for step_ms in steps_ms] for factor in factors]
    return {name: np.array([[best[name] for best in row] for row in grid]) for name in ("cpu", "split", "gpu")}


def candidates_of(report: Report, workers: Sequence[int]) -> list[Candidate]:
    """Return every cut with each number of workers."""
    cuts = range(report.chain.device_from, len(report.chain.ops) + 1)
    return [candidate_of_cut(report, cut, count) for cut in cuts for count in workers]


# Training runs

BLOCK_MS = 200.0
"""The length of a block of training steps."""


def measure_point(
    target: TrainingJob, report: Report, width: int, repeats: int, workers: Sequence[int], seconds: float
) -> Point:
    """Train a model of that width with both ends of the chain and its best split; real loaders, real steps."""
    runner = with_width(with_repeats(target, repeats), width)
    clock = clock_for(target.device)
    batches, _ = cached_batches(runner, candidate_of_cut(report, len(runner.chain), 0))
    alone = measure_steps(runner.step, batches, clock, seconds=0.2 * seconds, block_steps=2, at_least=5)
    ceiling = Ceiling(alone.ms, alone.ci_ms, target.batch_size / alone.median)
    guess = scaled(report, repeats, ceiling.step_ms)
    candidates = [with_prediction(guess, candidate) for candidate in _worth_racing(guess, workers)]
    repeated = {
        candidate.name: replace(candidate, cut=candidate.cut * repeats) for candidate in candidates
    }  # every op is there that many times
    feeders = {name: iter(open_loader(runner, each)) for name, each in repeated.items()}
    for feeder in feeders.values():
        runner.step(next(feeder))
    discard = {candidate.name: _settled(guess, candidate) for candidate in candidates}
    with Usage(target.device, clock, discard) as usage:
        result = race(
            feeders,
            runner.step,
            clock,
            block_steps={
                candidate.name: max(3, round(BLOCK_MS / (candidate.predicted_ms or BLOCK_MS)))
                for candidate in candidates
            },
            discard=discard,
            rounds=20,
            seconds=0.8 * seconds,
            on_block=usage.note,
        )
    if result.failures:
        raise MeasurementError(f"Training failed: {result.failures}")
    raced = tuple(
        _raced(candidate, result.measurements[candidate.name].step, usage, target.batch_size)
        for candidate in candidates
    )
    return Point(width, sum(p.numel() for p in runner.model.parameters()), repeats, ceiling, raced)


def _settled(report: Report, candidate: Candidate) -> int:
    """Return how many steps to leave out before a block.

    These are the candidate's own queued batches, and the steps until the workers of the one before it have filled their
    queues, which uses cores.
    """
    refill_ms = 3 * worker_ms(report, len(report.chain.ops))[1]
    return max(queued_batches(candidate), math.ceil(refill_ms / (candidate.predicted_ms or refill_ms)))


def _raced(candidate: Candidate, timing: Timing, usage: Usage, batch_size: int) -> Candidate:
    return replace(
        candidate,
        status="raced",
        measured_ms=timing.ms,
        measured_ci_ms=timing.ci_ms,
        clips_per_second=batch_size / timing.median,
        vram_bytes=usage.vram.get(candidate.name),
        cpu_seconds_per_step=usage.cpu_per_step(candidate.name),
    )


def _worth_racing(report: Report, workers: Sequence[int]) -> list[Candidate]:
    """Return both ends of the chain with each number of workers, and the split that is predicted to be fastest."""
    first, last = report.chain.device_from, len(report.chain.ops)
    ends = [candidate_of_cut(report, cut, count) for count in workers for cut in (first, last)]
    splits = [
        (found.ms, candidate) for candidate in candidates_of(report, workers) if (found := predict(report, candidate))
    ]
    splits = [pair for pair in splits if first < pair[1].cut < last]
    return [*ends, min(splits, key=lambda pair: pair[0])[1]] if splits else ends


# Convolution


def convolution(target: TrainingJob, response_seconds: Sequence[float], seconds: float) -> tuple[Convolution, ...]:
    """Time ApplyImpulseResponse on both sides for decaying noise of each length."""
    wave = get_wave(cached_batches(target, Candidate("gpu", target.chain.device_from))[0][0])
    works: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for length in response_seconds:
            path = _response(Path(folder), length, target.chain.sample_rate)
            chain = Chain([ops.ApplyImpulseResponse(ir_path=path, p=1.0)], target.chain.sample_rate)
            one = replace(target, chain=chain)
            works[f"worker {length}"] = partial(on_one_thread, worker_works(one)["0"])
            works[f"device {length}"] = device_works(one, wave, "batched")["0"]
        times = interleave(works, clock_for(target.device), seconds=seconds)
    factor = target.batch_size / CLIPS
    found = []
    for length in response_seconds:
        worker, device = times[f"worker {length}"], times[f"device {length}"]
        low, high = worker.ci_ms
        found.append(Convolution(length, worker.ms * factor, (low * factor, high * factor), device.ms, device.ci_ms))
    return tuple(found)


def _response(folder: Path, seconds: float, sample_rate: int) -> str:
    """Write a room of that decay time: noise that falls by 60 dB."""
    time_T = np.arange(round(seconds * sample_rate)) / sample_rate
    noise_T = np.random.default_rng(0).normal(0.0, 0.3, len(time_T)) * 10 ** (-3 * time_T / seconds)
    path = folder / f"{seconds}.wav"
    soundfile.write(path, noise_T.clip(-1, 1), sample_rate)
    return str(path)


# Claims

FILTERS_AND_ROOMS = ("ApplyImpulseResponse", "LowPassFilter", "HighPassFilter", "BandPassFilter", "BandStopFilter")
STALLED = 0.05
"""A step that waits for data for more than this share of it is stalled."""

SAYS = {
    "A1": "A CPU-only library in several workers is often fast enough to keep the GPU busy.",
    "A2": "Augmentation on the CPU uses no VRAM.",
    "A3": "CPU libraries have more transforms; Mp3Compression has no GPU version.",
    "A4": "A CPU-only library is not tied to one tensor library.",
    "A5": "Augmenting on the GPU is faster when the model does not fill the GPU.",
    "A6": "The GPU gains most on convolution: room reverb, filters.",
    "A7": "Augmenting on the GPU removes a data loading bottleneck.",
    "A8": "It depends: find your bottleneck.",
}
"""What the guide says."""


def claims(experiment: Experiment, chain: Chain) -> tuple[Claim, ...]:
    """Put each claim of the guide beside what was measured here."""
    findings = {
        "A1": _keeps_busy(experiment),
        "A2": _no_vram(experiment),
        "A3": _more_transforms(),
        "A4": _no_tensor_library(chain),
        "A5": _faster_for_small_models(experiment),
        "A6": _most_of_all_convolution(experiment),
        "A7": _removes_bottleneck(experiment),
        "A8": _depends(experiment),
    }
    return judge(SAYS, findings)


def _about_gpu(experiment: Experiment, found: str, holds: str) -> Finding:
    """Return a finding about a GPU; with a remark if there was none to test it."""
    return found if experiment.report.host.has_gpu else f"On the CPU in a GPU's place. {found}", holds


def _keeps_busy(experiment: Experiment) -> Finding:
    points = [point for point in experiment.points if point.repeats == min(p.repeats for p in experiment.points)]
    stalls = [point.stall(point.of("cpu")) for point in points]
    waits = ", ".join(f"{format_percent(s)} of a step ({model_name(p)})" for s, p in zip(stalls, points, strict=True))
    busy = sum(stall <= STALLED for stall in stalls)
    holds = "yes" if busy == len(stalls) else "in part" if busy else "no"
    return _about_gpu(
        experiment, f"Whole chain in the loader, {_counts(experiment)}: {waits} is more than the model needs.", holds
    )


def _no_vram(experiment: Experiment) -> Finding:
    point = experiment.points[0]
    cpu, gpu = point.of("cpu"), point.of("gpu")
    seconds = f"CPU time a step: {_cpu_ms(cpu)} with the chain in the loader, {_cpu_ms(gpu)} with it on the device."
    if cpu.vram_bytes is None or gpu.vram_bytes is None:
        return (f"No GPU here, so no VRAM to see. {seconds}", "not tested")
    more = gpu.vram_bytes - cpu.vram_bytes
    found = f"Peak {format_bytes(cpu.vram_bytes)} against {format_bytes(gpu.vram_bytes)} on the device. {seconds}"
    return found, "yes" if more >= 0 else "no"


def _cpu_ms(candidate: Candidate) -> str:
    return format_ms((candidate.cpu_seconds_per_step or 0.0) * 1e3)


def _more_transforms() -> Finding:
    import audiomentations
    from audiomentations.core.transforms_interface import BaseWaveformTransform as OnCpu

    theirs = _count(audiomentations, OnCpu)
    device = "not installed"
    if not why_unavailable():
        import torch_audiomentations
        from torch_audiomentations.core.transforms_interface import BaseWaveformTransform as OnDevice

        device = str(_count(torch_audiomentations, OnDevice) - 1)  # without Identity
    reason = why_not_on_device(ops.Mp3Compression())
    return (
        f"audiomentations has {theirs}, torch-audiomentations {device}. {reason}",
        "yes" if device.isdigit() and theirs > int(device) else "not tested",
    )


def _count(library: Any, base: type) -> int:
    return len({c for c in vars(library).values() if isinstance(c, type) and issubclass(c, base) and c is not base})


WITHOUT_TORCH = """
import pickle, sys
import numpy as np
augment = pickle.load(sys.stdin.buffer)
samples = augment(np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32), 16000)
print(type(samples).__name__, "with torch" if "torch" in sys.modules else "without torch")
"""


def _no_tensor_library(chain: Chain) -> Finding:
    with warnings.catch_warnings():  # it says that a cache is not pickled
        warnings.simplefilter("ignore")
        content = pickle.dumps(chain.to_audiomentations())
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_TORCH]
    result = subprocess.run(command, input=content, capture_output=True, check=True)
    found = result.stdout.decode().strip()
    return (
        f"chain.to_audiomentations() in a process of its own: numpy in, {found}.",
        "yes" if found == "ndarray without torch" else "no",
    )


def _faster_for_small_models(experiment: Experiment) -> Finding:
    least = min(point.repeats for point in experiment.points)
    points = sorted((p for p in experiment.points if p.repeats == least), key=lambda point: point.width)
    pairs = [(point.of("gpu"), point.of("cpu")) for point in points]
    gains = [measured(cpu) / measured(gpu) for gpu, cpu in pairs]
    found = ", ".join(f"{gain:.2f} x ({model_name(point)})" for gain, point in zip(gains, points, strict=True))
    clear = [clearly_faster(gpu, cpu) for gpu, cpu in pairs]
    holds = "yes" if clear[0] and gains[0] > gains[-1] else "in part" if any(clear) else "no"
    holds = holds if len(points) > 1 else "not tested"
    return _about_gpu(
        experiment, f"Speed of the device build over the loader, each with {_counts(experiment)}: {found}.", holds
    )


def _most_of_all_convolution(experiment: Experiment) -> Finding:
    stages = {(s.engine, s.op): s for s in experiment.report.stages if s.op is not None}
    gains = {
        stage.name: (stage.ms_per_batch or 0.0) / (stages["batched", op].ms_per_batch or inf)
        for (engine, op), stage in stages.items()
        if engine == "audiomentations" and ("batched", op) in stages
    }
    ranked = sorted(gains, key=gains.__getitem__, reverse=True)
    named = [name for name in ranked if name in FILTERS_AND_ROOMS]
    ahead = sum(name in FILTERS_AND_ROOMS for name in ranked[: len(named)])
    holds = "yes" if ahead == len(named) and gains[named[-1]] > 1 else "in part" if gains[named[0]] > 1 else "no"
    lengths = "; ".join(
        f"{significant(c.response_seconds, 2)} s response: {c.worker_ms / c.device_ms:.2f} x"
        for c in (experiment.convolutions[0], experiment.convolutions[-1])
    )
    return _about_gpu(
        experiment,
        "One worker's time over the device's: "
        + ", ".join(f"{name} {gains[name]:.2f} x" for name in ranked)
        + f". Convolution alone: {lengths}.",
        holds,
    )


def _removes_bottleneck(experiment: Experiment) -> Finding:
    point = max(experiment.points, key=lambda point: (point.repeats, -point.width))
    cpu, gpu = point.of("cpu"), point.of("gpu")
    before, after = point.stall(cpu), point.stall(gpu)
    found = (
        f"Chain {plural(point.repeats, 'time')} over, {model_name(point)}: {format_percent(before)} of a step beyond "
        f"the model's own with the chain in the loader ({_spread(cpu)}), {format_percent(after)} with it on the device "
        f"({_spread(gpu)})."
    )
    holds = "yes" if after <= STALLED < before else "in part" if clearly_faster(gpu, cpu) else "no"
    return _about_gpu(experiment, found, holds)


def _depends(experiment: Experiment) -> Finding:
    wins = dict.fromkeys(("in the loader", "split", "on the device"), 0)
    names = {"cpu": "in the loader", "split": "split", "gpu": "on the device"}
    for point in experiment.points:
        wins[names[min(point.candidates, key=measured).placement]] += 1
    found = ", ".join(f"{name} {count}" for name, count in wins.items())
    many = len(experiment.points) > 1
    holds = "not tested" if not many else "yes" if sum(count > 0 for count in wins.values()) > 1 else "no"
    return (f"Fastest at {plural(len(experiment.points), 'point')}: {found}.", holds)


def model_name(point: Point) -> str:
    """Name a model by its size."""
    return f"{significant(point.parameters, 2)} parameters"


def _counts(experiment: Experiment) -> str:
    counts = sorted({candidate.num_workers for point in experiment.points for candidate in point.candidates})
    return f"the best of {' or '.join(map(str, counts))} workers"


def _spread(candidate: Candidate) -> str:
    low, high = candidate.measured_ci_ms or (inf, inf)
    return f"{format_ms(measured(candidate))}, {format_interval(low, high)}"


# Text


def to_text(experiment: Experiment) -> str:
    """Lay the results out in lines."""
    report = experiment.report
    assert report.ceiling is not None
    rows = [f"Cores that training and workers get: {report.host.cores:.1f}", ""]
    rows += ["What each stage costs alone (ms for a batch, 95 % interval)"]
    for stage in report.stages:
        where = f"{stage.where} {stage.engine}".strip()
        rows.append(f"  {stage.name:24} {where:30} {timed(stage.ms_per_batch, stage.ci_ms)}")
    rows += ["", "Training, end to end (ms a step, 95 % interval)"]
    for point in experiment.points:
        rows.append(
            f"  {model_name(point)}, chain {plural(point.repeats, 'time')} over; model alone "
            f"{timed(point.ceiling.step_ms, point.ceiling.ci_ms)}"
        )
        for candidate in point.candidates:
            rows.append(
                f"    {candidate.name:36} measured {timed(candidate.measured_ms, candidate.measured_ci_ms):28} "
                f"predicted {timed(candidate.predicted_ms, candidate.predicted_ci_ms)}"
            )
    rows += ["", "Convolution (ms for a batch)"]
    for c in experiment.convolutions:
        rows.append(
            f"  {c.response_seconds:5.2f} s   worker {timed(c.worker_ms, c.worker_ci_ms):28} "
            f"device {timed(c.device_ms, c.device_ci_ms)}"
        )
    return "\n".join(rows + to_lines(experiment.claims))


# The experiment


def run(size: Size, device: torch.device, say: Say = quiet) -> Experiment:
    """Measure everything."""
    target = make_target(device)
    counts = worker_counts(target)
    found = Experiment(survey(target, size.stage_seconds, counts, say))
    points = []
    for repeats in size.repeats:
        for width in widths(device)[: size.models]:
            say(f"training: width {width}, chain {plural(repeats, 'time')} over")
            points.append(measure_point(target, found.report, width, repeats, counts, size.point_seconds))
    say("convolution")
    responses = convolution(target, size.response_seconds, size.convolution_seconds)
    found = replace(found, points=tuple(points), convolutions=responses)
    return replace(found, claims=claims(found, target.chain))


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Experiment, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
