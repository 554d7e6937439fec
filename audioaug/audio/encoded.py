"""Encoded: decode audio given as the bytes of a file or its path, as in Hugging Face ``datasets`` without decoding."""

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.files import check_size, decoding, plausible_header, read_audio, resample
from audioaug.errors import DataError


def decode(audio: Mapping[str, Any], sample_rate: int) -> NDArray[np.float32]:
    """Decode ``{"bytes": ..., "path": ...}`` with soundfile; the path is used if there are no bytes.

    Args:
        audio: a value of a column ``datasets.Audio(decode=False)``.
        sample_rate: of the result, in Hz.

    Shape:
        returns (T,), float32; channels are averaged, as in ``datasets``.

    Raises:
        DataError: there are neither bytes nor a path, or they cannot be decoded.
    """
    content, path = audio.get("bytes"), audio.get("path")
    if content is not None:
        return _decoded(content, path or "The audio of an example", sample_rate)
    if path is None:
        raise DataError("The audio of an example has neither 'bytes' nor a 'path'.")
    return read_audio(os.path.abspath(path), sample_rate)[0]


def _decoded(content: bytes, name: str, sample_rate: int) -> NDArray[np.float32]:
    import soundfile

    with decoding(name):
        info = soundfile.info(io.BytesIO(content))
    header = plausible_header(name, info, len(content))
    check_size(name, header.frames, header.channels)
    check_size(name, header.frames_at(sample_rate), 1)
    with decoding(name):
        x_TC, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
        return resample(x_TC.T.mean(axis=0, keepdims=True), rate, sample_rate)[0]
