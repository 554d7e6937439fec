"""Convolution on both sides, over the length of the impulse response."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from audioaug import Chain, ops
from audioaug.advise.arms import cached_batches
from audioaug.advise.pieces import CLIPS, device_works, worker_works
from audioaug.advise.target import Target
from audioaug.loader.examples import get_wave
from audioaug.measure import clock_for, interleave
from audioaug.records import Cell
from experiments.placement.records import Convolution
from experiments.placement.stages import on_one_thread


def convolution(target: Target, response_seconds: Sequence[float], seconds: float) -> tuple[Convolution, ...]:
    """Time ApplyImpulseResponse on both sides for decaying noise of each length."""
    wave = get_wave(cached_batches(target, Cell("gpu", target.chain.device_from))[0])
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
