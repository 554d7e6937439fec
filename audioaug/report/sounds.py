"""Sounds on a page: a player and a spectrogram each, embedded as ``data:`` URLs.

Shapes: C channels, T samples; a picture has H rows and W columns.
"""

import base64
import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audioaug.report.parts import Line, Table

Sound = NDArray[np.float32]

RANGE_DB = 80.0
"""Dynamic range of spectrograms, below the loudest."""

LEVELS = 32
WIDTH = 240
WINDOW_SECONDS = 0.016

SHADES = ((0, 0, 4), (60, 15, 110), (160, 45, 125), (240, 95, 90), (252, 180, 110), (252, 250, 190))
"""Colours from quiet to loud, interpolated linearly."""


@dataclass(frozen=True)
class RenderedSound:
    """One sound: label, FLAC and spectrogram as ``data:`` URLs, and a description."""

    label: str
    audio: str
    picture: str
    words: str


@dataclass(frozen=True)
class Example:
    """One clip before and after augmentation, with a description."""

    name: str
    words: str
    sounds: tuple[RenderedSound, ...]


NOT_SAVED = "No examples to listen to: they are made at the end of a run with --html, and --json does not save them."


@dataclass(frozen=True)
class Listening:
    """Examples to listen to, with an introduction and the verdict of each transform's contract."""

    lines: tuple[Line, ...]
    examples: tuple[Example, ...] = ()
    verdicts: Table | None = None


def rendered_sounds(sounds: dict[str, Sound], sample_rate: int) -> tuple[RenderedSound, ...]:
    """Render sounds (C, T) by label as audio and spectrograms, with common volume and level scale."""
    softer = 1 / max(1.0, *(float(np.abs(x_CT).max(initial=0.0)) for x_CT in sounds.values()))
    pictures = spectrograms(list(sounds.values()), sample_rate)
    return tuple(
        RenderedSound(
            label,
            _data("audio/flac", flac(softer * x_CT, sample_rate)),
            _data("image/png", png(picture_HW)),
            f"spectrogram of {label}: {x_CT.shape[1] / sample_rate:.2g} s, 0 to {sample_rate / 2000:g} kHz",
        )
        for (label, x_CT), picture_HW in zip(sounds.items(), pictures, strict=True)
    )


def flac(x_CT: Sound, sample_rate: int) -> bytes:
    """Encode the first two channels as 16-bit FLAC, which every browser plays."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, x_CT[:2].T, sample_rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def spectrograms(sounds: Sequence[Sound], sample_rate: int) -> list[NDArray[np.uint8]]:
    """Return the levels of the channel mean, (H, W), from 0 to ``LEVELS`` - 1, high frequencies on top."""
    powers = [_power(x_CT.mean(axis=0), sample_rate) for x_CT in sounds]
    loudest = max(float(power_HW.max(initial=0.0)) for power_HW in powers) or 1.0
    quietest = 10 ** (-RANGE_DB / 10)
    levels = [1 + 10 * np.log10(np.maximum(power_HW / loudest, quietest)) / RANGE_DB for power_HW in powers]
    return [np.round((LEVELS - 1) * level_HW[::-1]).astype(np.uint8) for level_HW in levels]


def _power(x_T: Sound, sample_rate: int) -> NDArray[np.float64]:
    """Return the power in ``WIDTH`` windows over the whole sound, (H, W)."""
    size = 2 ** round(np.log2(max(4.0, WINDOW_SECONDS * sample_rate)))
    padded_T = np.pad(x_T, size // 2)
    starts = np.linspace(0, len(padded_T) - size, WIDTH).astype(int)
    windows_WN = np.hanning(size) * padded_T[starts[:, None] + np.arange(size)]
    return np.square(np.abs(np.fft.rfft(windows_WN)))[:, :-1].T


def png(picture_HW: NDArray[np.uint8]) -> bytes:
    """Encode levels as a PNG with a palette of ``SHADES``."""
    height, width = picture_HW.shape
    places = np.linspace(0, len(SHADES) - 1, LEVELS)
    palette = np.stack([np.interp(places, range(len(SHADES)), shade) for shade in zip(*SHADES, strict=True)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits a pixel, palette indices
    rows = np.pad(picture_HW, ((0, 0), (1, 0)))  # each row starts with its filter: none
    chunks = {b"IHDR": header, b"PLTE": palette.astype(np.uint8).tobytes(), b"IDAT": zlib.compress(rows.tobytes(), 9)}
    parts = [_chunk(kind, content) for kind, content in {**chunks, b"IEND": b""}.items()]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
