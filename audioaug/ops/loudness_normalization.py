"""LoudnessNormalization: the gain that brings an example to a random loudness.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Contract, DeviceBatchInfo, Distribution, Op, Params, Uniform
from audioaug.dsp.loudness import gain_to_loudness

SHORTEST_S = 0.4


@dataclass(frozen=True, kw_only=True)
class LoudnessNormalization(Op):
    """Multiply an example so that its integrated loudness (ITU-R BS.1770-4) is ``lufs``. Nothing is clipped.

    A clip that never reaches -70 LUFS stays as it is.

    Args:
        min_lufs: least loudness, in LUFS.
        max_lufs: greatest loudness, in LUFS.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.LoudnessNormalization`` with the package ``loudness``. Deviation: it raises if a clip
    is shorter than 0.4 s; here such a clip stays as it is, in both builds.
    """

    min_lufs: float = -31.0
    max_lufs: float = -13.0

    # The loudness itself is a sum of whole bins of 0.1 dB, the same here and there: see audioaug.dsp.loudness.
    contract = Contract.exact(rtol=2e-6)

    def distributions(self) -> dict[str, Distribution]:
        return {"lufs": Uniform(self.min_lufs, self.max_lufs)}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        import loudness

        measurable = samples.shape[-1] >= SHORTEST_S * sample_rate
        lufs = loudness.integrated_loudness(samples.transpose(), sample_rate) if measurable else -np.inf
        return {"loudness": lufs, "lufs": params["lufs"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        gain_B = gain_to_loudness(x_BCT, batch.lengths_B, params["lufs"], batch.sample_rate)
        return x_BCT * gain_B[:, None, None]
