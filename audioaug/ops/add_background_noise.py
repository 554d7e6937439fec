"""AddBackgroundNoise: an excerpt of a random recording, mixed in at a random level.

Shapes: B examples, C channels (1), T samples, S samples of the bank.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.bank import layout, samples_for
from audioaug.audio.files import read_header
from audioaug.core import (
    FLOATS,
    FRACTION,
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    OptionalType,
    Params,
    TorchAudiomentationsOp,
    Uniform,
    UniformInt,
)
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import add_excerpts_by_loop, added_at, db_to_ratio, gain_to, level, rms
from audioaug.dsp.windows import windows
from audioaug.errors import ChainError
from audioaug.ops._recordings import WithRecordings


@dataclass(frozen=True, kw_only=True)
class AddBackgroundNoise(WithRecordings):
    """Mix in a random excerpt of a random file. A file shorter than the example is repeated. Mono only.

    Args:
        sounds_path: a file or folder of background sounds, or a list of them.
        min_snr_db: lowest signal-to-noise ratio, in dB; only for ``noise_rms="relative"``.
        max_snr_db: highest signal-to-noise ratio, in dB.
        noise_rms: ``"relative"`` to the example's level, or ``"absolute"``.
        min_absolute_rms_db: lowest level of the noise, in dB of full scale; only for ``noise_rms="absolute"``.
        max_absolute_rms_db: highest level of the noise, in dB, at most 0.
        noise_transform: not supported; ``Chain.from_audiomentations`` keeps it, and runs the op in the workers.
        p: probability of applying it, 0 to 1.
        lru_cache_size: without effect, as in the reference.

    Raises:
        DataError: there is no audio at ``sounds_path`` when a chain is made of it, or a clip is not mono.

    Reference: ``audiomentations.AddBackgroundNoise``. A file at another sample rate is converted whole here and
    excerpt by excerpt there, so that the two differ at the excerpt's edges.
    """

    sounds_path: str | Path | Iterable[str | Path]
    min_snr_db: float = 3.0
    max_snr_db: float = 30.0
    noise_rms: Literal["relative", "absolute"] = "relative"
    min_absolute_rms_db: float = -45.0
    max_absolute_rms_db: float = -15.0
    noise_transform: None = None
    lru_cache_size: None = None

    paths = "sounds_path"
    contract = Contract.exact(rtol=1e-5)
    capabilities = Capabilities(multichannel=False, needs_length=True)
    param_types = {
        **dict.fromkeys(("snr_db", "rms_db", "ratio"), FLOATS),
        "file": HOST_ONLY,
        "start": HOST_ONLY,
        "span": INTS,
        "repeats": STATIC,
        "place": INTS,
        "shard": OptionalType(FLOATS),
    }
    limits = {"max_absolute_rms_db": (-float("inf"), 0.0)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_transform is not None:
            raise ChainError(
                "AddBackgroundNoise: noise_transform is not supported here.",
                "Transform the noise files first, or use Chain.from_audiomentations, which keeps it in the workers.",
            )

    def distributions(self) -> dict[str, Distribution]:
        return {
            "snr_db": Uniform(self.min_snr_db, self.max_snr_db),
            "rms_db": Uniform(self.min_absolute_rms_db, self.max_absolute_rms_db),
            "file": UniformInt(0, len(self.recordings.files) - 1),
            "start_share": FRACTION,
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        where = layout(self.recordings, batch.sample_rate)
        file_B = draw["file"].astype(np.int64)
        latest_B = np.maximum(where.lengths_F[file_B] - batch.lengths, 0)
        start_B = (draw["start_share"] * latest_B).astype(np.int64)
        start_B -= start_B % where.steps_F[file_B]  # the reference can only start on a sample of the file
        span_B = np.minimum(where.lengths_F[file_B], np.maximum(batch.lengths, 1))
        return {
            "snr_db": draw["snr_db"],
            "rms_db": draw["rms_db"],
            "ratio": db_to_ratio(-draw["snr_db"] if self.noise_rms == "relative" else draw["rms_db"]),
            "file": file_B,
            "start": start_B,
            "span": span_B,
            "repeats": int(span_B.min() < batch.lengths.max()),
            **where.excerpts(file_B, start_B, span_B),
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        path = self.recordings.files[int(params["file"])]
        rate = read_header(path).sample_rate
        start, frames = round(params["start"] * rate / sample_rate), -(-len(samples) * rate // sample_rate)
        # The reference truncates seconds to samples of the file: half a sample more keeps rounding from losing one.
        return {
            "snr_db": params["snr_db"],
            "rms_db": params["rms_db"],
            "noise_file_path": path,
            "offset": (start + 0.5) / rate,
            "duration": (frames + 0.5) / rate,
        }

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return _with_noise(x_BCT, self, params, batch)

    def _noise(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the excerpts, repeated to the batch's length (B, T), and their levels (B,)."""
        samples, span_B1 = x_BCT.shape[-1], params["span"][:, None]
        bank_S = samples_for(params, self.recordings, batch.sample_rate, x_BCT.device, samples)
        noise_BT = windows(bank_S, params["place"], samples)
        if not params["repeats"] and batch.padded_to is None:
            return noise_BT, rms(noise_BT, params["span"])
        time_T = torch.arange(samples, device=x_BCT.device, dtype=torch.int32)
        once_BT = torch.where(time_T < span_B1.int(), noise_BT, 0.0)
        rms_B = rms(once_BT, params["span"])
        return (once_BT.gather(1, time_T % span_B1) if params["repeats"] else once_BT), rms_B

    def _unit_noise(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Return the excerpts at level 1."""
        noise_BT, rms_B = self._noise(x_BCT, params, batch)
        return noise_BT * gain_to(torch.ones_like(rms_B), rms_B)[:, None]

    def torch_audiomentations(self) -> TorchAudiomentationsOp | None:
        if self.noise_rms == "absolute":
            return None
        return TorchAudiomentationsOp(
            "AddBackgroundNoise",
            lambda x_BCT, params, batch: {
                "background": self._unit_noise(x_BCT, params, batch),
                "snr_in_db": params["snr_db"],
            },
            {"background_paths": ["never-read.wav"]},
            differs="fed with clips in memory, since it cannot read files any more; then the same for mono",
        )


@primitive
def _with_noise(x_BCT: torch.Tensor, op: AddBackgroundNoise, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
    """Add the excerpts at their levels."""
    level_B = params["ratio"]
    if op.noise_rms == "relative":
        level_B = level(x_BCT, batch.lengths_B) * level_B
    noise_BT, rms_B = op._noise(x_BCT, params, batch)
    return added_at(x_BCT, noise_BT[:, None], level_B, rms_B)


@_with_noise.loop(when=lambda x_BCT, *_: x_BCT.shape[1] == 1)
def _with_noise_by_loop(
    x_B1T: torch.Tensor, op: AddBackgroundNoise, params: Params, batch: DeviceBatchInfo
) -> torch.Tensor:
    bank_S = samples_for(params, op.recordings, batch.sample_rate, x_B1T.device, x_B1T.shape[-1])
    excerpts, is_relative = (bank_S, params["place"], params["span"]), op.noise_rms == "relative"
    return add_excerpts_by_loop(x_B1T, *excerpts, params["ratio"], batch.lengths_B, is_relative, batch.out(x_B1T))
