"""Pieces: parts of what workers and the device do, made ready to be timed alone."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice, repeat
from typing import Any

import numpy as np
import torch

from audioaug.advise.drawn import drawn
from audioaug.advise.target import Target
from audioaug.build import Preparer, WorkerChain, build_cpu, build_device
from audioaug.core import Chain, Op
from audioaug.train.device_prefetch import run_ahead, to_device
from audioaug.train.examples import get_wave, samples_of, with_wave
from audioaug.train.fetch import Collate, Fetcher

CLIPS = 16
"""Clips that an op is timed on in a worker."""

DRAWS = 8
"""Batches of draws that an op on the device is timed with, in turn."""

MOST_TRIED = 512
"""Examples that are tried to find so many that can be read."""


def worker_works(target: Target) -> dict[str, Callable[[], object]]:
    """Return what a worker does, piece by piece, each for ``CLIPS`` clips: decode, every op always applied, collate."""
    dataset, chain = target.dataset, target.chain
    indices, clips = readable(dataset, chain.sample_rate)
    works: dict[str, Callable[[], object]] = {"decode": lambda: [dataset[index] for index in indices]}
    for place, op in enumerate(chain.ops):
        if not op.why_not_in_worker():
            works[str(place)] = _worker_op(replace(op, p=1.0), clips, chain.sample_rate)
    fetcher = Fetcher(dataset, WorkerChain(chain, target.least_cut, seed=0), on_error="raise")
    collate = Collate(Preparer(chain, target.least_cut), target.collate_fn, target.pad)
    fetched = fetcher.__getitems__([(0, index) for index in indices])
    works["collate"] = lambda: collate(fetched)
    return works


def device_works(target: Target, wave: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return every op that has a device build, each on a batch that is on the device."""
    chain = target.chain
    return {
        str(place): _on_batches(Chain([op], chain.sample_rate), 0, None, wave)
        for place, op in enumerate(chain.ops)
        if not op.why_not_on_device()
    }


def device_parts(target: Target, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return for each cut, from the first on, all of our engine's that comes behind it, as it is built."""
    chain = target.chain
    cuts = range(target.least_cut, min(len(chain), chain.worker_until + 1))
    return {cut: _on_batches(chain, cut, None, wave) for cut in cuts}


def worker_parts(target: Target, wave: torch.Tensor) -> dict[int, Callable[[], torch.Tensor]]:
    """Return for each cut what batched workers do with a batch that lies in main memory, as it is built."""
    chain, first = target.chain, target.least_cut
    cuts = range(first + 1, chain.worker_until + 1)
    return {cut: _on_batches(chain, first, cut, wave) for cut in cuts}


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


def _on_batches(chain: Chain, start: int, stop: int | None, wave: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return the ops from ``start`` to ``stop`` on this batch, wherever it lies, with other draws each time."""
    module = build_device(chain, start, stop=stop)
    shape = tuple(wave.shape) if wave.ndim == 3 else (len(wave), 1, wave.shape[-1])
    prepared = [module.prepare(chain.draw(np.arange(len(wave)) + len(wave) * turn), shape) for turn in range(DRAWS)]
    turns = cycle([each.pin_memory() for each in prepared] if wave.is_cuda else prepared)
    return lambda: module.augment(wave, next(turns))[0]
