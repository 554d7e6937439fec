"""Files: find audio, read its header, decode it (soundfile) and resample it (soxr)."""

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.errors import AudioaugWarning, DataError, UsageError, first_line, printable
from audioaug.units import format_bytes, parse_bytes, plural
from audioaug.writing import TOO_MANY_FILES, check_regular

EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".aif", ".aiff")
"""Formats that soundfile decodes and audiomentations finds."""

NOT_DECODED = (".aac", ".m4a", ".mp4")
"""Formats that audiomentations finds too, but soundfile does not decode."""

LEAST_RATE, MOST_RATE = 1000, 1_000_000
"""Valid sample rates of files, in Hz: a header outside this range is damaged, and would make seconds hours long."""

LIBSNDFILE_SYSTEM_ERROR = 2
"""The code of its error for a file that the system does not open, which does not say why."""

UNKNOWN_FRAMES = 2**63 - 1
"""What libsndfile returns as the length of a FLAC file whose header has none."""

MOST_FRAMES_PER_BYTE = 10_000
"""More than any format encodes in a byte, even of silence: a header that declares more is damaged."""


def bytes_from_environment(name: str, default: int) -> int:
    """Return the size in an environment variable, such as ``2G``; warn and return the default if it is invalid."""
    text = os.environ.get(name)
    size = default if text is None else parse_bytes(text)
    if size is not None:
        return size
    warnings.warn(
        f"Expected {name} to be a size such as 500M or 2G, got {text!r}. Using the default, {format_bytes(default)}.",
        AudioaugWarning,
        stacklevel=2,
    )
    return default


MOST_BYTES = bytes_from_environment("AUDIOAUG_DECODE_BYTES", 4 * 2**30)
"""The most audio that is decoded at a time, as float32; set by the environment variable."""

Paths: TypeAlias = "str | Path | Iterable[str | Path]"


@dataclass(frozen=True)
class Header:
    """The header of a file, read before it is decoded; ``kind``: its format and what encodes the samples in it."""

    frames: int
    sample_rate: int
    channels: int
    kind: str = ""

    def frames_at(self, sample_rate: int) -> int:
        """Return the length in samples at another rate, rounded up, as audiomentations (librosa) does."""
        return -(-self.frames * sample_rate // self.sample_rate)


def as_written(paths: Paths, owner: str = "") -> str | tuple[str, ...]:
    """Return one or several paths as text, those of a set sorted, so that their order is the same everywhere.

    Raises:
        DataError: they are something else. The message begins with ``owner``.
    """
    try:
        if isinstance(paths, str | os.PathLike):
            return str(os.fsdecode(paths))
        several = [str(os.fsdecode(path)) for path in paths]
    except TypeError:
        message = f"{owner}Expected a path or a list of paths, got {paths!r}."
        raise DataError(message, "Name files or folders.") from None
    return tuple(sorted(several) if isinstance(paths, Set) else several)


@dataclass(frozen=True)
class Recordings:
    """Audio files as they were when they were listed. Two are equal if they list the same files, and none has changed.

    ``roots`` are the absolute paths that were listed.
    """

    roots: tuple[str, ...] = field(compare=False)
    files: tuple[str, ...] = field(compare=False)
    digest: str


def list_recordings(paths: Paths) -> Recordings:
    """Return the audio files among and below these paths, with the errors of ``as_written`` and ``find_audio``."""
    written = as_written(paths)
    roots = tuple(map(os.path.abspath, [written] if isinstance(written, str) else written))
    files = find_audio(roots)
    stamps = repr([(file, _stamp_if_there(file)) for file in files])
    return Recordings(roots, files, hashlib.blake2b(stamps.encode(), digest_size=16).hexdigest())


def _stamp_if_there(file: str) -> tuple[int, int] | None:
    """Return the stamp; none of a file that has just gone, and of a broken link, which is an error where it is read."""
    try:
        return stamp(file)
    except DataError:
        return None


def stamp(file: str) -> tuple[int, int]:
    """Return a file's size and time of change; raise ``DataError`` if there is no such file."""
    try:
        status = os.stat(file)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise DataError(
            f"{printable(file)} cannot be read: {reason}.", "Remove it from the dataset, or restore it."
        ) from None
    return status.st_size, status.st_mtime_ns


def find_audio(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the audio files among and below these absolute paths, sorted, so that the order is the same everywhere.

    It warns of files that audiomentations would find, but that cannot be decoded here, and of unreadable folders.

    Raises:
        DataError: a path does not exist, or there is no audio file.
    """
    found, left_out, unreadable = list[str](), list[str](), list[OSError]()
    for path in paths:
        if not os.path.exists(path):
            raise DataError(f"There is no {path}.", "Name an existing audio file or a folder of audio files.")
        files = sorted(_files_below(path, unreadable.append)) if os.path.isdir(path) else [path]
        found += filter(_is_audio, files)
        left_out += (file for file in files if file.lower().endswith(NOT_DECODED))
    if unreadable:
        first = unreadable[0]
        warnings.warn(
            f"{plural(len(unreadable), 'folder')} in {', '.join(paths)} cannot be read ({printable(first.filename)}: "
            f"{first.strerror}, for example), so no file there will be used.",
            AudioaugWarning,
            stacklevel=2,
        )
    if not found:
        raise DataError(f"There is no audio in {', '.join(paths)}.", f"Looked for {' '.join(EXTENSIONS)}.")
    if left_out:
        warnings.warn(
            f"{plural(len(left_out), 'file')} in {', '.join(paths)} ({printable(os.path.basename(left_out[0]))}, for "
            f"example) will not be used: {', '.join(NOT_DECODED)} cannot be decoded. Convert them to FLAC.",
            AudioaugWarning,
            stacklevel=2,
        )
    return tuple(found)


def _files_below(folder: str, note: Callable[[OSError], object]) -> Iterator[str]:
    """Yield the files below a folder, following links; each folder is entered once, however many links refer to it.

    ``note`` gets the error of each folder that cannot be read.
    """
    seen = {_identity(folder)}
    for root, folders, names in os.walk(folder, onerror=note, followlinks=True):
        yield from (os.path.join(root, name) for name in names)
        below = sorted((os.path.islink(os.path.join(root, name)), name) for name in folders)
        folders.clear()
        for _, name in below:
            try:
                found = _identity(os.path.join(root, name))
            except OSError as error:
                note(error)
                continue
            if found not in seen:
                seen.add(found)
                folders.append(name)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_audio(path: str) -> bool:
    """Return whether a file is one of audio by its name. Beside ``x.wav``, macOS keeps attributes in ``._x.wav``."""
    return path.lower().endswith(EXTENSIONS) and not os.path.basename(path).startswith("._")


def read_header(path: str) -> Header:
    """Return a file's length, rate and channels without decoding it; raise ``DataError`` if they are implausible.

    What it has read is remembered until the file changes.
    """
    with decoding(path):
        status = os.stat(path)
    return _read_header(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=65536)
def _read_header(path: str, size: int, changed_ns: int) -> Header:
    import soundfile

    with decoding(path):
        check_regular(path)
        info = soundfile.info(os.fsencode(path))
    return plausible_header(path, info, size)


def plausible_header(name: str, info: Any, nbytes: int) -> Header:
    """Return a header as soundfile read it; raise ``DataError`` if a file of that many bytes cannot match it."""
    if not LEAST_RATE <= info.samplerate <= MOST_RATE:
        raise DataError(
            f"{printable(name)} cannot be decoded: its header declares {info.samplerate} Hz, outside of "
            f"{LEAST_RATE} Hz to {MOST_RATE} Hz."
        )
    if info.frames == UNKNOWN_FRAMES:
        raise DataError(
            f"{printable(name)} cannot be decoded: its header does not declare how many samples it has, as if written "
            "to a pipe.",
            "Write it again, as a file.",
        )
    if info.frames > nbytes * MOST_FRAMES_PER_BYTE:
        raise DataError(
            f"{printable(name)} cannot be decoded: its header declares {info.frames} samples, but the file has "
            f"{nbytes} bytes.",
            "It is damaged: write it again.",
        )
    return Header(info.frames, info.samplerate, info.channels, f"{info.format} {info.subtype}")


def read_audio(
    path: str, sample_rate: int, mono: bool = True, start: float = 0.0, seconds: float | None = None
) -> NDArray[np.float32]:
    """Decode a file, or ``seconds`` of it from ``start`` on, and resample it to a given rate.

    Shape:
        returns (C, T), float32; C is 1 if ``mono`` (channels are averaged).

    Raises:
        DataError: the file is missing, not audio, damaged, or larger than ``AUDIOAUG_DECODE_BYTES``.
    """
    rate = read_header(path).sample_rate
    frames = -1 if seconds is None else math.ceil(seconds * rate)
    x_CT = read_frames(path, int(start * rate), frames, mono)
    check_size(path, x_CT.shape[1] * sample_rate // rate, len(x_CT))
    with decoding(path):
        return resample(x_CT, rate, sample_rate)


def read_frames(path: str, start: int, frames: int, mono: bool) -> NDArray[np.float32]:
    """Decode ``frames`` frames of a file (-1: all) at its own rate. Shape and errors are those of ``read_audio``."""
    import soundfile

    header = read_header(path)
    left = max(0, header.frames - start)
    check_size(path, left if frames < 0 else min(frames, left), header.channels)
    with decoding(path):
        x_TC, _ = soundfile.read(os.fsencode(path), frames=frames, start=start, dtype="float32", always_2d=True)
    x_CT = x_TC.T.mean(axis=0, keepdims=True) if mono else x_TC.T
    return np.ascontiguousarray(x_CT, dtype=np.float32)


def resample(x_CT: NDArray[np.float32], from_hz: float, to_hz: float) -> NDArray[np.float32]:
    """Convert the sample rate with soxr in high quality, as audiomentations (librosa) does."""
    if from_hz == to_hz:
        return x_CT
    import soxr

    y_TC = soxr.resample(np.ascontiguousarray(x_CT.T), from_hz, to_hz, quality="HQ")
    return np.ascontiguousarray(y_TC.T, dtype=np.float32)


def fit(x_CT: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Return the clip without what is past this length, or with silence up to it: resampling may be off by a sample."""
    return np.pad(x_CT, ((0, 0), (0, max(0, length - x_CT.shape[1]))))[:, :length]


def check_size(path: str, frames: int, channels: int) -> None:
    """Raise ``DataError`` if this much float32 audio exceeds the limit for decoding."""
    if (nbytes := 4 * frames * channels) > MOST_BYTES:
        raise DataError(
            f"{printable(path)} takes {format_bytes(nbytes)} once decoded, but the limit is "
            f"{format_bytes(MOST_BYTES)}.",
            "Read a part of it, cut the file, or raise AUDIOAUG_DECODE_BYTES.",
        )


@contextmanager
def decoding(path: str) -> Iterator[None]:
    """Turn any error of decoding into a ``DataError`` that names the file."""
    import soundfile

    try:
        yield
    except (OSError, TypeError, ValueError, soundfile.SoundFileError) as failure:  # TypeError: of a .raw file
        error = _system_error(path, failure)
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
            raise UsageError(
                f"{printable(path)} cannot be read: there are too many open files.",
                "Raise the limit (ulimit -n 65536).",
            ) from None
        message = getattr(error, "strerror", None) or getattr(error, "error_string", None)  # without the path
        reason = str(message).strip().rstrip(".") if message else first_line(error)
        raise DataError(f"{printable(path)} cannot be decoded: {reason}.") from None
    except MemoryError:
        raise DataError(f"{printable(path)} cannot be decoded: there is not enough memory.") from None


def _system_error(path: str, error: Exception) -> Exception:
    """Return why a file cannot be opened, if libsndfile says no more than that the system refuses it."""
    if getattr(error, "code", None) == LIBSNDFILE_SYSTEM_ERROR:
        try:
            open(path, "rb").close()
        except OSError as reason:
            return reason
    return error
