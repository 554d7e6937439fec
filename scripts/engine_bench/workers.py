"""The worker engines where they belong: in the workers of a ``Loader``, which give batches as fast as they can.

Shapes: B examples, T samples.
"""

import torch

from audioaug import Chain, Loader, Plan
from audioaug.measure import Clock, clock_for, measure_loader, usable_cores
from audioaug.measure.rounds import rounds as while_there_is_time
from audioaug.records import Timing, WorkerEngine
from engine_bench import engines
from engine_bench.records import REFERENCE, Size, WorkerEngines

CPU = torch.device("cpu")
ENGINES: tuple[WorkerEngine, ...] = ("batched", REFERENCE)

BATCHES = 1000
"""Of an epoch: more than are taken."""

DISCARDED, TIMED = 3, 4
"""Batches of each worker in a turn: before anything is timed (two may lie ready), and those that are."""


def worker_engines(chain: Chain, size: Size, seconds: float, rounds: int) -> WorkerEngines:
    """Time batches of both worker engines, on as many workers as there are threads for each, if there are cores.

    Args:
        chain: all of it runs in the workers.
        size: of the batch.
        seconds: about how long to time them.
        rounds: turns that each gets at least. Every turn has workers of its own, and is over when these have ended.
    """
    clips, clock = list(engines.speech(size)[:, 0]), clock_for(CPU)
    workers = max(1, min(size.threads, int(usable_cores())))
    times: dict[WorkerEngine, list[float]] = {engine: [] for engine in ENGINES}
    for _ in while_there_is_time(clock, clock.now() + seconds, at_least=rounds):
        for engine in ENGINES:
            times[engine].append(_turn(clips, chain, engine, workers, clock, seconds / rounds / len(ENGINES)))
    ours, theirs = (Timing(tuple(times[engine])) for engine in ENGINES)
    return WorkerEngines(ours, theirs, workers)


def _turn(
    clips_BT: list[torch.Tensor], chain: Chain, engine: WorkerEngine, workers: int, clock: Clock, seconds: float
) -> float:
    """Return seconds a batch in the steady state."""
    plan = Plan(cut=len(chain), worker_engine=engine, num_workers=workers, persistent_workers=False)
    loader = Loader(clips_BT * BATCHES, chain, plan, batch_size=len(clips_BT), device=CPU)
    discard, block = DISCARDED * workers, TIMED * workers
    rate = measure_loader(loader, clock, seconds=seconds, discard=discard, block_batches=block, at_least=1)
    return rate.per_batch.median
