"""Arms: a cell of the report as a running Loader, and the pieces of it that are timed alone."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice, repeat
from typing import Any

import numpy as np
import torch

from audioaug.advise.drawn import POOL, drawn
from audioaug.advise.target import Target, in_one_line
from audioaug.build import Preparer, WorkerChain, build_cpu, build_device
from audioaug.build.stock import has_counterpart
from audioaug.core import Chain, Op
from audioaug.errors import AudioaugError, DataError
from audioaug.records import Cell, DeviceEngine, Plan
from audioaug.train import Loader
from audioaug.train.device_prefetch import run_ahead, to_device
from audioaug.train.examples import get_wave, samples_of, with_wave
from audioaug.train.fetch import Collate, Fetcher

CACHED = 8
"""Batches kept on the device to measure the ceiling with."""

CLIPS = 16
"""Clips that an op is timed on in a worker."""

MOST_TRIED = 512
"""Examples that are tried to find so many that can be read."""


class EndlessBatches:
    """Shuffled indices of a dataset in batches, pass after pass without end, so that no epoch's end is timed.

    Of a large dataset they are some that the seed draws: files that are read again and again are warm for all alike.
    """

    def __init__(self, size: int, batch_size: int, seed: int = 0) -> None:
        self.pool, self.batch_size, self.seed = drawn(size, POOL, seed), batch_size, seed

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Iterator[list[int]]:
        draw, stock = random.Random(self.seed), list[int]()
        while True:
            while len(stock) < self.batch_size:
                stock += draw.sample(self.pool, len(self.pool))
            batch, stock = stock[: self.batch_size], stock[self.batch_size :]
            yield batch


def plan_of(cell: Cell, chain_hash: str) -> Plan:
    """Return the plan that runs a cell of that chain."""
    return Plan(
        cut=cell.cut,
        worker_engine=cell.worker_engine,
        device_engine=cell.device_engine,
        num_workers=cell.num_workers,
        prefetch_factor=cell.prefetch_factor,
        pin_memory=cell.pin_memory,
        threads=cell.threads,
        persistent_workers=cell.persistent_workers,
        start_method=cell.start_method,
        chain_hash=chain_hash,
    )


def open_loader(target: Target, cell: Cell) -> Loader:
    """Return the Loader that users would train with under this cell's plan, without end."""
    return Loader(
        target.dataset,
        target.chain,
        plan_of(cell, target.chain.hash),
        batch_sampler=EndlessBatches(len(target.dataset), target.batch_size),
        device=target.device,
        collate_fn=target.collate_fn,
        pad=target.pad,
    )


def stock_of(cell: Cell) -> int:
    """Return how many batches a cell's loader may hold ready: what must be discarded before it is timed."""
    return (cell.prefetch_factor or 2) * cell.num_workers + 2


def cached_batches(target: Target, cell: Cell) -> list[Any]:
    """Return batches that lie on the device; raise ``DataError`` if they cannot be loaded."""
    try:
        feeder = iter(open_loader(target, replace(cell, num_workers=0)))
        return [next(feeder) for _ in range(CACHED)]
    except AudioaugError:
        raise
    except Exception as error:
        reason = in_one_line(error, target.path)
        raise DataError(
            f"{target.name}: a batch cannot be loaded: {reason}", "See `dataset` and `collate_fn`."
        ) from None


def worker_works(target: Target) -> dict[str, Callable[[], object]]:
    """Return what a worker does, piece by piece, each for ``CLIPS`` clips: decode, every op always applied, collate."""
    dataset, chain = target.dataset, target.chain
    indices, clips = readable(dataset, chain.sample_rate)
    works: dict[str, Callable[[], object]] = {"decode": lambda: [dataset[index] for index in indices]}
    for place, op in enumerate(chain.ops):
        if not op.why_not_in_worker():
            works[str(place)] = _worker_op(replace(op, p=1.0), clips, chain.sample_rate)
    fetcher = Fetcher(dataset, WorkerChain(chain, 0, seed=0), on_error="raise")
    collate = Collate(Preparer(chain, chain.device_from), target.collate_fn, target.pad)
    fetched = fetcher.__getitems__([(0, index) for index in indices])
    works["collate"] = lambda: collate(fetched)
    return works


def device_works(target: Target, wave: torch.Tensor, engine: DeviceEngine) -> dict[str, Callable[[], object]]:
    """Return every op that has a build for the engine, each on a batch that lies on the device."""
    works: dict[str, Callable[[], object]] = {}
    for place, op in enumerate(target.chain.ops):
        if op.why_not_on_device() or (engine == "torch-audiomentations" and not has_counterpart(op)):
            continue
        works[str(place)] = _on_batches(Chain([op], target.chain.sample_rate), 0, None, wave, engine)
    return works


def device_parts(target: Target, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return for each cut, from the first on, all of our engine's that comes behind it, as it is built."""
    chain = target.chain
    cuts = range(chain.device_from, min(len(chain), chain.worker_until + 1))
    return {cut: _on_batches(chain, cut, None, wave, "batched") for cut in cuts}


def worker_parts(target: Target, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return for each cut what batched workers do with a batch that lies in main memory, as it is built."""
    chain = target.chain
    cuts = range(chain.device_from + 1, chain.worker_until + 1)
    return {cut: _on_batches(chain, chain.device_from, cut, wave, "batched") for cut in cuts}


def step_behind(target: Target, part: Callable[[], torch.Tensor], batch: Any) -> Callable[[], None]:
    """Return a training step on the batch that the part was made for, with all that a loader does for it on the device.

    The batch is copied there and the part runs, on a side stream where there is one, as the step before it goes on.
    """
    on_host = _in_fast_memory(to_device(batch, torch.device("cpu")), target.device)

    def finish(batch: Any) -> Any:
        return with_wave(to_device(batch, target.device), part())

    feeder = run_ahead(repeat(on_host), target.device, finish)
    return lambda: target.step(next(feeder))


def _in_fast_memory(batch: Any, device: torch.device) -> Any:
    return with_wave(batch, get_wave(batch).pin_memory()) if device.type == "cuda" else batch


def stock_cuts(chain: Chain) -> list[int]:
    """Return the cuts behind which torch-audiomentations has a counterpart for some op."""
    return [cut for cut in range(len(chain)) if any(has_counterpart(op) for op in chain.ops[cut:])]


def readable(dataset: Any, sample_rate: int) -> tuple[list[int], list[Any]]:
    """Return the indices and the audio of ``CLIPS`` drawn examples that can be read, in turn if there are fewer."""
    found: dict[int, Any] = {}
    for index in drawn(len(dataset), MOST_TRIED):
        with suppress(Exception):
            found[index] = samples_of(dataset[index], sample_rate)
        if len(found) == CLIPS:
            break
    indices = list(islice(cycle(found), CLIPS))
    return indices, [found[index] for index in indices]


def _worker_op(op: Op, clips: Sequence[Any], sample_rate: int) -> Callable[[], object]:
    chain = Chain([op], sample_rate)
    worker, draws = build_cpu(chain), list(chain.draw(range(len(clips))))
    return lambda: [worker(clip, draws=draw) for clip, draw in zip(clips, draws, strict=True)]


def _on_batches(
    chain: Chain, start: int, stop: int | None, wave: torch.Tensor, engine: DeviceEngine
) -> Callable[[], torch.Tensor]:
    """Return the ops from ``start`` to ``stop`` on this batch, wherever it lies, with other draws each time."""
    module = build_device(chain, start, engine, stop=stop)
    shape = tuple(wave.shape) if wave.ndim == 3 else (len(wave), 1, wave.shape[-1])
    prepared = [module.prepare(chain.draw(np.arange(len(wave)) + len(wave) * turn), shape) for turn in range(CACHED)]
    turns = cycle(prepared)
    return lambda: module.augment(wave, next(turns))[0]
