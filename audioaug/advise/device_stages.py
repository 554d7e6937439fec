"""Device stages: the training step, what comes before it on the device, and the copy to get there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch

from audioaug.advise.bench import Bench
from audioaug.advise.costs import op_stage, part_cost
from audioaug.advise.pieces import device_parts, device_works, step_behind
from audioaug.decide.predict import best_threads, threads_beside
from audioaug.loader.processes import torch_threads
from audioaug.measure import measure_transfer
from audioaug.records import Ceiling, PartCost, Report, StageCost
from audioaug.units import Seconds, plural

Parts = dict[int, Callable[[], torch.Tensor]]
"""What comes behind each cut on the device, the longest first."""


def thread_counts(report: Report, workers: Iterable[int]) -> tuple[int, ...]:
    """Return how many threads training steps get beside so many workers, as far as is known."""
    usual = report.host.torch_threads
    return tuple(sorted({threads_beside(report, count) or usual for count in workers}))


def steps_on_threads(bench: Bench, counts: Iterable[int], seconds: Seconds) -> tuple[StageCost, ...]:
    """Time the training step on each number of threads."""
    step = bench.step()

    def on_threads(count: int) -> None:
        with torch_threads(count):
            step()

    works = {plural(count, "thread"): partial(on_threads, count) for count in sorted(counts, reverse=True)}
    times = bench.interleave(works, seconds)
    return tuple(
        StageCost("step", "model", it.ms, it.ci_ms, engine=name, samples_ms=it.samples_ms) for name, it in times.items()
    )


def ceiling_on_fewer_threads(report: Report) -> Ceiling | None:
    """Return the step on fewer threads than torch has as the ceiling, if it is faster so, as small models' are."""
    usual, best = report.host.torch_threads, best_threads(report)
    step = next(it for it in report.stages if (it.where, it.engine) == ("model", plural(best, "thread")))
    if best == usual or not step.ms_per_batch or not step.ci_ms:
        return None
    rate = report.workload.batch_size / step.ms_per_batch * 1e3
    return Ceiling(step.ms_per_batch, step.ci_ms, rate, best, step.samples_ms)


def parts_to_time(bench: Bench, counts: Sequence[int]) -> dict[int, Parts]:
    """Return what to time on each number of threads: all parts on the middle one, only the longest on the others."""
    parts = device_parts(bench.target, bench.wave)
    longest = dict(list(parts.items())[:1])
    return {count: parts if count == counts[(len(counts) - 1) // 2] else longest for count in counts}


def parts_on_threads(bench: Bench, count: int, parts: Parts, seconds: Seconds) -> tuple[PartCost, ...]:
    """Time these device parts on so many threads, and the longest of them with the step and the copy."""
    works: dict[str, Callable[[], object]] = {str(cut): work for cut, work in parts.items()}
    if parts and not bench.target.pad:  # padded batches would have to tell their new lengths
        behind = step_behind(bench.target, parts[min(parts)], bench.typical)
        works |= {"step": bench.step(), "both": behind}
    with torch_threads(count):
        times = bench.interleave(works, seconds)
    found = [part_cost("device", cut, count, times[str(cut)]) for cut in parts]
    if found and "both" in times:
        found[0] = replace(found[0], step_ms=times["step"].ms, both_ms=times["both"].ms)
    return tuple(found)


def ops_on_device(bench: Bench, threads: int, seconds: Seconds, tick: Callable[..., None]) -> tuple[StageCost, ...]:
    """Time every op alone on that many threads."""
    works = {f"batched {op}": work for op, work in device_works(bench.target, bench.wave).items()}
    with torch_threads(threads):
        times = bench.interleave(works, seconds, tick)
    return tuple(op_stage(bench.target.chain, "device", name, timing) for name, timing in times.items())


def copies(bench: Bench, seconds: Seconds) -> tuple[StageCost, ...]:
    """Time the copy of a batch to the device, from either kind of memory."""
    found = measure_transfer(bench.wave.cpu(), bench.target.device, bench.clock, seconds=seconds)
    return tuple(StageCost(f"copy, {kind}", "transfer", it.ms, it.ci_ms) for kind, it in found.items())


def pinning_wins(report: Report) -> bool | None:
    """Return whether page-locked memory won where copies were measured; ``None`` where they were not."""
    times = {stage.name: stage.ms_per_batch or 0.0 for stage in report.stages if stage.where == "transfer"}
    if "copy, pinned" not in times or "copy, pageable" not in times:
        return None
    return times["copy, pinned"] < times["copy, pageable"]
