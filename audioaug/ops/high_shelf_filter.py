"""HighShelfFilter: what lies above a random frequency gets louder or softer.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import BatchInfo, Contract, DeviceBatchInfo, Distribution, Op, Params
from audioaug.dsp.biquads import Section
from audioaug.ops import _biquads


@dataclass(frozen=True, kw_only=True)
class HighShelfFilter(Op):
    """Raise or lower everything above a random frequency (evenly spread in mels) by a random gain.

    Args:
        min_center_freq: lowest centre frequency, in Hz.
        max_center_freq: highest centre frequency, in Hz. One above half the sample rate is moved just below it.
        min_gain_db: least gain at half the sample rate, in dB; negative cuts.
        max_gain_db: greatest gain at half the sample rate, in dB.
        min_q: least quality factor, above 0, at most 1; the higher, the steeper.
        max_q: greatest quality factor.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.HighShelfFilter``.
    """

    min_center_freq: float = 300.0
    max_center_freq: float = 7500.0
    min_gain_db: float = -18.0
    max_gain_db: float = 18.0
    min_q: float = 0.1
    max_q: float = 0.999

    contract = Contract.exact(rtol=1e-5)
    limits = _biquads.SHELF_LIMITS

    def distributions(self) -> dict[str, Distribution]:
        return _biquads.distributions(self)

    def resolve(self, draw: Params, clips: BatchInfo) -> Params:
        return {**draw, **_biquads.planned(self.sections(draw, clips), int(clips.lengths.max()))}

    def sections(self, draw: Params, clips: BatchInfo) -> list[Section]:
        return _biquads.sections(("high_shelf",), draw, clips)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return _biquads.replayed(("high_shelf",), params, sample_rate)

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return _biquads.run(x_BCT, params, clips)
