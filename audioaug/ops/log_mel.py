"""LogMel: the power of a sound in mel bands, in dB, frame by frame.

Shapes: B examples, C channels, T samples, N frames, F frequencies, M mel bands, W = n_fft samples of a frame.
"""

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    LENGTHS,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Feature,
    NumpyReference,
    Params,
)
from audioaug.core.distributions import FloatArray
from audioaug.dsp.dispatch import map_chunks
from audioaug.dsp.power_spectrum import power_spectrum
from audioaug.errors import ChainError
from audioaug.units import format_hz


@dataclass(frozen=True, kw_only=True)
class LogMel(Feature):
    """Turn audio into a mel spectrogram in dB, (B, C, M, N) or (B, M, N): always the last op of a chain.

    A clip of T samples has ``1 + T // hop_length`` frames, centred on every ``hop_length`` samples, with silence before
    and after it. For natural logarithms, multiply by ``math.log(10) / 10``.

    Args:
        n_fft: samples of a frame.
        hop_length: samples from one frame to the next.
        win_length: samples of the Hann window in the middle of a frame; as long as the frame by default.
        n_mels: mel bands.
        fmin: lowest frequency, in Hz.
        fmax: highest frequency, in Hz; half the sample rate by default.
        htk: HTK's formula for the mel scale instead of Slaney's.
        norm: ``"slaney"`` divides each band by its width; ``"none"`` (librosa's ``None``) does not.
        amin: the least power: everything below is ``10 * log10(amin)`` dB.
        p: 1, since every example needs its features.

    Raises:
        ChainError: a frame shorter than its window, or ``fmax`` not above ``fmin``. With the first audio: a band
            without any frequency, or frequencies that the sample rate does not have.

    Reference: ``librosa.feature.melspectrogram`` with ``pad_mode="constant"``, then ``librosa.power_to_db`` with
    ``top_db=None``.
    """

    n_fft: int = 2048
    hop_length: int = 512
    win_length: int | None = None
    n_mels: int = 128
    fmin: float = 0.0
    fmax: float | None = None
    htk: bool = False
    norm: Literal["slaney", "none"] = "slaney"
    amin: float = 1e-10

    contract = Contract.log_spectrum(db=0.01, down_to_db=80.0)
    limits = {
        **dict.fromkeys(("n_fft", "win_length"), (2.0, math.inf)),
        **dict.fromkeys(("hop_length", "n_mels"), (1.0, math.inf)),
        **dict.fromkeys(("fmin", "fmax"), (0.0, math.inf)),
        "amin": (1e-30, math.inf),
    }
    capabilities = Capabilities(needs_length=True, changes_length=True, library="librosa")
    param_types = {"length_out": LENGTHS, "window": FLOATS, "filters": FLOATS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.win_length is not None and self.win_length > self.n_fft:
            raise ChainError(f"LogMel: win_length is {self.win_length}, but a frame (n_fft) has {self.n_fft} samples.")
        if self.fmax is not None and self.fmax <= self.fmin:
            raise ChainError(f"LogMel: fmax is {self.fmax:g}, but it must be greater than fmin ({self.fmin:g}).")

    @property
    def silence(self) -> float:
        """The level of silence, in dB."""
        return 10 * math.log10(self.amin)

    def frames(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many frames clips of these lengths have, in samples."""
        return np.where(lengths > 0, 1 + lengths // self.hop_length, 0)

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        """Return the clips' frames, and what is the same for all batches: the window, (W,), and the bands, (M, F)."""
        return {
            **super().resolve(draw, batch),
            "window": window(self.n_fft, self.win_length),
            "filters": mel_filters(self, batch.sample_rate).ravel(),
        }

    def reference(self) -> Any:
        return NumpyReference(self._by_librosa)

    def _by_librosa(self, samples: NDArray[np.float32], sample_rate: int, **params: Any) -> NDArray[np.float32]:
        import librosa

        if not samples.shape[-1]:
            return np.zeros((*samples.shape[:-1], self.n_mels, 0), np.float32)
        with warnings.catch_warnings():  # it warns of frames that are longer than the clip
            warnings.simplefilter("ignore")
            spectrum_FN = librosa.stft(
                samples, n_fft=self.n_fft, hop_length=self.hop_length, win_length=self.win_length, pad_mode="constant"
            )
        power_MN = mel_filters(self, sample_rate) @ np.square(np.abs(spectrum_FN))  # librosa would make them anew
        return np.asarray(librosa.power_to_db(power_MN, amin=self.amin, top_db=None))

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        filters_MF = params["filters"].view(self.n_mels, -1)

        def levels(some: slice) -> torch.Tensor:
            power_BCNF = power_spectrum(x_BCT[some], params["window"], self.hop_length)
            return (filters_MF @ power_BCNF.transpose(-1, -2)).clamp(min=self.amin).log10().mul_(10)

        level_BCMN = map_chunks(levels, x_BCT, x_BCT[0].numel())
        if batch.padded_to is None:
            return level_BCMN
        frame_N = torch.arange(level_BCMN.shape[-1], device=x_BCT.device)
        return torch.where(frame_N < params["length_out"][:, None, None, None], level_BCMN, self.silence)


@functools.lru_cache(maxsize=8)
def window(n_fft: int, win_length: int | None) -> FloatArray:
    """Return a periodic Hann window in the middle of a frame, (W,)."""
    size = win_length or n_fft
    before = (n_fft - size) // 2
    return np.pad(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size), (before, n_fft - size - before))


@functools.lru_cache(maxsize=8)
def mel_filters(op: LogMel, sample_rate: int) -> NDArray[np.float32]:
    """Return each band's weight of each frequency, (M, F), by librosa.

    Raises:
        ChainError: the sample rate does not have these frequencies, or a band has none.
    """
    import librosa

    name, most = ("fmin", op.fmin) if op.fmax is None else ("fmax", op.fmax)
    if most > sample_rate / 2:
        raise ChainError(
            f"LogMel: {name} is {most:g} Hz, but audio at {format_hz(sample_rate)} ends at {sample_rate / 2:g} Hz."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filters_MF = librosa.filters.mel(
            sr=sample_rate,
            n_fft=op.n_fft,
            n_mels=op.n_mels,
            fmin=op.fmin,
            fmax=op.fmax,
            htk=op.htk,
            norm=None if op.norm == "none" else op.norm,
        )
    if empty := int((filters_MF.max(axis=1) <= 0).sum()):
        raise ChainError(
            f"LogMel: {empty} of {op.n_mels} mel bands are narrower than the distance of frequencies and stay empty.",
            "Use fewer bands (n_mels) or longer frames (n_fft).",
        )
    return np.asarray(filters_MF)
