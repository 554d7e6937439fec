"""What stages cost alone: the model's own step, every op on both sides, loaders at both ends of the chain."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from audioaug import Chain
from audioaug.advise.arms import cached_batches, open_loader, stock_of
from audioaug.advise.pieces import CLIPS, device_works, worker_works
from audioaug.advise.progress import Progress
from audioaug.advise.survey import Options, Survey
from audioaug.advise.target import Target
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.loader.examples import get_wave
from audioaug.loader.processes import torch_threads
from audioaug.measure import clock_for, interleave, measure_steps, race
from audioaug.records import Ceiling, DeviceEngine, LoaderCost, Report, StageCost, Timing, Where
from experiments.command import Say, quiet
from experiments.placement.target import cell_at


def survey(target: Target, seconds: float, workers: Sequence[int], say: Say = quiet) -> Report:
    """Measure the model's own step, every op on both sides, and loaders alone at both ends of the chain."""
    report = Survey(target, Options(seconds), Progress(quiet=True), lambda _: None).report
    clock = clock_for(target.device)
    batches = cached_batches(target, cell_at(report, len(target.chain), 0))
    say("the model's own step")
    step = measure_steps(target.step, batches, clock, seconds=0.1 * seconds, block_steps=3)
    ceiling = Ceiling(step.ms, step.ci_ms, target.batch_size / step.median)
    say("every op on both sides")
    stages = _stages(target, get_wave(batches[0]), 0.5 * seconds)
    report = replace(report, ceiling=ceiling, stages=stages)
    say("loaders alone")
    costs = _loader_costs(target, report, workers, 0.4 * seconds)
    return replace(report, loader_costs=costs, complete=True)


def _stages(target: Target, wave: torch.Tensor, seconds: float) -> tuple[StageCost, ...]:
    """Time all stages in turn, so that drift falls on all alike: ms for a batch, ops as often as they are applied."""
    works: dict[tuple[Where, str, str], Callable[[], object]] = {}
    for name, work in worker_works(target).items():
        works["worker", "audiomentations" if name.isdigit() else "", name] = partial(on_one_thread, work)
    engines: list[DeviceEngine] = ["batched"] if why_unavailable() else ["batched", "torch-audiomentations"]
    for engine in engines:
        for name, work in device_works(target, wave, engine).items():
            works["device", engine, name] = work
    times = interleave({"|".join(key): work for key, work in works.items()}, clock_for(target.device), seconds=seconds)
    return tuple(_stage(target, key, times["|".join(key)]) for key in works)


def _stage(target: Target, key: tuple[Where, str, str], timing: Timing) -> StageCost:
    where, engine, name = key
    op = int(name) if name.isdigit() else None
    factor = 1.0
    if where == "worker":  # was timed for CLIPS clips, always applied
        factor = target.batch_size / CLIPS * (1.0 if op is None else target.chain.ops[op].p)
    low, high = timing.ci_ms
    label = name if op is None else target.chain.ops[op].name
    return StageCost(label, where, timing.ms * factor, (low * factor, high * factor), op, engine)


def _loader_costs(target: Target, report: Report, workers: Sequence[int], seconds: float) -> tuple[LoaderCost, ...]:
    """Let loaders take turns at delivering, with the whole chain in them or as little of it as can be.

    What would run on the device is left out: its time is that of the device's stages.
    """
    ends = {(cut, count): cell_at(report, cut, count) for cut in _ends(report) for count in workers}
    feeders = {}
    for (cut, _), cell in ends.items():
        part = replace(target, chain=Chain(target.chain.ops[:cut], target.chain.sample_rate))
        feeders[cell.name] = iter(open_loader(part, cell))
        next(feeders[cell.name])
    result = race(
        feeders,
        lambda batch: None,
        clock_for(target.device),
        block_steps=2 * max(1, *workers),
        discard={cell.name: stock_of(cell) for cell in ends.values()},
        rounds=100,
        seconds=seconds,
        at_least_rounds=5,
    )
    times = {key: result.measurements[cell.name].step for key, cell in ends.items()}
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
