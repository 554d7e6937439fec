"""BandStopFilter: what lies inside a random band is attenuated.

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
    Uniform,
)
from audioaug.dsp.biquads import Section
from audioaug.dsp.filters import Kind
from audioaug.ops import _butterworth


@dataclass(frozen=True, kw_only=True)
class BandStopFilter(Op):
    """Filter with a Butterworth band-stop of random centre (evenly spread in mels), width and steepness.

    Args:
        min_center_freq: lowest centre of the band, in Hz.
        max_center_freq: highest centre of the band, in Hz.
        min_bandwidth_fraction: smallest width of the band, as a share of its centre, above 0.
        max_bandwidth_fraction: greatest width of the band, below 2.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.BandStopFilter``.
    """

    min_center_freq: float = 200.0
    max_center_freq: float = 4000.0
    min_bandwidth_fraction: float = 0.5
    max_bandwidth_fraction: float = 1.99
    min_rolloff: int = 12
    max_rolloff: int = 24
    zero_phase: bool = False

    kind: ClassVar[Kind] = "bandstop"
    contract = Contract.exact(rtol=1e-5)
    limits = {
        "min_center_freq": (1e-3, float("inf")),
        "min_bandwidth_fraction": (1e-6, 2.0),
        "max_bandwidth_fraction": (1e-6, 1.999999),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _butterworth.check_rolloff(self)

    def distributions(self) -> dict[str, Distribution]:
        return {
            "center_freq": MelUniform(self.min_center_freq, self.max_center_freq),
            "bandwidth_fraction": Uniform(self.min_bandwidth_fraction, self.max_bandwidth_fraction),
            **_butterworth.order_distribution(self),
        }

    def resolve(self, draw: Params, clips: BatchInfo) -> Params:
        return _butterworth.resolved(self, draw, clips)

    @property
    def linear(self) -> bool:
        return not self.zero_phase

    def sections(self, draw: Params, clips: BatchInfo) -> list[Section]:
        return _butterworth.sections(self, draw, clips)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {
            "center_freq": params["center_freq"],
            "bandwidth": params["center_freq"] * params["bandwidth_fraction"],
            "rolloff": _butterworth.rolloff(self, params),
        }

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return _butterworth.run(self, x_BCT, params, clips)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "BandStopFilter",
            _butterworth.torch_audiomentations_band,
            differs=_butterworth.TORCH_AUDIOMENTATIONS_DIFFERS,
        )
