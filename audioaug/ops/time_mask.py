"""TimeMask: a random segment of the example made silent.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FRACTION,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
)
from audioaug.dsp.fades import silence_segment
from audioaug.errors import ChainError

SHORTEST_FADE = 0.00025


@dataclass(frozen=True, kw_only=True)
class TimeMask(Op):
    """Silence one segment of an example, with fades inside the segment.

    Args:
        min_band_part: least length of the segment, as a share of the clip, 0 to 1.
        max_band_part: greatest length of the segment.
        fade_duration: length of each fade, in seconds; 0 for none, else at least 0.00025.
        mask_location: ``"start"``, ``"end"`` or ``"random"``.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.TimeMask``.
    """

    min_band_part: float = 0.01
    max_band_part: float = 0.2
    fade_duration: float = 0.005
    mask_location: Literal["start", "end", "random"] = "random"

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(keeps_silence=True, needs_length=True)
    param_types = {"t": INTS, "t0": INTS, "fade": INTS, "longest_fade": STATIC}
    limits = {"min_band_part": (0.0, 1.0), "max_band_part": (0.0, 1.0), "fade_duration": (0.0, float("inf"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.fade_duration < SHORTEST_FADE:
            raise ChainError(
                f"TimeMask: fade_duration is {self.fade_duration}, but it must be 0 or at least {SHORTEST_FADE}."
            )

    def distributions(self) -> dict[str, Distribution]:
        return {"length_share": FRACTION, "start_share": FRACTION}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        shortest, longest = (
            (batch.lengths * part).astype(np.int64) for part in (self.min_band_part, self.max_band_part)
        )
        t = shortest + (draw["length_share"] * (longest - shortest + 1)).astype(np.int64)
        last = batch.lengths - t
        t0 = {"start": 0 * last, "end": last, "random": (draw["start_share"] * (last + 1)).astype(np.int64)}
        longest_fade = max(1, round(batch.sample_rate * self.fade_duration))  # of 1 sample: none
        fade = np.minimum(longest_fade, t // 2).clip(min=1)
        return {"t": t, "t0": t0[self.mask_location], "fade": fade, "longest_fade": longest_fade}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"t": int(params["t"]), "t0": int(params["t0"])}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        y_BCT = x_BCT if batch.is_overwritable else x_BCT.clone()
        return silence_segment(y_BCT, params["t0"], params["t"], params["fade"], params["longest_fade"])
