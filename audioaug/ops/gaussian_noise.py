"""AddGaussianNoise and AddGaussianSNR: white noise of a random level, absolute or relative to the example's.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    DRAWN_INTS,
    FLOATS,
    NOISE_KEY,
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    TorchAudiomentationsOp,
    Uniform,
)
from audioaug.core.draws import numpy_seeded
from audioaug.dsp.levels import db_to_ratio, level
from audioaug.dsp.noise import with_gaussian


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Op, registry=None):
    """What both have."""

    contract = Contract.statistical(level_db=0.3)

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        with numpy_seeded(params["noise_key"]):
            return super().apply_reference(reference, params, samples, sample_rate)


@dataclass(frozen=True, kw_only=True)
class AddGaussianNoise(GaussianNoise):
    """Add normally distributed noise whose standard deviation is drawn, whatever the level of the example.

    Args:
        min_amplitude: smallest standard deviation, at least 1e-12.
        max_amplitude: largest standard deviation.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AddGaussianNoise``.
    """

    min_amplitude: float = 0.001
    max_amplitude: float = 0.015

    limits = {"min_amplitude": (1e-12, float("inf"))}

    def distributions(self) -> dict[str, Distribution]:
        return {"amplitude": Uniform(self.min_amplitude, self.max_amplitude), "noise_key": NOISE_KEY}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"amplitude": params["amplitude"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return with_gaussian(x_BCT, params["noise_key"], params["amplitude"], batch.out(x_BCT))


@dataclass(frozen=True, kw_only=True)
class AddGaussianSNR(GaussianNoise):
    """Add normally distributed noise that lies ``snr_db`` below the example's level (the mean of its channels' RMS).

    Args:
        min_snr_db: lowest signal-to-noise ratio, in dB: the most noise.
        max_snr_db: highest signal-to-noise ratio, in dB.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AddGaussianSNR``.
    """

    min_snr_db: float = 5.0
    max_snr_db: float = 40.0

    param_types = {"snr_db": FLOATS, "ratio": FLOATS, "noise_key": DRAWN_INTS}

    def distributions(self) -> dict[str, Distribution]:
        return {"snr_db": Uniform(self.min_snr_db, self.max_snr_db), "noise_key": NOISE_KEY}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        return {**draw, "ratio": db_to_ratio(-draw["snr_db"])}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        rms = np.sqrt(np.mean(np.square(samples, dtype=np.float64), axis=-1)).mean()
        return {"noise_std": float(rms / 10 ** (params["snr_db"] / 20))}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        std_B = level(x_BCT, batch.lengths_B) * params["ratio"]
        return with_gaussian(x_BCT, params["noise_key"], std_B, batch.out(x_BCT))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "AddColoredNoise",
            lambda x_BCT, params, batch: {
                "snr_in_db": params["snr_db"],
                "f_decay": torch.zeros_like(params["snr_db"]),
            },
            differs="one second of noise repeated, the same on all channels; level set for each channel alone",
            seed_from="noise_key",
        )
