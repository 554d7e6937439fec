"""RepeatPart: a part of the sound said twice, or more often.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import FRACTION, Contract, DeviceClips, Distribution, HostClips, Op, Params, Timeline, UniformInt
from audioaug.dsp.fades import crossfade
from audioaug.errors import ChainError

SHORTEST = 0.00025
NEVER = 2**40
"""A sample number that no clip reaches."""


@dataclass(frozen=True, kw_only=True)
class RepeatPart(Op):
    """Repeat a random part of a clip, either between it and the rest (the clip becomes longer) or over the rest.

    Nothing happens to a clip that is too short for the part drawn.

    Args:
        min_repeats: fewest repeats in addition to the part itself, at least 1.
        max_repeats: most repeats.
        min_part_duration: shortest part, in seconds, at least 0.00025.
        max_part_duration: longest part.
        mode: ``"insert"`` or ``"replace"``.
        crossfade_duration: of the fades at each seam, in seconds, at most half the shortest part; 0 for none.
        part_transform: not here; ``Chain.from_audiomentations`` takes it, and runs the transform in the workers.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.RepeatPart``, which fails if the part ends less than half a crossfade before the clip
    does, or (``"insert"``) exactly where it ends: here the part begins early enough.
    """

    min_repeats: int = 1
    max_repeats: int = 3
    min_part_duration: float = 0.25
    max_part_duration: float = 1.2
    mode: Literal["insert", "replace"] = "insert"
    crossfade_duration: float = 0.005
    part_transform: None = None

    contract = Contract.exact(rtol=1e-6)
    needs_length = True
    limits = {
        "min_repeats": (1, float("inf")),
        "min_part_duration": (SHORTEST, float("inf")),
        "crossfade_duration": (0.0, float("inf")),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part_transform is not None:
            raise ChainError(
                "RepeatPart: part_transform is not supported here.",
                "Use Chain.from_audiomentations, which keeps it in the workers.",
            )
        if 0 < self.crossfade_duration < SHORTEST or self.crossfade_duration > self.min_part_duration / 2:
            raise ChainError(
                f"RepeatPart: crossfade_duration is {self.crossfade_duration}, but it must be 0, or at least "
                f"{SHORTEST} and at most half of min_part_duration ({self.min_part_duration / 2})."
            )

    def distributions(self) -> dict[str, Distribution]:
        return {
            "part_share": FRACTION,
            "start_share": FRACTION,
            "repeats": UniformInt(self.min_repeats, self.max_repeats),
        }

    def resolve(self, draw: Params, clips: HostClips) -> Params:
        low, high = (int(part * clips.sample_rate) for part in (self.min_part_duration, self.max_part_duration))
        part = low + np.floor(draw["part_share"] * (high - low + 1)).astype(np.int64)
        fade = self._fade(clips.sample_rate)
        spare = clips.lengths - part - fade // 2 - (self.mode == "insert")  # the latest start
        fits = spare >= fade // 2
        start = fade // 2 + np.floor(draw["start_share"] * (spare - fade // 2 + 1)).astype(np.int64)
        first = start + part - fade // 2  # where the first repeat begins to fade in
        repeats = draw["repeats"].astype(np.int64)
        if self.mode == "replace":  # the last repeat is the first that reaches beyond the end
            repeats = np.clip((clips.lengths - fade - first) // part + 1, 1, repeats)
        longer = np.where(fits, repeats * part, 0) if self.mode == "insert" else 0
        return {
            "part": part,
            "start": np.where(fits, start, NEVER),
            "first": np.where(fits, first, NEVER),
            "repeats": repeats,
            "drawn_repeats": draw["repeats"].astype(np.int64),
            "fade": fade,
            "longest": int((clips.lengths + longer).max()),
            **({"length_out": clips.lengths + longer} if self.mode == "insert" else {}),
        }

    def _fade(self, sample_rate: int) -> int:
        """Return the length of a crossfade: an even number of samples."""
        samples = int(self.crossfade_duration * sample_rate)
        return max(2, samples + samples % 2) if self.crossfade_duration else 0

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        if params["start"] == NEVER:
            return {"should_apply": False, "part_num_samples": params["part"]}
        return {
            "part_num_samples": params["part"],
            "part_start_index": params["start"],
            "repeats": params["drawn_repeats"],
        }

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> torch.Tensor:
        # From sample `first` on, pieces follow each other, each `part` samples after the one before: the repeats, then
        # the rest of the clip. Where one begins, it fades in over the one before.
        samples = params["longest"] if self.mode == "insert" else x_BCT.shape[-1]
        time_T = torch.arange(samples, device=x_BCT.device)
        since_BT = time_T - params["first"][:, None]
        part_B1, repeats_B1, fade = params["part"][:, None], params["repeats"][:, None], params["fade"]
        piece_BT = torch.minimum(since_BT.div(part_B1, rounding_mode="floor").clamp(min=-1), repeats_B1)
        y_BCT = _take(x_BCT, self._source(time_T, piece_BT, params))
        if not fade:
            return y_BCT
        within_BT = since_BT - piece_BT * part_B1
        before_BCT = _take(x_BCT, self._source(time_T, piece_BT - 1, params))
        mixed_BCT = self._mix(y_BCT, before_BCT, within_BT, piece_BT == repeats_B1, fade)
        return torch.where(((piece_BT >= 0) & (within_BT < fade))[:, None], mixed_BCT, y_BCT)

    def _source(self, time_T: torch.Tensor, piece_BT: torch.Tensor, params: Params) -> torch.Tensor:
        """Return which sample of the clip a piece has at each time: a repeat, or (before, behind) the clip itself."""
        part_B1, repeats_B1 = params["part"][:, None], params["repeats"][:, None]
        rest_B1 = repeats_B1 * part_B1 if self.mode == "insert" else torch.zeros_like(part_B1)
        shift_BT = torch.where(piece_BT < repeats_B1, (piece_BT + 1) * part_B1, rest_B1)
        return time_T - torch.where(piece_BT < 0, 0, shift_BT)

    def _mix(
        self, y_BCT: torch.Tensor, before_BCT: torch.Tensor, within_BT: torch.Tensor, rest_BT: torch.Tensor, fade: int
    ) -> torch.Tensor:
        """Crossfade from the piece before; the rest of the clip, when inserted before, continues the last repeat."""
        fade_in_BT, fade_out_BT = (
            torch.where(
                rest_BT & (self.mode == "insert"),
                crossfade(position_BT, fade, equal_energy=False),
                crossfade(position_BT, fade, equal_energy=True),
            )
            for position_BT in (within_BT, fade - 1 - within_BT)
        )
        return y_BCT * fade_in_BT[:, None] + before_BCT * fade_out_BT[:, None]

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        start, part, longer = params["start"], params["part"], params.get("length_out", length)
        if start == NEVER:
            return Timeline.identity(length)
        again = [start + part * (k + 1) for k in range(params["repeats"])]
        rest = start + part * (params["repeats"] + 1)
        since = start + part if self.mode == "insert" else rest
        pieces = [(0, start + part, 0, start + part), *((start, start + part, place, place + part) for place in again)]
        return Timeline([*pieces, (since, length, rest, rest + length - since)], length, longer)


def _take(x_BCT: torch.Tensor, source_BT: torch.Tensor) -> torch.Tensor:
    return x_BCT.gather(-1, source_BT.clamp(0, max(0, x_BCT.shape[-1] - 1))[:, None].expand(-1, x_BCT.shape[1], -1))
