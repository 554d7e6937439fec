"""AirAbsorption: high frequencies get lost on their way through air.

Shapes: B examples, C channels, T samples, F frequencies.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    STATIC,
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Uniform,
    UniformInt,
)
from audioaug.dsp.stft import masked_spectrum
from audioaug.errors import ChainError

CENTRES_HZ = (125, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000)
# Attenuation per kilometre in nepers at these frequencies. Source: the air absorption table of pyroomacoustics
# (https://github.com/LCAV/pyroomacoustics), with the two columns that audiomentations 0.43.1 extrapolates from it.
# Temperature (10, 20 degrees Celsius) by relative humidity (30-50, 50-70, 70-90 %).
PER_KILOMETRE = np.array(
    [
        [
            [0.1, 0.2, 0.5, 1.1, 2.7, 9.4, 29.0, 91.5, 289.0],
            [0.1, 0.2, 0.5, 0.8, 1.8, 5.9, 21.1, 76.6, 280.2],
            [0.1, 0.2, 0.5, 0.7, 1.4, 4.4, 15.8, 58.0, 214.9],
        ],
        [
            [0.1, 0.3, 0.6, 1.0, 1.9, 5.8, 20.3, 72.3, 259.9],
            [0.1, 0.3, 0.6, 1.0, 1.7, 4.1, 13.5, 44.4, 148.7],
            [0.1, 0.3, 0.6, 1.1, 1.7, 3.5, 10.6, 31.2, 93.8],
        ],
    ]
)


@dataclass(frozen=True, kw_only=True)
class AirAbsorption(Op):
    """Attenuate frequencies as air does over a random distance. The level itself does not fall with distance.

    Args:
        min_temperature: lowest temperature, 10 or 20 degrees Celsius.
        max_temperature: highest temperature, 10 or 20 degrees Celsius.
        min_humidity: least relative humidity, 30 to 90 %.
        max_humidity: greatest relative humidity, 30 to 90 %.
        min_distance: shortest distance, in metres, 0.001 to 2500.
        max_distance: longest distance, in metres.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AirAbsorption``.
    """

    min_temperature: float = 10.0
    max_temperature: float = 20.0
    min_humidity: float = 30.0
    max_humidity: float = 90.0
    min_distance: float = 10.0
    max_distance: float = 100.0

    contract = Contract.exact(rtol=1e-5)
    param_types = {
        "tens_of_degrees": HOST_ONLY,
        "humidity": HOST_ONLY,
        "distance": HOST_ONLY,
        "mask": FLOATS,
        "n_fft": STATIC,
    }
    limits = {
        "min_humidity": (30.0, 90.0),
        "max_humidity": (30.0, 90.0),
        "min_distance": (1e-3, 2500.0),
        "max_distance": (1e-3, 2500.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_temperature", "max_temperature"):
            if getattr(self, name) not in (10, 20):
                raise ChainError(f"AirAbsorption: {name} is {getattr(self, name):g}, but it must be 10 or 20.")

    def distributions(self) -> dict[str, Distribution]:
        return {
            "tens_of_degrees": UniformInt(int(self.min_temperature) // 10, int(self.max_temperature) // 10),
            "humidity": UniformInt(int(self.min_humidity), int(self.max_humidity)),
            "distance": Uniform(self.min_distance, self.max_distance),
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        """Add each row's mask, all in one flat array, and the FFT size that leaves the lowest band one bin."""
        n_fft = 1 << (int(batch.sample_rate / 2 / (CENTRES_HZ[0] / 2**0.5)) - 1).bit_length()
        dampness = np.searchsorted((50, 70), draw["humidity"])
        per_km_BF = _per_kilometre(batch.sample_rate, n_fft)[draw["tens_of_degrees"].astype(np.int64) - 1, dampness]
        mask_BF = np.exp(-1e-3 * draw["distance"][:, None] * per_km_BF)
        return {**draw, "mask": mask_BF.reshape(-1), "n_fft": n_fft}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        whole = {"temperature": 10 * int(params["tens_of_degrees"]), "humidity": int(params["humidity"])}
        return {**whole, "distance": params["distance"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        mask_BF = params["mask"].reshape(len(x_BCT), -1)
        return masked_spectrum(x_BCT, batch.lengths_B, mask_BF, params["n_fft"])


@lru_cache(maxsize=8)
def _per_kilometre(sample_rate: int, n_fft: int) -> NDArray[np.float64]:
    """Return ``PER_KILOMETRE`` at the frequencies of an FFT: (2, 3, F)."""
    frequencies = np.arange(n_fft // 2 + 1) * sample_rate / n_fft
    return np.apply_along_axis(lambda row: np.interp(frequencies, CENTRES_HZ, row), -1, PER_KILOMETRE)
