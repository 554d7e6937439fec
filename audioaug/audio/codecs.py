"""Codecs: what speech and music codecs leave of a clip, encoded and decoded in memory by libsndfile (soundfile).

Shapes: C channels, T samples.
"""

import bisect
import functools
import inspect
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.files import fit, resample
from audioaug.errors import DataError, LibraryMissing, first_line

ANY_RATE = range(1, 1_000_001)
MP3_RATES = 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000
OPUS_RATES = 8000, 12000, 16000, 24000, 48000

MP3_DELAY = 1105
"""Of LAME (576 samples) and of the decoder (529), if their frames are too short for a header that declares it."""

MOST_COMPRESSION = 0.9999
"""libsndfile refuses 1.0 for MP3."""

SPARE_SECONDS = 0.02
"""Silence after a clip while it is encoded, so that its last samples are not in an incomplete block."""


@dataclass(frozen=True)
class Encoding:
    """How libsndfile names a codec, and what it takes.

    ``rates``: the sample rates, ascending, in Hz. ``channels``: at most, in one stream. ``has_quality``: whether it has
    a compression level, and ``bitrate_mode`` how a bit rate follows from it. ``delay``: samples before the clip in what
    is decoded, if that is longer than the clip.
    """

    title: str
    format: str
    subtype: str
    rates: Sequence[int]
    channels: int = 2
    has_quality: bool = False
    bitrate_mode: str | None = None
    delay: int = 0


CODECS = {
    "mulaw": Encoding("G.711 mu-law", "WAV", "ULAW", ANY_RATE),
    "alaw": Encoding("G.711 A-law", "WAV", "ALAW", ANY_RATE),
    "gsm": Encoding("GSM 6.10", "WAV", "GSM610", (8000,), channels=1),
    "adpcm": Encoding("IMA ADPCM", "WAV", "IMA_ADPCM", ANY_RATE),
    "mp3": Encoding(
        "MP3", "MP3", "MPEG_LAYER_III", MP3_RATES, has_quality=True, bitrate_mode="CONSTANT", delay=MP3_DELAY
    ),
    "vorbis": Encoding("Vorbis", "OGG", "VORBIS", range(1000, 192_001), has_quality=True),
    "opus": Encoding("Opus", "OGG", "OPUS", OPUS_RATES, has_quality=True),
}
"""The codecs, by the names that users give them."""


def through_codec(
    samples: NDArray[np.float32], sample_rate: int, codec: str, quality: float = 1.0
) -> NDArray[np.float32]:
    """Encode a clip and decode it: as long as before, as loud, and at the same place in time.

    Where the codec does not allow the sample rate, the clip is resampled to the next higher rate that it allows (else
    to the highest) and back. One beyond full scale is divided by the power of 2 that its peak does not exceed, and
    multiplied by it afterwards. More than two channels are encoded one by one; those of GSM always are.

    Args:
        samples: a clip, (T,) or (C, T).
        sample_rate: in Hz.
        codec: a name in ``CODECS``.
        quality: 0 to 1; how much is left of the sound. It is 1 minus libsndfile's compression level.

    Raises:
        LibraryMissing: this libsndfile does not have the codec, or this soundfile cannot set its quality.
        DataError: the clip has values that are not finite, or libsndfile refuses it.
    """
    if reason := why_missing(codec):
        raise LibraryMissing(f"Codec {codec!r}: {reason}", "Upgrade soundfile, or leave this codec out.")
    x_CT = np.atleast_2d(samples)
    if not np.isfinite(x_CT).all():
        raise DataError("A clip has values that are not finite, which no codec can encode.", "Leave such clips out.")
    length = x_CT.shape[1]
    if not length:
        return samples
    encoding = CODECS[codec]
    rate = allowed_rate(encoding, sample_rate)
    spare = int(SPARE_SECONDS * sample_rate) + 1
    x_CT = resample(np.pad(x_CT, ((0, 0), (0, spare))), sample_rate, rate)
    full = full_scale(x_CT)
    y_CT = resample(_decoded(x_CT / full, rate, encoding, quality), rate, sample_rate) * full
    return fit(y_CT, length).reshape(samples.shape)


@functools.cache
def why_missing(codec: str) -> str:
    """Return why a codec cannot be used here, or an empty string."""
    import soundfile

    encoding = CODECS[codec]
    formats = soundfile.available_formats()
    if encoding.format not in formats or encoding.subtype not in soundfile.available_subtypes(encoding.format):
        return f"libsndfile {soundfile.__libsndfile_version__} on this machine has no {encoding.title}."
    if encoding.has_quality and "compression_level" not in inspect.signature(soundfile.write).parameters:
        return f"soundfile {soundfile.__version__} cannot set the quality of {encoding.title}; 0.13 can."
    return ""


def allowed_rate(encoding: Encoding, sample_rate: int) -> int:
    """Return the lowest rate that a codec allows and that is not below the given one; else its highest."""
    rates = encoding.rates
    return rates[min(bisect.bisect_left(rates, sample_rate), len(rates) - 1)]


def full_scale(x_CT: NDArray[np.float32]) -> np.float32:
    """Return 1, or the power of 2 that no sample exceeds."""
    mantissa, exponent = np.frexp(np.abs(x_CT).max())
    return np.float32(max(1.0, np.ldexp(1.0, exponent - (mantissa == 0.5))))


def _decoded(x_CT: NDArray[np.float32], rate: int, encoding: Encoding, quality: float) -> NDArray[np.float32]:
    """Return what is decoded, in streams of as many channels as the codec takes, or of one."""
    together = len(x_CT) if len(x_CT) <= encoding.channels else 1
    streams = [x_CT[first : first + together] for first in range(0, len(x_CT), together)]
    return np.concatenate([_decoded_stream(stream_CT, rate, encoding, quality) for stream_CT in streams])


def _decoded_stream(x_CT: NDArray[np.float32], rate: int, encoding: Encoding, quality: float) -> NDArray[np.float32]:
    import soundfile

    options = {}
    if encoding.has_quality:
        compression = min(1.0 - quality, MOST_COMPRESSION)
        options = {"compression_level": compression, "bitrate_mode": encoding.bitrate_mode}
    file = io.BytesIO()
    try:
        soundfile.write(file, x_CT.T, rate, format=encoding.format, subtype=encoding.subtype, **options)
        file.seek(0)
        y_CT = soundfile.read(file, dtype="float32", always_2d=True)[0].T
    except soundfile.SoundFileError as error:
        raise DataError(f"libsndfile refuses to encode a clip as {encoding.title}: {first_line(error)}.") from None
    begin = encoding.delay if y_CT.shape[1] > x_CT.shape[1] else 0
    return fit(y_CT[:, begin:], x_CT.shape[1])
