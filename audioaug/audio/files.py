"""Files: find audio, read its header, decode it (soundfile), convert its sample rate (soxr)."""

import functools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.errors import DataError

EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".aif", ".aiff")
"""What soundfile decodes and audiomentations looks for."""

Paths: TypeAlias = "str | Path | Iterable[str | Path]"


@dataclass(frozen=True)
class Header:
    """What a file says of itself, before it is decoded."""

    frames: int
    sample_rate: int
    channels: int

    def frames_at(self, sample_rate: int) -> int:
        """Return the length in samples at another rate, rounded up, as audiomentations (librosa) does."""
        return -(-self.frames * sample_rate // self.sample_rate)


def as_paths(paths: Paths) -> tuple[str, ...]:
    """Return one path or many as absolute path names; raise ``DataError`` if they are something else."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    try:
        return tuple(os.path.abspath(os.fspath(path)) for path in several)
    except TypeError:
        raise DataError(f"{paths!r} is neither a path nor a list of paths.", "Name files or folders.") from None


@functools.lru_cache(maxsize=64)
def find_audio(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the audio files among and below these absolute paths, sorted, so that every machine counts them alike.

    Raises:
        DataError: a path does not exist, or there is no audio at all.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            walk = ((root, names) for root, _, names in os.walk(path, followlinks=True))
            found += sorted(os.path.join(root, name) for root, names in walk for name in names if _is_audio(name))
        elif os.path.exists(path):
            found += [path] if _is_audio(path) else []
        else:
            raise DataError(f"There is no {path}.", "Name an existing audio file or a folder of audio files.")
    if not found:
        raise DataError(f"There is no audio in {', '.join(paths)}.", f"Looked for {' '.join(EXTENSIONS)}.")
    return tuple(found)


def _is_audio(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


@functools.lru_cache(maxsize=65536)
def read_header(path: str) -> Header:
    """Return a file's length, rate and channels without decoding it; raise ``DataError`` if it has none."""
    import soundfile

    try:
        info = soundfile.info(path)
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"{path} cannot be decoded: {_reason(error)}") from None
    return Header(info.frames, info.samplerate, info.channels)


def read_audio(
    path: str, sample_rate: int, mono: bool = True, start: float = 0.0, seconds: float | None = None
) -> NDArray[np.float32]:
    """Decode a file, or ``seconds`` of it from ``start`` on, at a given rate.

    Shape:
        returns (C, T), float32; C is 1 if ``mono`` (channels are averaged).

    Raises:
        DataError: the file is missing, not audio, or broken.
    """
    rate = read_header(path).sample_rate
    frames = -1 if seconds is None else math.ceil(seconds * rate)
    return resample(read_frames(path, int(start * rate), frames, mono), rate, sample_rate)


def read_frames(path: str, start: int, frames: int, mono: bool) -> NDArray[np.float32]:
    """Decode that many frames of a file (-1: all) at its own rate. Shape and errors are ``read_audio``'s."""
    import soundfile

    try:
        x_TC, _ = soundfile.read(path, frames=frames, start=start, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"{path} cannot be decoded: {_reason(error)}") from None
    x_CT = x_TC.T.mean(axis=0, keepdims=True) if mono else x_TC.T
    return np.ascontiguousarray(x_CT, dtype=np.float32)


def resample(x_CT: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    """Convert the sample rate with soxr in high quality, which is what audiomentations (librosa) uses too."""
    if from_hz == to_hz:
        return x_CT
    import soxr

    y_TC = soxr.resample(np.ascontiguousarray(x_CT.T), from_hz, to_hz, quality="HQ")
    return np.ascontiguousarray(y_TC.T, dtype=np.float32)


def _reason(error: Exception) -> str:
    return str(getattr(error, "error_string", "") or error).strip().rstrip(".") + "."
