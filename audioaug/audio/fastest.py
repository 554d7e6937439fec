"""Fastest: the decoder that takes the least time for a kind of file, among those that give the same samples.

Measured on the first file of a kind, in about 0.2 s, and kept in the cache. On one machine torchcodec 0.11 (FFmpeg 5)
was 1.2 times as fast as soundfile 0.14 for Vorbis, equally fast for FLAC and MP3, and 18 times slower for WAV. Of MP3
and Opus it returns other samples: these are soundfile's. FFmpeg has an Opus decoder of its own, which differs from
libopus by 2e-7 to 0.1 of full scale, depending on the bit rate: one file says nothing of the others.
"""

import functools
import math
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from statistics import median
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from audioaug.audio.files import Header, check_size, decoding, read_audio, read_frames, read_header, resample
from audioaug.units import Seconds
from audioaug.writing import cache_file, keep_in_cache, read_file

Decoder = Literal["soundfile", "torchcodec"]

NEVER = ("OPUS", "MPEG_LAYER_III")
"""Encodings of which torchcodec returns the same samples for some files only: of MP3, for quiet ones."""

SAME = 1e-6
"""Samples differ by at most this; full scale is 1."""

TRIED_SECONDS, TURNS = 4.0, 5
"""What is decoded, this often by each decoder in turn."""

GAIN = 1.1
"""soundfile decodes unless the other one is more times as fast than this."""


def read_fastest(path: str, sample_rate: int, mono: bool = True, seconds: float | None = None) -> NDArray[np.float32]:
    """Decode a file, or ``seconds`` of it from its start, as ``read_audio`` does, with the fastest decoder.

    The samples are those of ``read_audio`` to 1e-6 of full scale. Shape and errors are the same.
    """
    header = read_header(path)
    if fastest_decoder(path) == "torchcodec":
        frames = header.frames if seconds is None else min(header.frames, math.ceil(seconds * header.sample_rate))
        check_size(path, frames, header.channels)
        x_CT = by_torchcodec(path, frames, header, mono)
        if x_CT is not None:
            with decoding(path):
                return resample(x_CT, header.sample_rate, sample_rate)
    return read_audio(path, sample_rate, mono, seconds=seconds)


def fastest_decoder(path: str) -> Decoder:
    """Return the decoder for a file of this kind."""
    header, versions = read_header(path), _versions()
    if versions is None or header.kind.endswith(NEVER):
        return "soundfile"
    kind = f"{header.kind} {header.sample_rate} Hz {header.channels}"
    if kind not in (found := _known(versions)):
        found[kind] = _measured(path, header)
        _save(versions, found)
    return found[kind]


def by_torchcodec(path: str, frames: int, header: Header, mono: bool) -> NDArray[np.float32] | None:
    """Decode the first frames of a file with torchcodec; ``None`` if it cannot, or has more or fewer of them."""
    with suppress(Exception):  # whatever is wrong with the file, soundfile says it
        from torchcodec.decoders import AudioDecoder

        decoder = AudioDecoder(path)
        whole = frames == header.frames
        found = (
            decoder.get_all_samples()
            if whole
            else decoder.get_samples_played_in_range(0.0, frames / header.sample_rate)
        )
        x_CT = found.data.numpy()
        if found.sample_rate == header.sample_rate and x_CT.shape == (header.channels, frames):
            return np.ascontiguousarray(x_CT.mean(axis=0, keepdims=True) if mono else x_CT, dtype=np.float32)
    return None


def _measured(path: str, header: Header) -> Decoder:
    """Time both decoders on a file, if they return the same of it."""
    frames = min(header.frames, math.ceil(TRIED_SECONDS * header.sample_rate))
    theirs = by_torchcodec(path, frames, header, mono=False)
    if theirs is None or not np.allclose(theirs, read_frames(path, 0, frames, mono=False), rtol=0.0, atol=SAME):
        return "soundfile"
    ours_s, theirs_s = list[Seconds](), list[Seconds]()
    for _ in range(TURNS):
        ours_s.append(_seconds(lambda: read_frames(path, 0, frames, mono=False)))
        theirs_s.append(_seconds(lambda: by_torchcodec(path, frames, header, mono=False)))
    return "torchcodec" if median(ours_s) > GAIN * median(theirs_s) else "soundfile"


def _seconds(work: Callable[[], object]) -> Seconds:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


# What is known of this machine


@functools.cache
def _versions() -> str | None:
    """Return what the choice depends on besides the file; ``None`` if torchcodec is missing, or finds no FFmpeg."""
    with suppress(Exception):
        from torchcodec.decoders import AudioDecoder

        assert AudioDecoder
        names = ("soundfile", "torchcodec")
        return " | ".join([platform.machine(), *(f"{name} {metadata.version(name)}" for name in names)])
    return None


@functools.cache
def _known(versions: str) -> dict[str, Decoder]:
    """Return the decoders that were found, by kind of file."""
    with suppress(OSError, msgspec.DecodeError):
        if (file := cache_file("decoders.json")) is not None:
            return msgspec.json.decode(read_file(file), type=dict[str, dict[str, Decoder]]).get(versions, {})
    return {}


def _save(versions: str, found: dict[str, Decoder]) -> None:
    """Keep what was found."""
    keep_in_cache(msgspec.json.encode({versions: found}).decode(), cache_file("decoders.json"))
