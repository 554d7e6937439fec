"""ApplyImpulseResponse: a random room around the sound.

Shapes: B examples, C channels, T samples, N responses of L samples.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.bank import layout, samples_for
from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    LENGTHS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    OptionalType,
    Params,
    ParamType,
    Timeline,
    TorchAudiomentationsOp,
    UniformInt,
)
from audioaug.dsp.convolution import convolve
from audioaug.dsp.levels import peak, scaled
from audioaug.dsp.windows import silence_past_ends, windows
from audioaug.ops._recordings import WithRecordings

TAP_STEP = 1024
"""Responses are padded to a multiple of this many samples, so that FFT sizes repeat."""


@dataclass(frozen=True, kw_only=True)
class ApplyImpulseResponse(WithRecordings):
    """Convolve an example with a random impulse response, then scale its peak (tail included) to 0.5.

    A mono example meets the response's channels averaged; channel c of others meets channel c modulo their number.

    Args:
        ir_path: a file or folder of impulse responses, or a list of them.
        p: probability of applying it, 0 to 1.
        lru_cache_size: how many decoded responses the reference keeps.
        leave_length_unchanged: cut the tail off; otherwise clips get longer.

    Raises:
        DataError: there is no audio at ``ir_path`` when a chain is made of it.

    Reference: ``audiomentations.ApplyImpulseResponse``.
    """

    ir_path: str | Path | Iterable[str | Path]
    lru_cache_size: int = 128
    leave_length_unchanged: bool = True

    paths = "ir_path"
    contract = Contract.exact(rtol=1e-5)
    limits = {"lru_cache_size": (0, float("inf"))}

    def distributions(self) -> dict[str, Distribution]:
        return {"file": UniformInt(0, len(self.recordings.files) - 1)}

    @property
    def capabilities(self) -> Capabilities:
        longer = not self.leave_length_unchanged
        return Capabilities(needs_length=longer, changes_length=longer, changes_timing=longer)

    @property
    def param_types(self) -> dict[str, ParamType]:
        return {
            "file": HOST_ONLY,
            **dict.fromkeys(("which", "place", "length"), INTS),
            "longest": STATIC,
            "shard": OptionalType(FLOATS),
            **({} if self.leave_length_unchanged else {"length_out": LENGTHS}),
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        where = layout(self.recordings, batch.sample_rate, mono=batch.channels == 1)
        file_B = draw["file"].astype(np.int64)
        tail = {"length_out": batch.lengths + where.lengths_F[file_B] - 1} if not self.leave_length_unchanged else {}
        # Of few files all responses are transformed, of many those that were drawn.
        few = len(where.files) <= len(file_B)
        file_N, which_B = (np.arange(len(where.files)), file_B) if few else (file_B, np.arange(len(file_B)))
        length_N = where.lengths_F[file_N]
        found = where.excerpts(file_N, np.zeros_like(file_N), length_N)
        channel_NC = np.arange(batch.channels) % where.channels_F[file_N, None]
        return {
            **tail,
            "file": file_B,
            "which": which_B,
            **found,
            "place": (found["place"][:, None] + channel_NC * length_N[:, None]).reshape(-1),
            "length": length_N,
            "longest": -(-int(length_N.max()) // TAP_STEP) * TAP_STEP,
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"ir_file_path": self.recordings.files[int(params["file"])]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        full = convolve(x_BCT, self._taps(x_BCT, params, batch), params["which"])
        peak_B11 = peak(full)
        kept = full[..., : x_BCT.shape[-1]] if self.leave_length_unchanged else full
        return scaled(kept, peak_B11, 0.5, batch.out(x_BCT) if self.leave_length_unchanged else None)

    def _taps(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Return N responses for each channel, zero-padded; (N, C, L)."""
        channels, longest = x_BCT.shape[1], params["longest"]
        place = batch.sample_rate, x_BCT.device, longest
        bank_S = samples_for(params, self.recordings, *place, mono=channels == 1)
        taps_NL = windows(bank_S, params["place"], longest)
        return silence_past_ends(taps_NL.unflatten(0, (-1, channels)), params["length"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline.identity(length, params["length_out"])

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "ApplyImpulseResponse",
            lambda x_BCT, params, batch: {"ir": self._taps(x_BCT, params, batch)[params["which"], :1]},
            {"ir_paths": ["never-read.wav"]},
            differs="fed with clips in memory, since it cannot read files any more; the peak is not scaled to 0.5",
        )
