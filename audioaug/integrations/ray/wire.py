"""Wire: the columns in which augmented audio is sent from actors to where the model trains.

Besides the audio: the cut and the epoch of each clip, which the receiver checks; with 16-bit integers the scale; and,
if labels are to follow, the timeline. Their names begin with that of the audio's column.

Shapes: B examples, C channels, T samples, N pieces of a timeline.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Timeline
from audioaug.errors import DataError

Wire: TypeAlias = Literal["float32", "float16", "int16"]

CUT, EPOCH, SCALE, TIMELINE = "_cut", "_epoch", "_scale", "_timeline"

LARGEST = np.iinfo(np.int16).max


def encoded(waves: Sequence[NDArray[np.float32]], wire: Wire, audio: str) -> dict[str, Any]:
    """Return the columns that hold these waves.

    ``"float16"`` rounds each sample to 11 bits (by at most 2^-11 of it, or 2^-25). ``"int16"`` divides each clip by a
    scale of its own: the error is at most half of that, which is 1.6e-5 of the clip's peak.

    Raises:
        DataError: a clip is not finite, or too loud for float16.
    """
    if wire == "float32":
        return {audio: as_column(waves)}
    peaks = [float(np.abs(wave).max(initial=0.0)) for wave in waves]
    if not np.all(np.asarray(peaks) <= np.finfo(np.float16 if wire == "float16" else np.float32).max):
        raise DataError(f"A clip has samples that wire={wire!r} cannot hold.", "Send it with wire='float32'.")
    if wire == "float16":
        return {audio: as_column([wave.astype(np.float16) for wave in waves])}
    scales = [peak / LARGEST or 1.0 for peak in peaks]
    numbers = [np.rint(wave / scale).astype(np.int16) for wave, scale in zip(waves, scales)]
    return {audio: as_column(numbers), audio + SCALE: np.asarray(scales)}


def decoded(row: Mapping[str, Any], audio: str) -> NDArray[np.float32]:
    """Return the wave, (T,) or (C, T), of a row of those columns."""
    wave = np.asarray(row[audio])
    return wave.astype(np.float32) * np.float32(row[audio + SCALE] if wave.dtype == np.int16 else 1.0)


def as_column(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays as one with another first axis, or, if their shapes differ, as one of objects."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    column = np.empty(len(arrays), dtype=object)
    for row, array in enumerate(arrays):
        column[row] = array
    return column


def with_timelines(timelines: Sequence[Timeline], audio: str) -> dict[str, Any]:
    """Return the column that holds these timelines: their two lengths, and their pieces, in one row of numbers each."""
    rows = [np.concatenate([[each.length_in, each.length_out], each.pieces.ravel()]) for each in timelines]
    return {audio + TIMELINE: as_column(rows)}


def timeline_of(row: Mapping[str, Any], audio: str) -> Timeline:
    """Return the timeline of a row of that column."""
    length_in, length_out, *pieces = np.asarray(row[audio + TIMELINE]).tolist()
    return Timeline(np.reshape(pieces, (-1, 4)), int(length_in), int(length_out))


def own_columns(audio: str) -> set[str]:
    """Return the names of the columns that are sent with the audio."""
    return {audio + suffix for suffix in (CUT, EPOCH, SCALE, TIMELINE)}
