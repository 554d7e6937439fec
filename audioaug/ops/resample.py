"""Resample: the same sound in more or fewer samples.

Shapes: B examples, C channels, T samples.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    LENGTHS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    ParamType,
    Timeline,
    UniformInt,
)
from audioaug.dsp.resample import fixed_ratio, reach_of, resample
from audioaug.dsp.windows import silence_past_ends

LENGTH_STEP = 1024
"""Results are computed for a multiple of this many samples, so that shapes repeat."""

RESAMPLING: dict[str, ParamType] = {"ratio": INTS, "samples_out": STATIC, "reach": STATIC}
"""The types of what ``resampling`` returns."""


def resampling(old_rate: NDArray[np.float64], new_rate: NDArray[np.float64], length_out: NDArray[np.int64]) -> Params:
    """Return the arguments of ``dsp.resample.resample`` for rates and lengths after it, (B,) each."""
    return {
        "ratio": fixed_ratio(old_rate, new_rate),
        "samples_out": math.ceil(int(length_out.max(initial=1)) / LENGTH_STEP) * LENGTH_STEP,
        "reach": reach_of(float((new_rate / old_rate).min(initial=1.0))),
    }


@dataclass(frozen=True, kw_only=True)
class Resample(Op):
    """Convert an example to a random sample rate. The length changes; played at the old rate it has another pitch.

    Args:
        min_sample_rate: lowest rate, in Hz, at least 1.
        max_sample_rate: highest rate, in Hz.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Resample``, that is soxr (``librosa.resample``). Differs in soxr's transition band (the
    top tenth below the lower of both Nyquist frequencies; little, but for ratios from 4 to 4.25, where soxr's begins
    lower) and in the first few samples of a clip that begins with a jump: between its stages soxr forgets what lies
    before time 0. Where the exact length ends in .5, soxr sometimes returns one sample less, and audiomentations adds
    a zero.
    """

    min_sample_rate: int = 8000
    max_sample_rate: int = 44100

    contract = Contract.spectral(rtol=5e-4, band=0.9, band_rtol=5e-2)
    limits = {"min_sample_rate": (1, float("inf"))}
    capabilities = Capabilities(needs_length=True, changes_length=True, changes_timing=True)
    param_types = {
        "target_sample_rate": HOST_ONLY,
        "sounding": INTS,
        "length_out": LENGTHS,
        **RESAMPLING,
    }

    def distributions(self) -> dict[str, Distribution]:
        return {"target_sample_rate": UniformInt(self.min_sample_rate, self.max_sample_rate)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        target = draw["target_sample_rate"]
        # librosa promises the exact length rounded up, soxr returns it rounded: then the last sample is a zero.
        length = np.ceil(batch.lengths * (target / batch.sample_rate)).astype(np.int64)
        return {
            "target_sample_rate": target.astype(np.int64),
            "sounding": np.floor(batch.lengths * target / batch.sample_rate + 0.5).astype(np.int64),
            "length_out": length,
            **resampling(np.full_like(target, batch.sample_rate), target, length),
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"target_sample_rate": params["target_sample_rate"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        y_BCT = resample(x_BCT, params["ratio"], params["samples_out"], batch.lengths_B, params["reach"])
        return silence_past_ends(y_BCT, params["sounding"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        sounding = length * params["target_sample_rate"] / sample_rate
        return Timeline([(0, length, 0, sounding)], length, params["length_out"])
