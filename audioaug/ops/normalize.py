"""Normalize: the gain that brings an example's peak to full scale.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Contract, DeviceBatchInfo, Op, Params, TorchAudiomentationsOp
from audioaug.dsp.levels import normalize


@dataclass(frozen=True, kw_only=True)
class Normalize(Op):
    """Divide an example by its highest absolute sample over all channels. Silence stays as it is.

    Args:
        apply_to: ``"all"``, or ``"only_too_loud_sounds"`` for examples whose peak is 1.0 or more.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Normalize``.
    """

    apply_to: Literal["all", "only_too_loud_sounds"] = "all"

    contract = Contract.exact(rtol=1e-6)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"max_amplitude": float(np.abs(samples).max(initial=0.0))}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return normalize(x_BCT, self.apply_to == "only_too_loud_sounds", batch.out(x_BCT))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "PeakNormalization", _library_parameters(self.apply_to), {"apply_to": self.apply_to}
        )


def _library_parameters(apply_to: str) -> Any:
    def parameters(x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> dict[str, torch.Tensor]:
        peak_B = x_BCT.abs().amax(dim=(1, 2))
        selector_B = peak_B > (0.0 if apply_to == "all" else 1.0)
        return {"selector": selector_B, "divisors": peak_B[selector_B][:, None, None]}

    return parameters
