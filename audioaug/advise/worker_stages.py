"""Worker stages: what one worker does for a batch, piece by piece."""

from collections.abc import Callable

from audioaug.advise.bench import Bench
from audioaug.advise.costs import op_stage, part_cost, worker_stage
from audioaug.advise.pieces import device_works, worker_parts, worker_works
from audioaug.loader.processes import torch_threads
from audioaug.records import PartCost, StageCost
from audioaug.units import Seconds


def worker_stages(
    bench: Bench, seconds: Seconds, tick: Callable[..., None]
) -> tuple[tuple[StageCost, ...], tuple[PartCost, ...]]:
    """Time decoding, collating and every op, with either engine; then all up to each cut as batched workers run it.

    On one thread, as in a worker.
    """
    target, wave = bench.target, bench.wave.cpu()
    on_clips = worker_works(target)
    on_batches = {
        f"batched {op}": work
        for op, work in device_works(target, wave).items()
        if target.least_cut <= int(op) < target.chain.worker_until
    }
    parts = {f"until {cut}": work for cut, work in worker_parts(target, wave).items()}
    with torch_threads(1):
        times = bench.interleave(on_clips | on_batches | parts, seconds, tick)
    stages = [worker_stage(target, name, times[name]) for name in on_clips]
    stages += [op_stage(target.chain, "worker", name, times[name]) for name in on_batches]
    built = [part_cost("worker", int(name.split()[1]), 1, times[name]) for name in parts]
    return tuple(stages), tuple(built)
