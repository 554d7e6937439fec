"""TimeMask: a random stretch of the example made silent.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import FRACTION, Contract, DeviceClips, Distribution, HostClips, Op, Params
from audioaug.dsp.fades import crossfade
from audioaug.dsp.windows import BLOCK, read, write
from audioaug.errors import ChainError

SHORTEST_FADE = 0.00025


@dataclass(frozen=True, kw_only=True)
class TimeMask(Op):
    """Silence one stretch of an example, with fades inside the stretch.

    Args:
        min_band_part: least length of the stretch, as a share of the clip, 0 to 1.
        max_band_part: greatest length of the stretch.
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
    keeps_silence = True
    needs_length = True
    limits = {"min_band_part": (0.0, 1.0), "max_band_part": (0.0, 1.0), "fade_duration": (0.0, float("inf"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.fade_duration < SHORTEST_FADE:
            raise ChainError(
                f"TimeMask: fade_duration is {self.fade_duration}, but it must be 0 or at least {SHORTEST_FADE}."
            )

    def distributions(self) -> dict[str, Distribution]:
        return {"length_share": FRACTION, "start_share": FRACTION}

    def resolve(self, draw: Params, clips: HostClips) -> Params:
        shortest, longest = (
            (clips.lengths * part).astype(np.int64) for part in (self.min_band_part, self.max_band_part)
        )
        t = shortest + (draw["length_share"] * (longest - shortest + 1)).astype(np.int64)
        last = clips.lengths - t
        t0 = {"start": 0 * last, "end": last, "random": (draw["start_share"] * (last + 1)).astype(np.int64)}
        longest_fade = max(1, round(clips.sample_rate * self.fade_duration))  # of 1 sample: none
        fade = np.minimum(longest_fade, t // 2).clip(min=1)
        return {"t": t, "t0": t0[self.mask_location], "fade": fade, "longest_fade": longest_fade}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"t": int(params["t"]), "t0": int(params["t0"])}

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> torch.Tensor:
        t_B1, t0_B1, fade_B1 = (params[name][:, None] for name in ("t", "t0", "fade"))
        samples, end_B1 = x_BCT.shape[-1], t0_B1 + t_B1
        # Blocks that lie in the stretch are silent; around its ends, each sample has a gain of its own.
        block_N = torch.arange(0, samples, BLOCK, device=x_BCT.device)
        heard_BN = (block_N < t0_B1) | (block_N + BLOCK > end_B1)
        width = min(samples, BLOCK + params["longest_fade"])
        start_B2 = torch.cat([t0_B1, end_B1 - width], dim=1).clamp(0, samples - width)
        around_BCKW = read(x_BCT, start_B2, width)
        y_BCT, whole = x_BCT if clips.spare else x_BCT.clone(), samples // BLOCK
        y_BCT[..., : whole * BLOCK].unflatten(-1, (whole, BLOCK)).mul_(heard_BN[:, None, :whole, None])
        y_BCT[..., whole * BLOCK :].mul_(heard_BN[:, None, whole:])
        for start_B, around_BCW in zip(start_B2.unbind(1), around_BCKW.unbind(2)):
            after_BW = start_B[:, None] + torch.arange(width, device=x_BCT.device) - t0_B1
            outward_BW = (after_BW - (t_B1 - 1) / 2).abs_() - ((t_B1 + 1) / 2 - fade_B1)
            gain_BW = crossfade(outward_BW, fade_B1, equal_energy=False)
            write(y_BCT, start_B, around_BCW * gain_BW[:, None])
        return y_BCT
