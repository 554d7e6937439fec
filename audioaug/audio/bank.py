"""Bank: noise or impulse responses, decoded once and kept as one flat array that draws address by file and offset.

Resident on the device up to a byte cap. Beyond it the bank stays in main memory, the excerpts a batch needs are
gathered there and copied over: slower, but the draws, and so the training, stay the same.

Shapes: F files, R rows of a batch, N samples of an excerpt, S samples of the whole bank.
"""

import functools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.files import find_audio, read_audio, read_header
from audioaug.errors import AudioaugWarning, DataError
from audioaug.units import format_bytes

DEVICE_BYTES = 2 * 2**30
"""The largest bank that is kept on a device."""


@dataclass(frozen=True)
class Layout:
    """Where each file's samples lie in the flat array; known from the headers alone, before anything is decoded.

    Channel c of file f starts at ``offsets_F[f] + c * lengths_F[f]``. Every ``steps_F[f]`` th sample lies on a sample
    of the file at its own rate (every one if that is the same).
    """

    files: tuple[str, ...]
    lengths_F: NDArray[np.int64]
    channels_F: NDArray[np.int64]
    offsets_F: NDArray[np.int64]
    steps_F: NDArray[np.int64]


@functools.lru_cache(maxsize=32)
def layout(paths: tuple[str, ...], sample_rate: int, mono: bool = True) -> Layout:
    """Read the headers of all files; raise ``DataError`` if one is missing, broken or empty."""
    files = find_audio(paths)
    headers = [read_header(path) for path in files]
    lengths_F = np.asarray([header.frames_at(sample_rate) for header in headers], dtype=np.int64)
    if not lengths_F.all():
        raise DataError(f"{files[int(np.argmin(lengths_F))]} holds no samples.", "Remove it.")
    channels_F = np.asarray([1 if mono else header.channels for header in headers], dtype=np.int64)
    steps_F = np.asarray(
        [sample_rate // math.gcd(sample_rate, header.sample_rate) for header in headers], dtype=np.int64
    )
    return Layout(files, lengths_F, channels_F, np.concatenate([[0], np.cumsum(lengths_F * channels_F)[:-1]]), steps_F)


class Bank:
    """All samples of a layout, decoded.

    Args:
        where: the files and where they lie.
        sample_rate: that all files are converted to, in Hz.
        mono: mix the channels of each file down to one.

    Raises:
        DataError: a file cannot be decoded.
    """

    def __init__(self, where: Layout, sample_rate: int, mono: bool = True) -> None:
        clips = (
            _fit(read_audio(path, sample_rate, mono), int(length))
            for path, length in zip(where.files, where.lengths_F, strict=True)
        )
        self.flat_S = torch.from_numpy(np.concatenate([clip.reshape(-1) for clip in clips]))
        self._files = len(where.files)
        self._resident: dict[torch.device, torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        """The size of all samples."""
        return self.flat_S.nbytes

    def resident(self, device: torch.device) -> torch.Tensor:
        """Return the samples (S,) on the device, or in main memory if they are over the cap."""
        if device not in self._resident:
            fits = self.nbytes <= DEVICE_BYTES
            if not fits:
                warnings.warn(
                    f"A bank of {self._files} files takes {format_bytes(self.nbytes)}, more than the "
                    f"{format_bytes(DEVICE_BYTES)} that are kept on a device: it stays in main memory, and each batch "
                    "copies what it needs. Use fewer or shorter files, or raise audioaug.audio.bank.DEVICE_BYTES.",
                    AudioaugWarning,
                    stacklevel=2,
                )
            self._resident[device] = self.flat_S.to(device) if fits else self.flat_S
            if device.type == "cuda":  # once, so that no other stream reads before the copy is there
                torch.cuda.synchronize(device)
        return self._resident[device]

    def take(self, place_RN: torch.Tensor) -> torch.Tensor:
        """Return the samples at these places of the flat array, on the places' device."""
        flat_S = self.resident(place_RN.device)
        return flat_S[place_RN.to(flat_S.device)].to(place_RN.device, non_blocking=True)


def _fit(x_CT: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Cut or zero-pad to the length that the header promises (a rate conversion may be off by a sample)."""
    missing = max(0, length - x_CT.shape[1])
    return np.ascontiguousarray(np.pad(x_CT, ((0, 0), (0, missing)))[:, :length])


@functools.lru_cache(maxsize=32)
def open_bank(paths: tuple[str, ...], sample_rate: int, mono: bool = True) -> Bank:
    """Return the bank of these files, decoded once in this process."""
    return Bank(layout(paths, sample_rate, mono), sample_rate, mono)
