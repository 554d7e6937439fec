"""Limiter: peaks above a random threshold pressed down to it.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Uniform,
)
from audioaug.core.distributions import FloatArray
from audioaug.dsp.levels import peak
from audioaug.dsp.limiter import limit
from audioaug.errors import ChainError

DELAY_STEP = 256
"""The batch is padded by a multiple of this many samples, so that sizes repeat."""

SILENCE = 1e-36
"""No threshold is below this: that of silence would be 0."""


@dataclass(frozen=True, kw_only=True)
class Limiter(Op):
    """Follow each channel's peaks with an envelope, and turn the channel down while that is above the threshold.

    The gain approaches threshold / envelope, and 1 below the threshold, exponentially. It is ahead of the audio by 60 %
    of the attack time, and the audio itself is not delayed. The threshold is the same for all channels of an example.

    Args:
        min_threshold_db: lowest threshold, in dB.
        max_threshold_db: highest threshold, in dB.
        min_attack: least time, in seconds, greater than 0, in which the gain goes 99.9 % of its way.
        max_attack: greatest such time.
        min_release: least time, in seconds, greater than 0, in which the envelope falls by 60 dB.
        max_release: greatest such time.
        threshold_mode: ``"relative_to_signal_peak"`` (of all channels) or ``"absolute"``: relative to 1.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Limiter``, whose steps are rounded to float32 one after the other: what that adds up to
    (3e-6 of the peak; 1e-5 for attacks of seconds) is all the difference.
    """

    min_threshold_db: float = -24.0
    max_threshold_db: float = -2.0
    min_attack: float = 0.0005
    max_attack: float = 0.025
    min_release: float = 0.05
    max_release: float = 0.7
    threshold_mode: Literal["relative_to_signal_peak", "absolute"] = "relative_to_signal_peak"

    contract = Contract.exact(rtol=1e-5)
    param_types = {
        "threshold_db": HOST_ONLY,
        "threshold": FLOATS,
        "log_attack": FLOATS,
        "attack_share": FLOATS,
        "log_release": FLOATS,
        "delay": INTS,
        "longest_delay": STATIC,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_attack", "min_release"):
            if getattr(self, name) <= 0:
                raise ChainError(f"Limiter: {name} is {getattr(self, name):g}, but it must be greater than 0.")

    def distributions(self) -> dict[str, Distribution]:
        return {
            "threshold_db": Uniform(self.min_threshold_db, self.max_threshold_db),
            "attack_seconds": Uniform(self.min_attack, self.max_attack),
            "release_seconds": Uniform(self.min_release, self.max_release),
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        delay_B = np.maximum(np.rint(0.6 * draw["attack_seconds"] * batch.sample_rate), 1).astype(np.int64)
        log_attack_B = _log_coefficient(draw["attack_seconds"], batch.sample_rate)
        return {
            "threshold_db": draw["threshold_db"],
            "threshold": 10 ** (draw["threshold_db"] / 20),
            "log_attack": log_attack_B,
            "attack_share": -np.expm1(log_attack_B),
            "log_release": _log_coefficient(draw["release_seconds"], batch.sample_rate),
            "delay": delay_B,
            "longest_delay": -(-int(delay_B.max()) // DELAY_STEP) * DELAY_STEP,
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        full = float(np.abs(samples).max()) if self.threshold_mode == "relative_to_signal_peak" else 1.0
        return {
            "attack": float(np.exp(params["log_attack"])),
            "release": float(np.exp(params["log_release"])),
            "delay": params["delay"],
            "threshold": full * 10 ** (params["threshold_db"] / 20),
        }

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        threshold_B = params["threshold"]
        if self.threshold_mode == "relative_to_signal_peak":
            threshold_B = threshold_B * peak(x_BCT).flatten()
        numbers = (params[name] for name in ("log_attack", "attack_share", "log_release", "delay", "longest_delay"))
        return limit(x_BCT, batch.lengths_B, threshold_B.clamp(min=SILENCE), *numbers)


def _log_coefficient(seconds_B: FloatArray, sample_rate: int) -> FloatArray:
    """Return the logarithm of what -60 dB in that time is for each sample, as the reference rounds it, to float32."""
    coefficient_B = 10.0 ** (-3.0 / np.maximum(seconds_B * sample_rate, 1.0))
    return np.log(coefficient_B.astype(np.float32).astype(np.float64))
