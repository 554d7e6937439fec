"""One chain as a callable on one batch, by each library.

Shapes: B examples, C channels, T samples.
"""

import itertools
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle, groupby
from pathlib import Path

import numpy as np
import torch
from bench_engine_records import REFERENCE, OpCost, Size, WorkerEngines, Wrapper

from audioaug import Chain, Loader, Plan, build_device, ops
from audioaug.audio.files import find_audio, read_audio
from audioaug.core import (
    FRACTION,
    REGISTRY,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    why_not_on_device,
)
from audioaug.dsp.dispatch import map_chunks
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import UsageError, did_you_mean
from audioaug.measure import Clock, clock_for, interleave, measure_loader, repeat, usable_cores
from audioaug.measure.repeat import rounds as while_there_is_time
from audioaug.ops._torch_reference import transform_class
from audioaug.records import DeviceEngine, Timing, WorkerEngine
from audioaug.units import Seconds
from audioaug.verify.material import demo_arguments, folder_at

Work = Callable[[], object]

ROOT = Path(__file__).resolve().parents[1]
CHAINS = ROOT / "scripts/chains"
LONG = str(ROOT / "datasets/demo/long")
CHANNELS = {"ShuffleChannels": 2}
"""Ops that do nothing to mono: they get half as many clips of two channels."""

DECLARED = {"Speed": {"rates": (0.9, 1.0, 1.1)}, "LogMel": {"n_fft": 400, "hop_length": 160, "n_mels": 80}}
"""Arguments that are not the default: torchaudio needs a filter for each rate, so that it cannot have any rate; and the
features of speech recognition."""

IMAGE_SOURCES = "RoomSimulator without ray tracing"
"""RoomSimulator as it runs on the device."""

SNR_DB = {"min_snr_in_db": "min_snr_db", "max_snr_in_db": "max_snr_db"}
BAND = {"min_center_frequency": "min_center_freq", "max_center_frequency": "max_center_freq"} | {
    name: name for name in ("min_bandwidth_fraction", "max_bandwidth_fraction")
}
CUTOFF = {name: name for name in ("min_cutoff_freq", "max_cutoff_freq")}
COUNTERPARTS: dict[str, tuple[str, dict[str, str]]] = {
    "AddBackgroundNoise": ("AddBackgroundNoise", SNR_DB),
    "AddColorNoise": ("AddColoredNoise", SNR_DB),
    "AddGaussianSNR": ("AddColoredNoise", SNR_DB),
    "ApplyImpulseResponse": ("ApplyImpulseResponse", {}),
    "BandPassFilter": ("BandPassFilter", BAND),
    "BandStopFilter": ("BandStopFilter", BAND),
    "Gain": ("Gain", {"min_gain_in_db": "min_gain_db", "max_gain_in_db": "max_gain_db"}),
    "HighPassFilter": ("HighPassFilter", CUTOFF),
    "Identity": ("Identity", {}),
    "LowPassFilter": ("LowPassFilter", CUTOFF),
    "Mix": ("Mix", {}),
    "Normalize": ("PeakNormalization", {"apply_to": "apply_to"}),
    "Padding": ("Padding", {"min_fraction": "min_fraction", "max_fraction": "max_fraction"}),
    "PitchShift": (
        "PitchShift",
        {"min_transpose_semitones": "min_semitones", "max_transpose_semitones": "max_semitones"},
    ),
    "PolarityInversion": ("PolarityInversion", {}),
    "Reverse": ("TimeInversion", {}),
    "Shift": ("Shift", {"min_shift": "min_shift", "max_shift": "max_shift", "rollover": "rollover"}),
    "ShuffleChannels": ("ShuffleChannels", {}),
    "SpliceOut": ("SpliceOut", {"num_time_intervals": "num_time_intervals", "max_width": "max_width"}),
}
"""torch-audiomentations' transform in an op's place, and which of our arguments each of its own is."""

GRAPH_BATCHES = 100
"""Batches that an engine with a graph gets before it is timed, and that it is timed with."""

CLIPS_OF = {"AddBackgroundNoise": ("background_paths", "sounds_path"), "ApplyImpulseResponse": ("ir_paths", "ir_path")}
WHITE = {"min_f_decay": -1e-6, "max_f_decay": 1e-6}


# What is measured


def declared_ops(names: list[str], sample_rate: int) -> dict[str, Op]:
    """Return the ops of these names (all of them, if none is named), always applied; RoomSimulator in both modes."""
    for name in names:
        if name not in REGISTRY:
            raise UsageError(f"There is no op {name!r}.", did_you_mean(name, REGISTRY))
    kinds = {name: REGISTRY[name] for name in names or sorted(REGISTRY)}
    declared = {
        name: kind(**{**demo_arguments(kind, sample_rate), **DECLARED.get(name, {}), "p": 1.0})
        for name, kind in kinds.items()
    }
    if "RoomSimulator" in declared:
        declared[IMAGE_SOURCES] = ops.RoomSimulator(use_ray_tracing=False, max_order=3, p=1.0)
    return declared


def declared_chains(sample_rate: int) -> dict[str, Chain]:
    """Return the three chains, with the demo's noise and rooms at that rate."""
    found = {}
    for name in ("light", "speech", "music"):
        declared = Chain.from_yaml(CHAINS / f"{name}.yaml").ops
        found[name] = Chain([_with_files(op, sample_rate) for op in declared], sample_rate)
    return found


def _with_files(op: Op, sample_rate: int) -> Op:
    if isinstance(op, ops.AddBackgroundNoise):
        return replace(op, sounds_path=folder_at("noise", sample_rate))
    return replace(op, ir_path=folder_at("rooms", sample_rate)) if isinstance(op, ops.ApplyImpulseResponse) else op


def speech(size: Size, channels: int = 1) -> torch.Tensor:
    """Return a batch of real speech, (B, C, T): excerpts from all over the demo's long recordings."""
    paths = find_audio((LONG,))
    recording = np.concatenate([read_audio(path, size.sample_rate)[0] for path in paths])
    rows = size.batch // channels * channels
    starts = np.linspace(0, len(recording), rows, endpoint=False).astype(np.int64)
    x_NT = recording[(starts[:, None] + np.arange(size.samples)) % len(recording)]
    return torch.from_numpy(x_NT).reshape(rows // channels, channels, size.samples)


# Who does it


def ours(chain: Chain, x_BCT: torch.Tensor) -> Work:
    """Return our engine as a module that draws for itself."""
    module = build_device(chain, seed=0)
    return lambda: module(x_BCT)


def device_part(chain: Chain, x_BCT: torch.Tensor) -> Work:
    """Return the part of it that is left when a DataLoader worker has drawn and prepared."""
    module = build_device(chain, seed=0)
    prepared = module.prepare(chain.draw(np.arange(len(x_BCT))), tuple(x_BCT.shape))
    prepared = prepared.pin_memory() if x_BCT.is_cuda else prepared
    return lambda: module.augment(x_BCT, prepared)


def recorded(chain: Chain, x_BCT: torch.Tensor, engine: DeviceEngine) -> tuple[Work, float]:
    """Return the same by an engine with a graph, each time with other draws, and the share of these that it replays.

    It has met as many batches before, as in training.
    """
    module, batch = build_device(chain, engine=engine, seed=0), len(x_BCT)
    batches = [
        module.prepare(chain.draw(np.arange(batch) + batch * turn), tuple(x_BCT.shape))
        for turn in range(2 * GRAPH_BATCHES)
    ]
    batches = [prepared.pin_memory() if x_BCT.is_cuda else prepared for prepared in batches]
    for prepared in batches[:GRAPH_BATCHES]:
        module.augment(x_BCT, prepared)
    replayed = sum(module.has_graph(x_BCT, prepared) for prepared in batches[GRAPH_BATCHES:]) / GRAPH_BATCHES
    turns = itertools.cycle(batches[GRAPH_BATCHES:])
    return lambda: module.augment(x_BCT, next(turns)), replayed


def library_our_draws(chain: Chain, x_BCT: torch.Tensor) -> Work:
    """Return torch-audiomentations fed with our draws, our own ops where it has none."""
    module = build_device(chain, engine="torch-audiomentations", seed=0)
    return lambda: module(x_BCT)


def native(chain: Chain, x_BCT: torch.Tensor) -> Work:
    """Return torch-audiomentations as its users use it, our own ops where it has none."""
    torch.manual_seed(0)
    random.seed(0)
    steps = [_native_step(op, chain.sample_rate, x_BCT.device) for op in chain.ops]

    def run() -> torch.Tensor:
        y_BCT = x_BCT
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in steps:
                y_BCT = step(y_BCT)
        return y_BCT

    return run


def _native_step(op: Op, sample_rate: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    if op.name not in COUNTERPARTS:
        return build_device(Chain([op], sample_rate), seed=0)
    name, names = COUNTERPARTS[op.name]
    arguments = {theirs: getattr(op, our) for theirs, our in names.items()}
    clips, folder = CLIPS_OF.get(op.name, ("", ""))
    if clips:
        arguments[clips] = ["never-read.wav"]
    if op.name == "AddGaussianSNR":
        arguments |= WHITE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transform = transform_class(name)(
            **arguments, p=1.0, mode="per_example", sample_rate=sample_rate, output_type="dict"
        )
    if clips:  # it cannot read files any more, but takes clips in memory
        setattr(transform, clips, _in_memory(getattr(op, folder), sample_rate, device))
    return lambda x_BCT: transform(x_BCT, sample_rate).samples


def by_torchaudio(chain: Chain, x_BCT: torch.Tensor) -> Work | None:
    """Return a chain of one op by torchaudio; ``None`` where it has no counterpart that is compared here."""
    op = chain.ops[0]
    if len(chain) > 1 or why_unavailable():
        return None
    if isinstance(op, ops.Speed) and op.rates is not None:
        return _sped_up(chain, x_BCT, op.rates)
    return _log_mel(chain, x_BCT, op) if isinstance(op, ops.LogMel) else None


def _log_mel(chain: Chain, x_BCT: torch.Tensor, op: ops.LogMel) -> Work:
    from torchaudio.transforms import AmplitudeToDB, MelSpectrogram

    spectrogram = MelSpectrogram(
        chain.sample_rate,
        op.n_fft,
        op.win_length,
        op.hop_length,
        n_mels=op.n_mels,
        norm="slaney",
        mel_scale="slaney",
        pad_mode="constant",
    ).to(x_BCT.device)
    to_db = AmplitudeToDB()
    return lambda: to_db(spectrogram(x_BCT))


def _sped_up(chain: Chain, x_BCT: torch.Tensor, rates: Sequence[float]) -> Work:
    """Return torchaudio's Speed, which has one rate for a whole batch: clip by clip, then padded."""
    from torchaudio.transforms import Speed

    draw, speeders = random.Random(0), [Speed(chain.sample_rate, rate).to(x_BCT.device) for rate in rates]

    def run() -> torch.Tensor:
        clips = [speeders[draw.randrange(len(rates))](x_CT)[0].mT for x_CT in x_BCT]
        return torch.nn.utils.rnn.pad_sequence(clips, batch_first=True).mT

    return run


def _in_memory(folder: str, sample_rate: int, device: torch.device) -> list[dict[str, object]]:
    clips = [torch.from_numpy(read_audio(path, sample_rate)[:1]) for path in find_audio((folder,))]
    return [{"samples": clip.to(device), "sample_rate": sample_rate} for clip in clips]


def reference(chain: Chain, clips: list[np.ndarray]) -> Work:
    """Return audiomentations on these clips, (T,) or (C, T) each, one after the other."""
    random.seed(0)
    np.random.seed(0)
    augment = chain.to_audiomentations()

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for clip in clips:
                with suppress(ValueError):  # RepeatPart fails where a part ends too close to the end of its clip
                    augment(clip, chain.sample_rate)

    return run


def why_not_library(chain: Chain) -> str:
    """Return why torch-audiomentations has no part in this chain, or an empty string."""
    some = any(op.torch_audiomentations() is not None or op.name in COUNTERPARTS for op in chain.ops)
    return "" if some else "torch-audiomentations has no counterpart"


# The least

COPY, NOISE, FILTER, VOCODER = "copy", "noise", "filter", "vocoder"
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("LowPassFilter", "HighPassFilter", "BandPassFilter", "BandStopFilter"), (FILTER,)),
    **dict.fromkeys(("LowShelfFilter", "HighShelfFilter", "PeakingFilter", "SevenBandParametricEQ"), (FILTER,)),
    **dict.fromkeys(("AirAbsorption", "ApplyImpulseResponse", "RoomSimulator"), (FILTER,)),
    **dict.fromkeys(("AddGaussianNoise", "AddGaussianSNR"), (NOISE,)),
    "AddColorNoise": (NOISE, FILTER),
    **dict.fromkeys(("PitchShift", "TimeStretch"), (VOCODER,)),
}
"""What is not listed is copied."""

FILTER_FRAME = 4096
VOCODER_FRAME, VOCODER_HOP = 2048, 512


def least(ops: Sequence[Op], x_BCT: torch.Tensor) -> Work | None:
    """Return the least that these ops, one after the other, ask for this batch; ``None`` if that is nothing."""
    if all(op.name == "Identity" for op in ops):
        return None
    passes = [PASSES[kind] for kind in passes_of([op.name for op in ops])]
    return lambda: [each(x_BCT) for each in passes]


def passes_of(names: Sequence[str]) -> list[str]:
    """Return the kinds of passes that ops of these names need, in order."""
    kinds = [kind for name in names for kind in KINDS.get(name, (COPY,))]
    runs = [(kind, len(list(some))) for kind, some in groupby(kinds)]
    expensive = [kind for kind, count in runs for _ in range(1 if kind == FILTER else count) if kind != COPY]
    return expensive or [COPY]


def _fft_and_back(x_BCT: torch.Tensor, n: int, hop: int) -> torch.Tensor:
    frames_RKn = x_BCT.flatten(0, 1).unfold(-1, min(n, x_BCT.shape[-1]), hop)
    frames, n = frames_RKn.shape[1:]
    return map_chunks(lambda some: torch.fft.irfft(torch.fft.rfft(frames_RKn[some]), n), frames_RKn, frames * n)


PASSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    COPY: torch.clone,
    NOISE: torch.randn_like,
    FILTER: lambda x_BCT: _fft_and_back(x_BCT, FILTER_FRAME, FILTER_FRAME),
    VOCODER: lambda x_BCT: _fft_and_back(x_BCT, VOCODER_FRAME, VOCODER_HOP),
}


# Worker engines

CPU = torch.device("cpu")
ENGINES: tuple[WorkerEngine, ...] = ("batched", REFERENCE)

EPOCH_BATCHES = 1000
"""Of an epoch: more than are taken."""

DISCARDED, TIMED = 3, 4
"""Batches of each worker in a turn: before anything is timed (two may be queued), and those that are."""


def worker_engines(name: str, chain: Chain, size: Size, seconds: float, rounds: int) -> WorkerEngines:
    """Time batches of both worker engines, on as many workers as there are threads for each, if there are cores.

    Args:
        name: of the chain.
        chain: all of it runs in the workers.
        size: of the batch.
        seconds: about how long to time them.
        rounds: turns that each gets at least. Every turn has workers of its own, and is over when these have ended.
    """
    clips, clock = list(speech(size)[:, 0]), clock_for(CPU)
    workers = max(1, min(size.threads, int(usable_cores())))
    times: dict[WorkerEngine, list[float]] = {engine: [] for engine in ENGINES}
    for _ in while_there_is_time(clock, clock.now() + seconds, at_least=rounds):
        for engine in ENGINES:
            times[engine].append(_turn(clips, chain, engine, workers, clock, seconds / rounds / len(ENGINES)))
    ours, theirs = (Timing(tuple(times[engine])) for engine in ENGINES)
    return WorkerEngines(name, ours, theirs, workers)


def _turn(
    clips_BT: list[torch.Tensor], chain: Chain, engine: WorkerEngine, workers: int, clock: Clock, seconds: float
) -> float:
    """Return seconds a batch in the steady state."""
    plan = Plan(cut=len(chain), worker_engine=engine, num_workers=workers, persistent_workers=False)
    loader = Loader(clips_BT * EPOCH_BATCHES, chain, plan, batch_size=len(clips_BT), device=CPU)
    discard, block = DISCARDED * workers, TIMED * workers
    rate = measure_loader(loader, clock, seconds=seconds, discard=discard, block_batches=block, at_least=1)
    return rate.per_batch.median


# What an op costs the host

FEW, MANY = 4, 14
"""Ops in the shorter and the longer chain."""

SAMPLES = 8
"""Of a clip."""

PREPARED_BATCHES = 64
"""Batches that ops are asked about in turn: some keep what they have computed for a draw."""


class CoreClock(Clock):
    """The clock for what this thread does."""

    def now(self) -> Seconds:
        """Return the time that a core has worked for this thread, in seconds."""
        return time.thread_time()

    def synchronize(self) -> None:
        """Return immediately: what a device does is not timed."""


@dataclass(frozen=True, kw_only=True)
class Nothing(Op, registry=None):
    """Three numbers, as many as the median op has on the device, for nothing; never fused with its neighbours."""

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(keeps_silence=True)

    def distributions(self) -> dict[str, Distribution]:
        """Draw them."""
        return dict.fromkeys(("first", "second", "third"), FRACTION)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Leave the batch as it is."""
        return x_BCT


def wrapper(size: Size, device: torch.device, seconds: float, rounds: int) -> Wrapper:
    """Time what an op costs the host with batches of that size, where all examples get it and where half do.

    Args:
        size: of the batch; but for ``prepare_seconds``, clips are as short as can be.
        device: that runs the chains.
        seconds: about how long all this may take.
        rounds: how often at least, but for ``prepare_seconds``: some ops take seconds.
    """
    everyone, half = (op_cost(Nothing(p=p), size.batch, device, seconds / 3, rounds) for p in (1.0, 0.5))
    return Wrapper(everyone, half, prepare_seconds(size, seconds / 3))


def op_cost(op: Op, batch: int, device: torch.device, seconds: float, rounds: int) -> OpCost:
    """Time what one more op like this one costs, round by round."""
    works = {name: work for count in (FEW, MANY) for name, work in _parts(Chain([op] * count, 16000), batch, device)}
    times = interleave(works, CoreClock(), seconds=seconds, at_least=rounds)

    def one(part: str) -> Timing:
        pairs = zip(times[f"{part} {MANY}"].seconds, times[f"{part} {FEW}"].seconds)
        return Timing(tuple((longer - shorter) / (MANY - FEW) for longer, shorter in pairs))

    return OpCost(one("draw"), one("prepare"), one("run"))


def _parts(chain: Chain, batch: int, device: torch.device) -> Iterator[tuple[str, Work]]:
    """Yield what the host does for a batch, by name and number of ops."""
    module, x_BCT = build_device(chain, seed=0), torch.zeros(batch, 1, SAMPLES, device=device)
    index, shape = np.arange(batch), tuple(x_BCT.shape)
    draws = chain.draw(index)
    prepared = module.prepare(draws, shape)
    yield f"draw {len(chain)}", lambda: chain.draw(index)
    yield f"prepare {len(chain)}", lambda: module.prepare(draws, shape)
    yield f"run {len(chain)}", lambda: module.run(x_BCT, prepared)


def prepare_seconds(size: Size, seconds: float) -> dict[str, float]:
    """Return how long preparing a batch takes with each op alone, by name, of those that have a device build."""
    works, clock = dict(_preparing(size)), CoreClock()
    share = seconds / len(works)
    return {name: repeat(work, clock, seconds=share, at_least=1, warm_up=1).median for name, work in works.items()}


def _preparing(size: Size) -> Iterator[tuple[str, Work]]:
    for name, op in declared_ops([], size.sample_rate).items():
        if not why_not_on_device(op):
            shape = size.batch, CHANNELS.get(name, 1), size.samples
            yield name, _prepare_in_turn(Chain([op], size.sample_rate), shape)


def _prepare_in_turn(chain: Chain, shape: tuple[int, int, int]) -> Work:
    prepare, batch = build_device(chain, seed=0).prepare, shape[0]
    draws = chain.draw(np.arange(PREPARED_BATCHES * batch))
    turns = cycle([draws.rows(slice(start, start + batch)) for start in range(0, len(draws), batch)])
    return lambda: prepare(next(turns), shape)
