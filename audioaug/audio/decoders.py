"""Decoders: other ways to read the clips that audioaug decodes, to time them beside its own."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.encoded import decode
from audioaug.audio.fastest import fastest_decoder, read_fastest
from audioaug.audio.files import read_audio
from audioaug.units import format_hz


@dataclass(frozen=True)
class EncodedClip:
    """A clip that audioaug decodes: a file's path or its bytes; ``seconds`` of it from its start, or all of it.

    ``fastest``: whether ``AudioFolder(decoder="fastest")`` reads it.
    """

    source: str | bytes
    seconds: float | None = None
    fastest: bool = False


def decoders(clips: Sequence[EncodedClip], sample_rate: int, folder: str | Path) -> dict[str, Callable[[], object]]:
    """Return ways to decode all of these clips, by name: first as in training, then torchcodec if it works, WAV copies.

    Args:
        clips: readable ones.
        sample_rate: of the decoded clips, in Hz. WAV copies have it, and one channel.
        folder: an existing folder for the WAV copies.
    """
    ours = " and ".join(sorted({_decoder_of(clip) for clip in clips}))
    works: dict[str, Callable[[], object]] = {ours: lambda: [_as_in_training(clip, sample_rate) for clip in clips]}
    with suppress(Exception):  # torchcodec is not installed, finds no FFmpeg, or refuses a file
        for clip in clips:
            _torchcodec(clip, sample_rate)
        works.setdefault("torchcodec", lambda: [_torchcodec(clip, sample_rate) for clip in clips])
    copies = [_wav_copy(clip, sample_rate, Path(folder, f"{number}.wav")) for number, clip in enumerate(clips)]
    works[f"WAV copies at {format_hz(sample_rate)}"] = lambda: [read_audio(path, sample_rate) for path in copies]
    return works


def _decoder_of(clip: EncodedClip) -> str:
    return fastest_decoder(clip.source) if clip.fastest and isinstance(clip.source, str) else "soundfile"


def _as_in_training(clip: EncodedClip, sample_rate: int) -> NDArray[np.float32]:
    if isinstance(clip.source, bytes):
        return decode({"bytes": clip.source, "path": None}, sample_rate)
    read = read_fastest if clip.fastest else read_audio
    return read(os.path.abspath(clip.source), sample_rate, seconds=clip.seconds)


def _torchcodec(clip: EncodedClip, sample_rate: int) -> Any:
    from torchcodec.decoders import AudioDecoder

    decoder = AudioDecoder(clip.source, sample_rate=sample_rate, num_channels=1)
    return decoder.get_all_samples() if clip.seconds is None else decoder.get_samples_played_in_range(0.0, clip.seconds)


def _wav_copy(clip: EncodedClip, sample_rate: int, path: Path) -> str:
    import soundfile

    soundfile.write(path, _as_in_training(clip, sample_rate).T, sample_rate, subtype="PCM_16")
    return str(path)
