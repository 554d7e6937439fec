"""Bank: noise or impulse responses, decoded once into one flat array that draws address by file and offset.

Up to a size limit, a bank stays on the device. A larger one is not kept: the process that prepares a batch (a worker,
if there are any) reads the excerpts that the batch needs and sends them with it as a shard, a small bank for this
batch. The draws, and so the training, are the same.

Shapes: F files, R rows of a batch, N samples of an excerpt, S samples of the whole bank.
"""

import functools
import math
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.files import Recordings, bytes_from_environment, fit, read_audio, read_frames, read_header, stamp
from audioaug.errors import AudioaugWarning, DataError, printable
from audioaug.units import format_bytes

MOST_BYTES = bytes_from_environment("AUDIOAUG_BANK_BYTES", 2 * 2**30)
"""The largest bank that is kept on a device; the environment variable also applies to workers."""

MOST_KEPT = 256 * 2**20
"""Bytes of converted files that a process keeps for a larger one."""

SPARE = 2**20
"""The number of zeros after a bank, so that long windows may extend past its end."""


@dataclass(frozen=True)
class Layout:
    """The position of each file's samples in the flat array, computed from the headers, before anything is decoded.

    Channel c of file f starts at ``offsets_F[f] + c * lengths_F[f]``. Every ``steps_F[f]``-th sample coincides with a
    sample of the file at its own rate (every one if the rates are equal).
    """

    sample_rate: int
    mono: bool
    files: tuple[str, ...]
    lengths_F: NDArray[np.int64]
    channels_F: NDArray[np.int64]
    offsets_F: NDArray[np.int64]
    steps_F: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """The size of all samples."""
        return 4 * int((self.lengths_F * self.channels_F).sum())

    def excerpts(
        self, file_R: NDArray[np.int64], start_R: NDArray[np.int64], span_R: NDArray[np.int64]
    ) -> dict[str, NDArray[Any]]:
        """Return the parameters with which ``samples_for`` finds an excerpt of a file for each row.

        ``"place"`` is the start of the excerpt in the bank, in its first channel. If the bank exceeds the limit, there
        is a ``"shard"`` too, which is the bank then: channel c of an excerpt starts c spans after the first.
        """
        if self.nbytes <= MOST_BYTES:
            return {"place": self.offsets_F[file_R] + start_R}
        parts = [
            self._read(file, start, span).reshape(-1)
            for file, start, span in zip(file_R.tolist(), start_R.tolist(), span_R.tolist(), strict=True)
        ]
        place_R = np.cumsum([0, *(len(part) for part in parts)])[: len(parts)]
        return {"place": place_R, "shard": np.concatenate([*parts, np.zeros(1, np.float32)])}  # never empty

    def _read(self, file: int, start: int, span: int) -> NDArray[np.float32]:
        """Return an excerpt (C, N); a file at another rate is resampled as a whole, as it is for the bank."""
        path = self.files[file]
        if read_header(path).sample_rate == self.sample_rate:
            return _finite(read_frames(path, start, span, self.mono), path)
        whole_CT = fit(_converted(path, self.sample_rate, self.mono), int(self.lengths_F[file]))
        return whole_CT[:, start : start + span]


@functools.lru_cache(maxsize=32)
def layout(recordings: Recordings, sample_rate: int, mono: bool = True) -> Layout:
    """Read the headers of all files; raise ``DataError`` if one is missing, broken or empty."""
    files = recordings.files
    headers = [read_header(path) for path in files]
    lengths_F = np.asarray([header.frames_at(sample_rate) for header in headers], dtype=np.int64)
    if not lengths_F.all():
        raise DataError(f"{files[int(np.argmin(lengths_F))]} holds no samples.", "Remove it.")
    channels_F = np.asarray([1 if mono else header.channels for header in headers], dtype=np.int64)
    steps_F = np.asarray(
        [sample_rate // math.gcd(sample_rate, header.sample_rate) for header in headers], dtype=np.int64
    )
    offsets_F = np.concatenate([[0], np.cumsum(lengths_F * channels_F)[:-1]])
    return Layout(sample_rate, mono, files, lengths_F, channels_F, offsets_F, steps_F)


_kept: OrderedDict[tuple[Any, ...], NDArray[np.float32]] = OrderedDict()
"""Converted files, that used last at the end."""


def _converted(path: str, sample_rate: int, mono: bool) -> NDArray[np.float32]:
    """Return a whole file at another rate; those used last are kept, up to ``MOST_KEPT`` bytes and at least one."""
    place = path, *stamp(path), sample_rate, mono
    found = _kept.pop(place, None)
    whole_CT = _finite(read_audio(path, sample_rate, mono), path) if found is None else found
    _kept[place] = whole_CT
    while len(_kept) > 1 and sum(each.nbytes for each in tuple(_kept.values())) > MOST_KEPT:
        _kept.popitem(last=False)
    return whole_CT


class Bank:
    """All samples of a layout, decoded.

    Args:
        flat_S: the samples, float32.
        spare: the number of zeros at their end.
    """

    def __init__(self, flat_S: torch.Tensor, spare: int = 0) -> None:
        self.flat_S, self._samples = flat_S, len(flat_S) - spare
        self._elsewhere: dict[torch.device, torch.Tensor] = {}

    def on(self, device: torch.device, spare: int = 0) -> torch.Tensor:
        """Return the samples on a device, where they stay from then on, with at least ``spare`` zeros at their end."""
        least = self._samples + spare
        if len(self.flat_S) < least:  # copies: twice as much as needed, so that this is rare
            self.flat_S = torch.nn.functional.pad(self.flat_S[: self._samples], (0, 2 * spare))
        if device == self.flat_S.device:
            return self.flat_S
        found_S = self._elsewhere.get(device)
        if found_S is None or len(found_S) < least:
            found_S = self.flat_S.to(device)
            if device.type == "cuda":  # no stream reads before the copy has finished, or still reads what it replaces
                torch.cuda.synchronize(device)
            self._elsewhere[device] = found_S
        return found_S


def samples_for(
    params: Mapping[str, Any],
    recordings: Recordings,
    sample_rate: int,
    device: torch.device,
    spare: int,
    mono: bool = True,
) -> torch.Tensor:
    """Return the samples that ``params`` (see ``Layout.excerpts``) refer to, (S,): the bank, or the batch's shard.

    Args:
        params: of the batch, on ``device``.
        recordings: in the bank.
        sample_rate: of the bank.
        device: that of the batch.
        spare: the least number of zeros at their end.
        mono: whether the bank is.
    """
    if "shard" not in params:
        return open_bank(recordings, sample_rate, mono).on(device, spare)
    _warn_of_size(recordings, sample_rate, mono)
    return torch.nn.functional.pad(params["shard"], (0, spare))


def _finite(x_CT: NDArray[np.float32], path: str) -> NDArray[np.float32]:
    """Return the samples; raise ``DataError`` if one is NaN or infinite, which would spoil whole examples."""
    if not np.isfinite(x_CT).all():
        raise DataError(f"{printable(path)} has samples that are NaN or infinite.", "Remove it, or write it again.")
    return x_CT


@functools.lru_cache(maxsize=32)
def open_bank(recordings: Recordings, sample_rate: int, mono: bool = True) -> Bank:
    """Return the bank of these files, decoded once in this process; raise ``DataError`` if one cannot be decoded."""
    files = layout(recordings, sample_rate, mono)
    clips = (
        fit(_finite(read_audio(path, sample_rate, mono), path), int(length))
        for path, length in zip(files.files, files.lengths_F, strict=True)
    )
    silence = np.zeros(SPARE, np.float32)
    return Bank(torch.from_numpy(np.concatenate([*(clip.reshape(-1) for clip in clips), silence])), SPARE)


@functools.lru_cache(maxsize=32)
def _warn_of_size(recordings: Recordings, sample_rate: int, mono: bool) -> None:
    """Warn once that a bank is not kept on the device."""
    bank = layout(recordings, sample_rate, mono)
    warnings.warn(
        f"A bank of {len(bank.files)} files takes {format_bytes(bank.nbytes)}, more than the limit of "
        f"{format_bytes(MOST_BYTES)}: for each batch, its excerpts are read from the files. Use fewer or shorter "
        "files, or raise AUDIOAUG_BANK_BYTES.",
        AudioaugWarning,
        stacklevel=3,
    )
