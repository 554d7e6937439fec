"""LowPassFilter: what lies above a random frequency is attenuated.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Distribution,
    MelUniform,
    Op,
    Params,
    TorchAudiomentationsOp,
)
from audioaug.dsp.biquads import Section
from audioaug.dsp.filters import Kind
from audioaug.ops import _butterworth


@dataclass(frozen=True, kw_only=True)
class LowPassFilter(Op):
    """Filter with a Butterworth low-pass of random cutoff (evenly spread in mels) and steepness.

    Args:
        min_cutoff_freq: lowest cutoff (-3 dB; -6 dB with zero phase), in Hz.
        max_cutoff_freq: highest cutoff, in Hz. A cutoff above half the sample rate is moved just below it.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.LowPassFilter``.
    """

    min_cutoff_freq: float = 150.0
    max_cutoff_freq: float = 7500.0
    min_rolloff: int = 12
    max_rolloff: int = 24
    zero_phase: bool = False

    kind: ClassVar[Kind] = "lowpass"
    contract = Contract.exact(rtol=1e-5)
    limits = {"min_cutoff_freq": (1e-3, float("inf"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        _butterworth.check_rolloff(self)

    def distributions(self) -> dict[str, Distribution]:
        cutoff = MelUniform(self.min_cutoff_freq, self.max_cutoff_freq)
        return {"cutoff_freq": cutoff, **_butterworth.order_distribution(self)}

    def resolve(self, draw: Params, clips: BatchInfo) -> Params:
        return _butterworth.resolved(self, draw, clips)

    @property
    def linear(self) -> bool:
        return not self.zero_phase

    def sections(self, draw: Params, clips: BatchInfo) -> list[Section]:
        return _butterworth.sections(self, draw, clips)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"cutoff_freq": params["cutoff_freq"], "rolloff": _butterworth.rolloff(self, params)}

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return _butterworth.run(self, x_BCT, params, clips)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "LowPassFilter",
            lambda x_BCT, params, clips: {"cutoff_freq": params["low_hz"]},
            differs=_butterworth.TORCH_AUDIOMENTATIONS_DIFFERS,
        )
