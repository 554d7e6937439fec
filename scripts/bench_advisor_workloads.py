"""Real workloads (five models, three chains, short, long and ragged clips, files to decode), and planted faults."""

import gc
import hashlib
import math
import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import soundfile
import torch
from bench_advisor_conditions import CONDITIONS, hogs
from bench_advisor_models import CLASSES, Ecapa, Transformer, Wav2Vec2
from torch import nn
from torch.utils.data import get_worker_info

import audioaug.advise.candidates
from audioaug import Chain, ops
from audioaug.advise.candidates import sample_indices
from audioaug.advise.model_file import load_module
from audioaug.advise.training_job import TrainingJob, UsualLoss
from audioaug.audio.files import find_audio, read_audio
from audioaug.audio.folder import AudioFolder
from audioaug.core import Op
from audioaug.ops.lambda_ import on_device
from audioaug.records import LoaderSetup

# Real workloads

RATE = 16000
ROOT = Path(__file__).resolve().parents[1]
MODELS, DEMO = ROOT / "scripts/models", ROOT / "datasets/demo"
FORMATS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS")}


@dataclass(frozen=True)
class Workload:
    """Something to advise on. ``build`` is a context that yields what is trained; ``answers`` are right first causes.

    ``first``: whether an answer must come first, or be reported at all. ``truth``: whether to judge the advice by
    training. ``workers`` are the counts to consider, ``threads`` torch's in the training process: on two of two cores a
    step of milliseconds takes up to 20 % longer or shorter from second to second, since either core has other work, and
    there is no truth to compare anything with; on one thread it is 3 %. ``condition``: one of ``CONDITIONS``.
    """

    name: str
    build: Callable[[], Any]
    answers: tuple[str, ...] = ()
    first: bool = True
    truth: bool = True
    workers: tuple[int, ...] | None = None
    threads: int = 1
    condition: str = "quiet"


def target(
    model: nn.Module,
    chain: Chain,
    dataset: Any,
    *,
    batch_size: int,
    num_workers: int = 0,
    pad: bool = False,
    step: Callable[[Any, Any, Any], object] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    alive: tuple[str, ...] = (),
) -> TrainingJob:
    """Return what is trained, as if a model file had declared it."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return TrainingJob(
        path="bench.py",
        model=model.train(),
        chain=chain,
        dataset=dataset,
        batch_size=batch_size,
        clip_seconds=(1.0, 1.0),
        device=torch.device("cpu"),
        precision="fp32",
        num_workers=num_workers,
        collate_fn=collate_fn,
        loss=UsualLoss(),
        optimizer=torch.optim.AdamW(parameters, lr=1e-4),
        own_step=step,
        setup=LoaderSetup(pad=pad),
        targets=None,
        data_name=type(dataset).__name__,
        threads=alive,
    )


class Excerpts:
    """Excerpts of real speech, in memory: the example's number draws where, and how long (``seconds``)."""

    def __init__(self, seconds: tuple[float, float], size: int = 1000) -> None:
        paths = find_audio((str(DEMO / "long"),))
        self.speech = np.concatenate([read_audio(path, RATE)[0] for path in paths])
        self.seconds, self.size = seconds, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        draw = np.random.default_rng(index)
        samples = int(draw.uniform(*self.seconds) * RATE)
        start = int(draw.integers(len(self.speech) - samples))
        return torch.from_numpy(self.speech[None, start : start + samples].copy()), index % CLASSES


def chain(name: str) -> Chain:
    """Return a chain: light, speech, or heavy with a codec and another pitch."""
    rooms, noise = str(DEMO / "rooms"), str(DEMO / "noise")
    speech = [
        ops.ApplyImpulseResponse(ir_path=rooms, p=0.5),
        ops.AddBackgroundNoise(sounds_path=noise, p=0.7),
        ops.LowPassFilter(p=0.5),
        ops.Gain(p=0.5),
    ]
    chains = {
        "light": [ops.Gain(p=0.5), ops.PolarityInversion(p=0.5), ops.AddGaussianSNR(p=0.5)],
        "speech": speech,
        "heavy": [ops.Mp3Compression(p=0.3), ops.PitchShift(p=0.5), *speech],
    }
    return Chain(chains[name], RATE)


OWN_MODELS: Mapping[str, Callable[[], nn.Module]] = {"transformer": Transformer, "ecapa": Ecapa, "wav2vec2": Wav2Vec2}
EXCERPTS = {"long": (1.0, 4.0), "3 s": (3.0, 3.0)}
"""Seconds of the excerpts; short clips are the files of the demo speech."""


def _model(name: str) -> nn.Module:
    if name in OWN_MODELS:
        return OWN_MODELS[name]()
    found = load_module(str(MODELS / {"cnn": "keyword_cnn.py", "waveform": "raw_waveform.py"}[name]))
    return found.build_model() if hasattr(found, "build_model") else found.model


@contextmanager
def _real(model: str, chain_name: str, clips: str) -> Iterator[TrainingJob]:
    torch.manual_seed(0)
    short = clips not in EXCERPTS
    dataset = AudioFolder(DEMO / "speech", RATE, 1.0) if short else Excerpts(EXCERPTS[clips])
    batch_size = 16 if model == "ecapa" else 8 if short else 4
    yield target(_model(model), chain(chain_name), dataset, batch_size=batch_size, pad=clips == "long")


@contextmanager
def _decoding(kind: str) -> Iterator[TrainingJob]:
    """Yield files of 5 s at 44.1 kHz in stereo, of which 1 s at 16 kHz is trained on by a small model."""
    container, subtype = FORMATS[kind]
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(48):
            audio = np.cumsum(draw.normal(size=(5 * 44100, 2)), axis=0)
            audio = 0.5 * audio / np.abs(audio).max()
            soundfile.write(f"{folder}/{number}.{kind}", audio, 44100, format=container, subtype=subtype)
        dataset = AudioFolder(folder, RATE, 5.0)
        yield target(_model("cnn"), chain("light"), dataset, batch_size=4)


REAL: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        *(
            Workload(f"{model}, {name} chain, {clips} clips", partial(_real, model, name, clips))
            for name, rows in {
                "light": {"cnn": "short", "waveform": "long", "transformer": "short"},
                "speech": {"cnn": "long", "waveform": "short", "transformer": "long"},
                "heavy": {"cnn": "short", "waveform": "long", "transformer": "short"},
            }.items()
            for model, clips in rows.items()
        ),
        *(Workload(f"cnn, decoding {kind.upper()}", partial(_decoding, kind)) for kind in FORMATS),
        *(
            Workload(f"{model}, speech chain, 3 s clips", partial(_real, model, "speech", "3 s"), threads=2)
            for model in ("ecapa", "wav2vec2")
        ),
    )
}
"""Real workloads by name. Steps of the last two take seconds."""


def under(condition: str, workload: Workload) -> Workload:
    """Return the workload under a condition, which its name then ends with."""
    return replace(workload, name=f"{workload.name}, {condition}", condition=condition)


CONDITIONED = {workload.name: workload for workload in (under(name, it) for name in CONDITIONS for it in REAL.values())}
"""Real workloads under each condition."""

REPEATED = ("cnn, heavy chain", "transformer, speech chain", "wav2vec2")
"""Beginnings of the names of workloads on which several runs are compared."""


# Planted faults

BATCH = 8
SAMPLES = 1600


def spin(ms: float) -> None:
    """Keep a core busy for ``ms`` milliseconds of its own time, which take longer on a shared core."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass


@on_device(lambda x_BCT, sample_rate, ms, device_ms: (spin(device_ms), x_BCT * 1.0)[1])
def busy(samples: Any, sample_rate: int, ms: float, device_ms: float) -> Any:
    """Take ``ms`` for a clip in a worker, ``device_ms`` for a batch on the device."""
    spin(ms)
    return samples


def busy_in_workers(samples: Any, sample_rate: int, ms: float) -> Any:
    """Take ``ms`` for a clip; there is no twin on the device."""
    spin(ms)
    return samples


def both(ms: float, device_ms: float) -> Op:
    """Return an op that takes ``ms`` for a clip in a worker and ``device_ms`` for a batch on the device."""
    return ops.Lambda(transform=busy, kwargs={"ms": ms, "device_ms": device_ms}, p=1.0)


def only_cpu(ms: float) -> Op:
    """Return an op without a device build that takes ``ms`` for a clip."""
    return ops.Lambda(transform=busy_in_workers, kwargs={"ms": ms}, p=1.0)


@dataclass
class Data:
    """Clips in memory; ``work`` is done for each, with its index."""

    work: Callable[[int], object] | None = None
    size: int = 640
    samples: Callable[[int], int] = lambda index: SAMPLES
    held: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.work is not None:
            kept = self.work(index)
            if kept is not None:
                self.held.append(kept)
        return torch.full((1, self.samples(index)), 0.1)


def sleeps(ms: float) -> Callable[..., None]:
    """Return a training step that takes ``ms`` milliseconds and needs no core."""
    return lambda model, batch, optimizer: time.sleep(ms / 1e3)


def sleeps_for_lengths(batch_ms: float) -> Callable[..., None]:
    """Return a training step whose time grows with the width of the batch; ``batch_ms`` for the usual clip."""
    return lambda model, batch, optimizer: time.sleep(batch_ms / 1e3 * batch[0].shape[-1] / SAMPLES)


def loses(ms: float, model: Any, batch: Any, optimizer: Any) -> float:
    """Train without success."""
    time.sleep(ms / 1e3)
    return math.nan


class SleepsOnNewShapes:
    """A training step that takes ``again_ms``, and ``first_ms`` on a shape that it has not seen."""

    def __init__(self, first_ms: float, again_ms: float) -> None:
        self.first_ms, self.again_ms, self.seen = first_ms, again_ms, set[tuple[int, ...]]()

    def __call__(self, model: Any, batch: Any, optimizer: Any) -> None:
        shape = tuple(batch[0].shape)
        time.sleep((self.again_ms if shape in self.seen else self.first_ms) / 1e3)
        self.seen.add(shape)


class SleepsUnsteadily:
    """A training step that takes ``ms`` in one half second and ``times`` as long in the next."""

    def __init__(self, ms: float, times: float) -> None:
        self.ms, self.times = ms, times

    def __call__(self, model: Any, batch: Any, optimizer: Any) -> None:
        slow = int(time.monotonic() / 0.7) % 2
        time.sleep(self.ms * (self.times if slow else 1.0) / 1e3)


class MultipliesOnThreads:
    """A training step on torch's threads."""

    def __init__(self, size: int = 700) -> None:
        self.matrix = torch.rand(size, size)

    def __call__(self, model: Any, batch: Any, optimizer: Any) -> None:
        for _ in range(6):
            self.matrix @ self.matrix


def asks_for_pages(megabytes: int, model: Any, batch: Any, optimizer: Any) -> None:
    """Take memory from the system, page by page, and give it back."""
    with mmap(-1, megabytes << 20) as memory:
        for page in range(0, len(memory), PAGESIZE):
            memory[page] = 1


class HashesOnThreads:
    """A training step on ``count`` threads of its own, each of which keeps a core busy with ``megabytes``."""

    def __init__(self, count: int, megabytes: int) -> None:
        self.data = [bytes(megabytes << 20)] * count
        self.pool = ThreadPoolExecutor(count)

    def __call__(self, model: Any, batch: Any, optimizer: Any) -> None:
        list(self.pool.map(hashlib.sha256, self.data))


# What datasets do


def spins(ms: float, index: int = 0) -> None:
    spin(ms)


def waits(ms: float, index: int) -> None:
    time.sleep(ms / 1e3)


def rarely_slow(ms: float, every: int, index: int) -> None:
    spin(ms if index % every == 0 else 0.3)


def slow_unless(few: frozenset[int], index: int) -> None:
    spin(0.3 if index in few else 3.0)


def collects(index: int) -> None:
    """Collect garbage now and then: what torch and its like have imported is much to look through."""
    if index % BATCH == 0:
        gc.collect()


def keeps(size: int, index: int) -> bytes:
    return os.urandom(1) * size


def crowded(ms: float, index: int) -> None:
    """Cost more with each worker more, as caches and disks that they take from each other do."""
    worker = get_worker_info()
    spin(ms * (worker.num_workers if worker else 1) ** 2)


class OpensLazily:
    """Opening takes long, in each process once."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.opened_by = seconds, os.getpid()

    def __call__(self, index: int) -> None:
        if self.opened_by != os.getpid():
            time.sleep(self.seconds)
            self.opened_by = os.getpid()


def lengths(index: int) -> int:
    """A few long clips among short ones."""
    return SAMPLES // 2 if index % 5 else 4 * SAMPLES


def any_length(index: int) -> int:
    return SAMPLES + 7 * (index * 7919 % 641)


def large_clips(index: int) -> int:
    return 500_000


def slow_collate(ms: float, examples: list[torch.Tensor]) -> torch.Tensor:
    spin(ms)
    return torch.stack(examples)


# What the machine does meanwhile


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Allow only ``more`` more open files than there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def little_shared_memory(size: int) -> Iterator[None]:
    """Report only ``size`` bytes as free in ``/dev/shm``: an injected fact (tests mount a small one for real)."""
    with mock.patch.object(audioaug.advise.candidates, "free_shared_memory", lambda: size):
        yield


@contextmanager
def spawned() -> Iterator[None]:
    """Start workers by spawn."""
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


@contextmanager
def quota(cores: float) -> Iterator[None]:
    """Put this process under a CPU quota, where control groups (version 1) may be changed."""
    top = Path("/sys/fs/cgroup/cpu")
    group = top / f"audioaug-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (top / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


@contextmanager
def a_thread_alive() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="planted-prefetcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def planted(
    chain: list[Op], step: Callable[..., object], data: Callable[[], Any] = Data, meanwhile: Any = None, **more: Any
) -> Iterator[TrainingJob]:
    """Yield a pipeline of these parts; ``meanwhile`` is what the machine does while it is looked at."""
    with ExitStack() as stack:
        if meanwhile is not None:
            stack.enter_context(meanwhile())
        dataset = data()
        yield target(
            nn.Linear(1, 1), Chain(chain, 16000), dataset, batch_size=more.pop("batch_size", BATCH), step=step, **more
        )


def fault(
    name: str,
    answer: str | tuple[str, ...],
    chain: list[Op],
    step: Callable[..., object],
    *,
    first: bool = True,
    workers: tuple[int, ...] = (0, 1, 2),
    threads: int = 1,
    **more: Any,
) -> Workload:
    """Return a workload with a known answer."""
    answers = (answer,) if isinstance(answer, str) else answer
    build = partial(planted, chain, step, **more)
    return Workload(f"planted: {name}", build, answers, first, truth=False, workers=workers, threads=threads)


FREE = [both(0.02, 0.02)]
"""A chain that costs next to nothing."""

ANY_LENGTH = partial(Data, samples=any_length)
FEW = frozenset(sample_indices(640, 16))
"""The probe."""

FAULTS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        fault("a slow model", "model_bound", FREE, sleeps(120), batch_size=2),
        fault("a slow op with a fast twin", "augment_cpu_bound", [both(3, 2)], sleeps(8)),
        fault("a slow op among others", "augment_cpu_bound", [both(0.3, 1), both(3, 2), both(0.2, 1)], sleeps(8)),
        fault("one worker, too few", "too_few_workers", [only_cpu(2)], sleeps(10), num_workers=1, workers=(1, 2)),
        fault("no worker, too few", "too_few_workers", [only_cpu(2)], sleeps(18), workers=(0, 1, 2)),
        fault("a slow op without a twin", "cpu_only_transform", [only_cpu(6)], sleeps(8), num_workers=2),
        fault(
            "a twin after an op without one",
            "order_blocks_split",
            [both(6, 1), only_cpu(0.1)],
            sleeps(8),
            num_workers=2,
        ),
        fault("slow decoding", "decode_bound", FREE, sleeps(8), data=partial(Data, partial(spins, 5)), num_workers=2),
        fault("slow storage", "fetch_bound", FREE, sleeps(8), data=partial(Data, partial(waits, 10))),
        fault(
            "slow storage, workers",
            "fetch_bound",
            FREE,
            sleeps(8),
            data=partial(Data, partial(waits, 20)),
            num_workers=2,
        ),
        fault(
            "large batches",
            "transport_bound",
            [only_cpu(0.02)],
            sleeps(4),
            data=partial(Data, samples=large_clips),
            num_workers=2,
        ),
        fault(
            "a slow collate_fn", "transport_bound", FREE, sleeps(8), collate_fn=partial(slow_collate, 30), num_workers=2
        ),
        fault(
            "work in the training process",
            "main_thread_bound",
            [ops.Mix(p=1.0), both(0.1, 25)],
            sleeps(8),
            num_workers=1,
            workers=(1, 2),
        ),
        fault(
            "workers that take the model's core",
            "sandbagged_wait",
            [only_cpu(1.6)],
            HashesOnThreads(2, 32),
            num_workers=2,
            workers=(2,),
        ),
        fault(
            "workers and threads",
            ("thread_oversubscription", "sandbagged_wait"),
            [only_cpu(2)],
            MultipliesOnThreads(),
            num_workers=2,
            workers=(2,),
            threads=2,
        ),
        fault(
            "workers in each other's way",
            "too_many_workers",
            [only_cpu(0.02)],
            sleeps(8),
            data=partial(Data, partial(crowded, 0.4)),
            num_workers=6,
            workers=(2, 6),
        ),
        fault(
            "a few slow files",
            "slow_sample_tail",
            FREE,
            sleeps(8),
            data=partial(Data, partial(rarely_slow, 60, 10)),
            num_workers=2,
        ),
        fault(
            "long clips among short ones",
            "padding_waste",
            FREE,
            sleeps_for_lengths(25),
            data=partial(Data, samples=lengths),
            batch_size=4,
            pad=True,
        ),
        fault("ever new shapes", "shape_churn", FREE, SleepsOnNewShapes(50, 8), data=ANY_LENGTH, pad=True),
        fault("gc.collect() in the dataset", "gc_stalls", FREE, sleeps(8), data=partial(Data, collects)),
        fault(
            "a slow start",
            "slow_start",
            FREE,
            sleeps(30),
            data=lambda: Data(OpensLazily(1.5), 64),
            num_workers=1,
            workers=(0, 1),
        ),
        fault(
            "a dataset that does not pickle",
            "not_picklable",
            [only_cpu(2)],
            sleeps(8),
            data=lambda: Data(lambda index: spin(1)),
            num_workers=2,
            meanwhile=spawned,
        ),
        fault(
            "little shared memory",
            "shm_too_small",
            [only_cpu(2)],
            sleeps(8),
            num_workers=2,
            meanwhile=partial(little_shared_memory, 100_000),
        ),
        fault("few open files", "fd_limit", [only_cpu(2)], sleeps(8), num_workers=2, meanwhile=partial(few_files, 28)),
        fault(
            "a dataset that keeps what it reads",
            "cow_memory_growth",
            FREE,
            sleeps(8),
            data=partial(Data, partial(keeps, 200_000), 10_000_000),
            num_workers=1,
            workers=(0, 1),
        ),
        fault(
            "a CPU quota", "quota_throttled", [only_cpu(2)], sleeps(8), meanwhile=partial(quota, 0.4), workers=(0, 1)
        ),
        fault("other programs", "foreign_load", [only_cpu(4)], sleeps(8), num_workers=2, meanwhile=partial(hogs, 3)),
        fault(
            "a step that varies", "too_noisy", FREE, SleepsUnsteadily(24, 6), data=partial(Data, partial(spins, 0.1))
        ),
        fault(
            "threads before the fork",
            "fork_unsafe",
            FREE,
            sleeps(8),
            first=False,
            meanwhile=a_thread_alive,
            alive=("planted-prefetcher",),
        ),
        fault(
            "examples unlike the probe",
            "probe_unrepresentative",
            FREE,
            sleeps(8),
            first=False,
            data=partial(Data, partial(slow_unless, FEW)),
        ),
        fault("a loss that is NaN", "nan_loss", FREE, partial(loses, 8), first=False),
        fault("memory handed back", "page_faults", FREE, partial(asks_for_pages, 32), first=False),
        fault(
            "short epochs",
            "epoch_gap",
            FREE,
            sleeps(40),
            first=False,
            data=partial(Data, partial(spins, 3), 16),
            num_workers=1,
            workers=(0, 1),
        ),
        fault("nothing to prefetch", "prefetch_useless", [only_cpu(6)], sleeps(8), first=False, num_workers=2),
        fault(
            "little to save",
            "advice_costs_more_than_it_saves",
            [both(2, 2)],
            sleeps(8),
            first=False,
            data=partial(Data, None, 16),
        ),
    )
}
"""Faults by name: pipelines, each with its right answer."""
