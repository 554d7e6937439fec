"""One chain as a callable on one batch, by each library.

Shapes: B examples, C channels, T samples.
"""

import itertools
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from audioaug import Chain, build_device, ops
from audioaug.audio.files import find_audio, read_audio
from audioaug.core import REGISTRY, Op
from audioaug.errors import UsageError, did_you_mean
from audioaug.ops._torch_reference import transform_class
from audioaug.records import DeviceEngine
from audioaug.verify.material import demo_arguments, folder_at
from engine_bench.records import Size

Work = Callable[[], object]

CHAINS = Path(__file__).parents[1] / "chains"
LONG = str(Path(__file__).resolve().parents[2] / "datasets/demo/long")
CHANNELS = {"ShuffleChannels": 2}
"""Ops that do nothing to mono: they get half as many clips of two channels."""

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

BATCHES = 100
"""Batches that an engine that records meets, and as many that it is timed with."""

CLIPS_OF = {"AddBackgroundNoise": ("background_paths", "sounds_path"), "ApplyImpulseResponse": ("ir_paths", "ir_path")}
WHITE = {"min_f_decay": -1e-6, "max_f_decay": 1e-6}


# What is measured


def declared_ops(names: list[str], sample_rate: int) -> dict[str, Op]:
    """Return the ops of these names (all of them, if none is named), always applied."""
    for name in names:
        if name not in REGISTRY:
            raise UsageError(f"There is no op {name!r}.", did_you_mean(name, REGISTRY))
    kinds = {name: REGISTRY[name] for name in names or sorted(REGISTRY)}
    return {name: kind(**{**demo_arguments(kind, sample_rate), "p": 1.0}) for name, kind in kinds.items()}


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
    """Return the same by an engine that records, each time with other draws, and the share of these that it has.

    It has met as many batches before, as in training.
    """
    module, batch = build_device(chain, engine=engine, seed=0), len(x_BCT)
    batches = [
        module.prepare(chain.draw(np.arange(batch) + batch * turn), tuple(x_BCT.shape)) for turn in range(2 * BATCHES)
    ]
    batches = [prepared.pin_memory() if x_BCT.is_cuda else prepared for prepared in batches]
    for prepared in batches[:BATCHES]:
        module.augment(x_BCT, prepared)
    replayed = sum(module.has_graph(x_BCT, prepared) for prepared in batches[BATCHES:]) / BATCHES
    turns = itertools.cycle(batches[BATCHES:])
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
