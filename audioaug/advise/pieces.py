"""Pieces: parts of what workers and the device do, made ready to be timed alone."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice, repeat
from typing import Any

import numpy as np
import torch

from audioaug.advise.drawn import Reader
from audioaug.advise.target import Target
from audioaug.core import Chain, Op, why_not_in_worker, why_not_on_device
from audioaug.engine import Preparer, WorkerChain, build_cpu, build_device
from audioaug.engine.torch_audiomentations import has_counterpart
from audioaug.loader.device_prefetch import run_ahead, to_device
from audioaug.loader.examples import with_wave
from audioaug.loader.fetch import Collate, Fetcher
from audioaug.loader.targets import Followers
from audioaug.records import DeviceEngine

CLIPS = 16
"""Clips that an op is timed on in a worker."""

DRAWS = 8
"""Batches of draws that an op on the device is timed with, in turn."""

MOST_TRIED = 512
"""Examples that are tried to find so many that can be read."""


def worker_works(target: Target) -> dict[str, Callable[[], object]]:
    """Return what a worker does, piece by piece, each for ``CLIPS`` clips: decode, every op always applied, collate."""
    chain, read = target.chain, Reader(target.dataset)
    examples = readable(read, target.clip_of)
    clips = [target.clip_of(example) for _, example in examples]
    works: dict[str, Callable[[], object]] = {"decode": lambda: [read(number) for number, _ in examples]}
    for place, op in enumerate(chain.ops):
        if not why_not_in_worker(op):
            works[str(place)] = _worker_op(replace(op, p=1.0), clips, chain.sample_rate)
    worker = WorkerChain(chain, target.least_cut, seed=0)
    followers = Followers(target.targets, chain, worker.cut)
    fetcher = Fetcher(dict(examples), worker, "raise", bool(followers), target.lengths, target.audio_key)
    preparer = Preparer(chain, target.least_cut)
    collate = Collate(preparer, target.collate_fn, target.pad, None, followers, target.lengths)
    fetched = fetcher.__getitems__([(0, number) for number, _ in examples])
    works["collate"] = lambda: collate(fetched)
    return works


def device_works(
    target: Target, wave: torch.Tensor, engine: DeviceEngine = "batched"
) -> dict[str, Callable[[], object]]:
    """Return every op that has a build for the engine, each on a batch that is on the device."""
    works: dict[str, Callable[[], object]] = {}
    for place, op in enumerate(target.chain.ops):
        if why_not_on_device(op) or (engine == "torch-audiomentations" and not has_counterpart(op)):
            continue
        works[str(place)] = _on_batches(Chain([op], target.chain.sample_rate), 0, None, wave, engine)
    return works


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
    on_host = to_device(batch, torch.device("cpu"))
    if target.device.type == "cuda":
        on_host = with_wave(on_host, target.wave_of(on_host).pin_memory(), target.audio_key)

    def finish(batch: Any) -> Any:
        return with_wave(to_device(batch, target.device), part(), target.audio_key)

    feeder = run_ahead(repeat(on_host), target.device, finish)
    return lambda: target.step(next(feeder))


def readable(read: Reader, clip_of: Callable[[Any], object]) -> list[tuple[int, Any]]:
    """Return numbers and content of ``CLIPS`` examples that can be read and have a clip, in turn if there are fewer."""
    found: dict[int, Any] = {}
    for number in read.numbers(MOST_TRIED):
        with suppress(Exception):
            example = read(number)
            clip_of(example)
            found[number] = example
        if len(found) == CLIPS:
            break
    return list(islice(cycle(found.items()), CLIPS))


def _worker_op(op: Op, clips: Sequence[Any], sample_rate: int) -> Callable[[], object]:
    chain = Chain([op], sample_rate)
    worker, draws = build_cpu(chain), list(chain.draw(range(len(clips))))
    return lambda: [worker(clip, draws=draw) for clip, draw in zip(clips, draws, strict=True)]


def _on_batches(
    chain: Chain, start: int, stop: int | None, wave: torch.Tensor, engine: DeviceEngine = "batched"
) -> Callable[[], torch.Tensor]:
    """Return the ops from ``start`` to ``stop`` on this batch, wherever it lies, with other draws each time."""
    module = build_device(chain, start, engine, stop=stop)
    shape = tuple(wave.shape) if wave.ndim == 3 else (len(wave), 1, wave.shape[-1])
    prepared = [module.prepare(chain.draw(np.arange(len(wave)) + len(wave) * turn), shape) for turn in range(DRAWS)]
    turns = cycle([each.pin_memory() for each in prepared] if wave.is_cuda else prepared)
    return lambda: module.augment(wave, next(turns))[0]
