"""Material: the clips that all builds process, demo speech and edge signals, and the arguments of each op.

Shapes: a batch is a list of B clips, each (C, T) with its own T.
"""

import atexit
import dataclasses
import functools
import shutil
import tempfile
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from audioaug import ops
from audioaug.audio import demo
from audioaug.audio.files import find_audio, read_audio
from audioaug.core import Op, why_not_on_device
from audioaug.errors import ChainError
from audioaug.ops.lambda_ import on_device

WORDS = ("go/flite_slt", "left/flite_slt", "rear/flite_rms", "front/flite_slt")


@functools.lru_cache(maxsize=8)
def _converted(name: str, sample_rate: int) -> str:
    """Return a copy of a demo folder at another rate, which lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix=f"audioaug-{name}-{sample_rate}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in find_audio((demo.demo_folder(name),)):
        x_T = read_audio(path, sample_rate)[0]
        soundfile.write(folder / f"{Path(path).stem}.wav", x_T, sample_rate, subtype="FLOAT")
    return str(folder)


def folder_at(name: str, sample_rate: int) -> str:
    """Return a demo folder whose files are at that rate, as the contract of AddBackgroundNoise wants them."""
    return demo.demo_folder(name) if sample_rate == demo.SAMPLE_RATE else _converted(name, sample_rate)


@functools.lru_cache(maxsize=8)
def signals(sample_rate: int, channels: int = 1) -> list[NDArray[np.float32]]:
    """Return real speech and signals that ops stumble over, of unequal lengths; channels have unequal levels.

    In order: three words, one of them far above full scale; digital silence; full-scale clicks; a constant; a tenth of
    a second of speech; noise.
    """
    words = [read_audio(demo.demo_folder(f"speech/{word}_01.flac"), sample_rate)[0] for word in WORDS]
    rng = np.random.default_rng(sample_rate)
    clicks = np.zeros(int(0.7 * sample_rate), np.float32)
    clicks[rng.integers(0, len(clicks), 12)] = rng.choice([-1.0, 1.0], 12)
    mono = [
        *words[:2],
        words[2] * np.float32(2.5 / np.abs(words[2]).max()),
        np.zeros(sample_rate // 2, np.float32),
        clicks,
        np.full(int(0.3 * sample_rate), 0.25, np.float32),
        words[3][sample_rate // 5 :][: sample_rate // 10],
        rng.normal(0.0, 0.1, sample_rate).astype(np.float32),
    ]
    return [_widened(x_T, channels) for x_T in mono]


def _widened(x_T: NDArray[np.float32], channels: int) -> NDArray[np.float32]:
    """Return the signal on the first channel, and quieter, later copies of it on the others."""
    copies = [np.roll(x_T, 37 * channel) * np.float32(0.25**channel) for channel in range(channels)]
    return np.stack(copies).astype(np.float32)


def tones(sample_rate: int, channels: int = 1) -> list[NDArray[np.float32]]:
    """Return sounds with a pitch, a second each: a chord of two notes, and a voice with vibrato and tremolo."""
    t_T = np.arange(sample_rate) / sample_rate
    partials = [np.sin(2 * np.pi * note * k * t_T + k) for note in (220.0, 330.0) for k in range(1, 8)]
    phase_T = np.cumsum(2 * np.pi * 150 * 2 ** (np.sin(2 * np.pi * 5 * t_T) / 24)) / sample_rate
    chord = np.sum(partials, axis=0)
    voice = np.sum([np.sin(k * phase_T) / k for k in range(1, 20)], axis=0) * (0.6 + 0.4 * np.sin(6 * np.pi * t_T))
    return [_widened((0.1 * x_T).astype(np.float32), channels) for x_T in (chord, voice)]


def equal_lengths(clips: list[NDArray[np.float32]], samples: int) -> list[NDArray[np.float32]]:
    """Return the clips cut, or repeated, to one length."""
    return [np.pad(x_CT, ((0, 0), (0, max(0, samples - x_CT.shape[1]))), "wrap")[:, :samples] for x_CT in clips]


@on_device(lambda x_BCT, sample_rate, drive=2.0: x_BCT / (1.0 + drive * x_BCT.abs()))
def softened(samples: NDArray[np.float32], sample_rate: int, drive: float = 2.0) -> NDArray[np.float32]:
    """Press loud samples down, here and on the device: what Lambda is tried with."""
    return (samples / (1.0 + drive * np.abs(samples))).astype(np.float32)


GOES_WITH: dict[tuple[str, Any], dict[str, Any]] = {
    # The reference raises where a clip is shorter than its shift.
    ("shift_unit", "seconds"): {"min_shift": -0.09, "max_shift": 0.09},
    ("shift_unit", "samples"): {"min_shift": -700, "max_shift": 700},
    ("duration_unit", "samples"): {"min_duration": 2, "max_duration": 9000},
    ("duration_unit", "fraction"): {"min_duration": 0.1, "max_duration": 1.5},
}
"""What an option needs besides itself to make sense on these clips."""


ALSO: dict[str, dict[str, Any]] = {
    "AdjustDuration": {"duration_seconds": 0.45},  # longer than some clips, shorter than others
    "RepeatPart": {"min_part_duration": 0.05, "max_part_duration": 0.3},  # clips are short here
}
"""What ops are given although there is a default."""


FURTHER: dict[str, dict[str, Any]] = {
    "AddColorNoise": {"p_apply_a_weighting": 0.5},
    "AddShortNoises": {"signal_gain_db_during_noise": -20.0},
    "LogMel": {"n_fft": 512, "hop_length": 160, "win_length": 400, "n_mels": 40},
    "RoomSimulator": {"max_order": 3},
    "Speed": {"rates": (0.9, 1.0, 1.1)},
}
"""Arguments that are no switch, but switch something on."""


def demo_arguments(kind: type[Op], sample_rate: int = demo.SAMPLE_RATE) -> dict[str, Any]:
    """Return values for the arguments that an op cannot do without; raise ``ChainError`` if one is not known here."""
    inner = (ops.PolarityInversion(p=0.7), ops.Reverse(p=0.7), ops.Clip(a_min=-0.1, a_max=0.05, p=0.7))
    known: dict[str, Callable[[], Any]] = {
        "sounds_path": lambda: folder_at("noise", sample_rate),
        "ir_path": lambda: folder_at("rooms", sample_rate),
        "transforms": lambda: inner,
        "num_transforms": lambda: (1, None),
        "transform": lambda: softened,
    }
    needed = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    for name in needed:
        if name not in known:
            raise ChainError(
                f"{kind.__name__} needs {name!r}, and verify has no example of that.",
                "Add one to audioaug.verify.material.demo_arguments.",
            )
    return {**{name: known[name]() for name in needed}, **ALSO.get(kind.__name__, {})}


def variants(kind: type[Op], sample_rate: int = demo.SAMPLE_RATE) -> Iterator[Op]:
    """Yield an op with its defaults, then once for each other value of its switches and options, where it can be so."""
    arguments = demo_arguments(kind, sample_rate)
    yield kind(**arguments)
    if further := FURTHER.get(kind.__name__):
        yield kind(**arguments, **further)
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        options = (True, False) if hints[field.name] is bool else ()
        if typing.get_origin(hints[field.name]) is Literal:
            options = typing.get_args(hints[field.name])
        for option in options:
            if option != field.default:
                try:
                    variant = kind(**arguments, **{field.name: option}, **GOES_WITH.get((field.name, option), {}))
                except ChainError:
                    continue
                if not why_not_on_device(variant):
                    yield variant
