"""Variants (``--also bf16,batch_size=64,cuda_graph,spawn``): the step with one setting changed."""

import math
import multiprocessing
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch

from audioaug.advise.candidates import candidate_at, open_loader, why_unpicklable
from audioaug.advise.racing import Racer
from audioaug.advise.stages import Bench
from audioaug.advise.today import start_and_gap
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.decide.recommend import NEVER_RECOMMENDED
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import UsageError, did_you_mean, in_one_line
from audioaug.records import GRAPH_ENGINES, Candidate, DeviceEngine, Precision, Report, Timing, Variant
from audioaug.units import Seconds

PRECISIONS: tuple[Precision, ...] = typing.get_args(Precision)
ENGINES: tuple[DeviceEngine, ...] = (*GRAPH_ENGINES, *NEVER_RECOMMENDED)
StartMethod = Literal["fork", "spawn", "forkserver"]
METHODS: tuple[StartMethod, ...] = typing.get_args(StartMethod)

BATCHES = 2
"""Batches that are loaded with another batch size."""

NOW = "now"


@dataclass(frozen=True)
class VariantRequest:
    """A requested variant: another precision, batch size, device engine, or start method."""

    name: str
    precision: Precision | None = None
    batch_size: int | None = None
    engine: DeviceEngine | None = None
    start_method: StartMethod | None = None


def parse_also(text: str) -> tuple[VariantRequest, ...]:
    """Parse ``bf16,batch_size=64,cuda_graph``; raise ``UsageError`` for unknown or unavailable variants."""
    return tuple(_parse_one(part) for part in filter(None, (part.strip() for part in text.split(","))))


def measure_also(bench: Bench, requests: Sequence[VariantRequest], seconds: Seconds) -> tuple[Variant, ...]:
    """Time the training step on cached batches, as it is and with each requested variant."""
    job = bench.job
    works: dict[str, Callable[[], object]] = {NOW: bench.step()}
    failed = dict[str, str]()
    for one in requests:
        try:
            works[one.name] = _step(bench, one)
            works[one.name]()
        except Exception as error:
            works.pop(one.name, None)
            failed[one.name] = in_one_line(error)
    times = bench.interleave(works, seconds)
    return tuple(_variant(one, job.batch_size, times, failed.get(one.name, "")) for one in requests)


def raced_engines(
    report: Report, device: torch.device, engines: Sequence[DeviceEngine], failed: Mapping[str, str]
) -> tuple[Variant, ...]:
    """Return the race results of these device engines, each compared with the same plan and plain batched ops."""
    return tuple(_raced_engine(report, engine, why_no_graph(engine, device), failed) for engine in engines)


def why_no_graph(engine: DeviceEngine, device: torch.device) -> str:
    """Return why an engine cannot capture graphs on a device; an empty string if it can."""
    return "CUDA graphs need an NVIDIA GPU." if engine == "cuda_graph" and device.type != "cuda" else ""


def _raced_engine(report: Report, engine: DeviceEngine, reason: str, failed: Mapping[str, str]) -> Variant:
    size = report.workload.batch_size
    raced = {candidate.name: candidate for candidate in report.candidates if candidate.status == "raced"}
    known = Variant(f"device_engine={engine!r}", size, 0.0, size, changes_training=False)
    twin = next((candidate for candidate in raced.values() if candidate.device_engine == engine), None)
    ours = raced.get(replace(twin, device_engine="batched").name) if twin else None
    if twin is None or ours is None or ours.measured_ms is None:
        why = (reason for name, reason in failed.items() if f"({engine})" in name)
        return replace(known, reason=reason or next(why, "no candidate with our ops on the device was raced."))
    return replace(known, now_ms=ours.measured_ms, step_ms=twin.measured_ms, ci_ms=twin.measured_ci_ms)


def _parse_one(part: str) -> VariantRequest:
    name, _, value = part.partition("=")
    for precision in PRECISIONS:
        if part == precision:
            return VariantRequest(part, precision=precision)
    for engine in ENGINES:
        if part == engine:
            if engine in NEVER_RECOMMENDED and (reason := why_unavailable()):
                raise UsageError(f"--also {engine}: {reason}", "Install it and torchaudio, or leave it out.")
            return VariantRequest(f"device_engine={engine!r}", engine=engine)
    for method in METHODS:
        if part == method:
            return VariantRequest(f"workers by {part}", start_method=method)
    if name != "batch_size":
        raise UsageError(
            f"Unknown --also {part!r}.", did_you_mean(name, (*PRECISIONS, *ENGINES, *METHODS, "batch_size"))
        )
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--also {part}: batch_size must be an integer of at least 1.")
    return VariantRequest(f"batch size {value}", batch_size=int(value))


def _step(bench: Bench, request: VariantRequest) -> Callable[[], object]:
    job = bench.job
    if request.precision is not None:
        if job.own_step is not None:
            raise UsageError("`train_step` sets the precision itself.", "Change it there.")
        return replace(bench, job=replace(job, precision=request.precision)).step()
    other = replace(job, batch_size=request.batch_size or job.batch_size)
    feeder = iter(open_loader(other, candidate_at(job.chain, job.chain.worker_until, workers=0)))
    return Bench(other, bench.clock, list(islice(feeder, BATCHES))).step()


def _variant(request: VariantRequest, batch_size: int, times: dict[str, Timing], reason: str) -> Variant:
    size = request.batch_size or batch_size
    found = times.get(request.name)
    known = Variant(request.name, size, times[NOW].ms, batch_size, reason=reason)
    return known if found is None else replace(known, step_ms=found.ms, ci_ms=found.ci_ms)


def race_starts(
    racer: Racer,
    candidate: Candidate,
    usual: str,
    methods: Sequence[StartMethod],
    seconds: Seconds,
    tick: Callable[..., None],
) -> tuple[Variant, ...]:
    """Race a measured plan with each start method; ``usual`` is Python's default."""
    assert candidate.measured_ms is not None
    size, now_ms = racer.job.batch_size, candidate.measured_ms
    reasons = {method: _why_not(racer.job, candidate, usual, method) for method in methods}
    twins = {method: replace(candidate, start_method=method) for method in methods if not reasons[method]}
    found = _race(racer, [candidate, *twins.values()], now_ms / 1e3, seconds, tick) if twins else {}

    def variant(method: StartMethod) -> Variant:
        known = Variant(f"workers by {method}", size, now_ms, size, reason=reasons[method], changes_training=False)
        if method not in twins:
            return known
        name = twins[method].name
        if name not in found:
            return replace(known, reason=racer.failed.get(name) or racer.failed[candidate.name])
        ratio, start_seconds = found[name]
        if not math.isfinite(ratio.high):
            return replace(known, reason="there was time for one round only. A larger --budget measures more.")
        return replace(
            known,
            step_ms=now_ms * ratio.value,
            ci_ms=(now_ms * ratio.low, now_ms * ratio.high),
            start_seconds=start_seconds,
            now_start_seconds=found[candidate.name][1],
        )

    return tuple(variant(method) for method in methods)


def _race(
    racer: Racer, candidates: Sequence[Candidate], expected: Seconds, seconds: Seconds, tick: Callable[..., None]
) -> dict[str, tuple[Ratio, Seconds]]:
    """Return each candidate's ratio to the first and its seconds to the first batch; empty if the first failed."""
    found = racer.run(candidates, {candidate.name: expected for candidate in candidates}, seconds, tick)
    ran = [candidate for candidate in candidates if candidate.name in found] if candidates[0].name in found else []
    return {
        candidate.name: (
            paired_ratio(found[candidate.name], found[candidates[0].name]),
            start_and_gap(racer.job, candidate, racer.clock)[0],
        )
        for candidate in ran
    }


def _why_not(job: TrainingJob, candidate: Candidate, usual: str, method: StartMethod) -> str:
    if not candidate.num_workers:
        return "the plan has no workers."
    if method == (candidate.start_method or usual):
        return "it is the default."
    if method not in multiprocessing.get_all_start_methods():
        return "not available on this system."
    unpicklable = "" if method == "fork" else why_unpicklable(job, method)
    return f"{unpicklable}." if unpicklable else ""
