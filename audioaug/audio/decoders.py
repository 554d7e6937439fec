"""Decoders: other ways to read the clips that soundfile decodes, to time them beside it."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.encoded import decode
from audioaug.audio.files import read_audio
from audioaug.units import format_hz


@dataclass(frozen=True)
class EncodedClip:
    """A clip that audioaug decodes: a file's path or its bytes; ``seconds`` of it from its start, or all of it."""

    source: str | bytes
    seconds: float | None = None


def decoders(clips: Sequence[EncodedClip], sample_rate: int, folder: str | Path) -> dict[str, Callable[[], object]]:
    """Return ways to decode all of these clips, by name: soundfile as in training, torchcodec if it works, WAV copies.

    Args:
        clips: readable ones.
        sample_rate: of the decoded clips, in Hz. WAV copies have it, and one channel.
        folder: an existing folder for the WAV copies.
    """
    works: dict[str, Callable[[], object]] = {"soundfile": lambda: [_soundfile(clip, sample_rate) for clip in clips]}
    with suppress(Exception):  # torchcodec is not installed, finds no FFmpeg, or refuses a file
        for clip in clips:
            _torchcodec(clip, sample_rate)
        works["torchcodec"] = lambda: [_torchcodec(clip, sample_rate) for clip in clips]
    copies = [_wav_copy(clip, sample_rate, Path(folder, f"{number}.wav")) for number, clip in enumerate(clips)]
    works[f"WAV copies at {format_hz(sample_rate)}"] = lambda: [read_audio(path, sample_rate) for path in copies]
    return works


def _soundfile(clip: EncodedClip, sample_rate: int) -> NDArray[np.float32]:
    if isinstance(clip.source, bytes):
        return decode({"bytes": clip.source, "path": None}, sample_rate)
    return read_audio(os.path.abspath(clip.source), sample_rate, seconds=clip.seconds)


def _torchcodec(clip: EncodedClip, sample_rate: int) -> Any:
    from torchcodec.decoders import AudioDecoder

    decoder = AudioDecoder(clip.source, sample_rate=sample_rate, num_channels=1)
    return decoder.get_all_samples() if clip.seconds is None else decoder.get_samples_played_in_range(0.0, clip.seconds)


def _wav_copy(clip: EncodedClip, sample_rate: int, path: Path) -> str:
    import soundfile

    soundfile.write(path, _soundfile(clip, sample_rate).T, sample_rate, subtype="PCM_16")
    return str(path)
