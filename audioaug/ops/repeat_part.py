"""RepeatPart: a part of the sound said twice, or more often.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from audioaug.core import (
    FRACTION,
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
from audioaug.dsp.fades import crossfade
from audioaug.dsp.windows import join_segments, read_around, write
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

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(needs_length=True, changes_length=self.mode == "insert", changes_timing=True)

    @property
    def param_types(self) -> dict[str, ParamType]:
        return {
            **dict.fromkeys(("start", "drawn_repeats"), HOST_ONLY),
            **dict.fromkeys(("part", "first", "repeats"), INTS),
            **dict.fromkeys(("fade", "most_repeats", "longest"), STATIC),
            **({"length_out": LENGTHS} if self.mode == "insert" else {}),
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        low, high = (int(part * batch.sample_rate) for part in (self.min_part_duration, self.max_part_duration))
        part = low + np.floor(draw["part_share"] * (high - low + 1)).astype(np.int64)
        fade = self._fade(batch.sample_rate)
        latest = batch.lengths - part - fade // 2 - (self.mode == "insert")  # the latest start
        fits = latest >= fade // 2
        start = fade // 2 + np.floor(draw["start_share"] * (latest - fade // 2 + 1)).astype(np.int64)
        first = start + part - fade // 2  # where the first repeat begins to fade in
        repeats = draw["repeats"].astype(np.int64)
        if self.mode == "replace":  # the last repeat is the first that reaches beyond the end
            repeats = np.clip((batch.lengths - fade - first) // part + 1, 1, repeats)
        longer = np.where(fits, repeats * part, 0) if self.mode == "insert" else 0
        return {
            "part": part,
            "start": np.where(fits, start, NEVER),
            "first": np.where(fits, first, NEVER),
            "repeats": repeats,
            "drawn_repeats": draw["repeats"].astype(np.int64),
            "fade": fade,
            "most_repeats": int(repeats.max(initial=0)),
            "longest": int((batch.lengths + longer).max()),
            **({"length_out": batch.lengths + longer} if self.mode == "insert" else {}),
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

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        # From sample `first` on, pieces follow each other, each `part` samples after the one before: the repeats, then
        # the rest of the clip. Where one begins, it fades in over the one before.
        samples = params["longest"] if self.mode == "insert" else x_BCT.shape[-1]
        part_B1, repeats_B1, fade = params["part"][:, None], params["repeats"][:, None], params["fade"]
        piece_K = torch.arange(params["most_repeats"] + 1, device=x_BCT.device)
        begin_BK = (params["first"][:, None] + piece_K * part_B1).masked_fill(piece_K > repeats_B1, samples)
        begin_BK, is_remainder_BK = F.pad(begin_BK.clamp(max=samples), (1, 0)), F.pad(piece_K == repeats_B1, (1, 0))
        remainder_B1 = repeats_B1 if self.mode == "insert" else torch.zeros_like(repeats_B1)
        by_BK = F.pad(part_B1 * torch.where(piece_K == repeats_B1, remainder_B1, piece_K + 1), (1, 0))
        y_BCT = join_segments(x_BCT, begin_BK, by_BK, samples)
        return self._faded(x_BCT, y_BCT, begin_BK, by_BK, is_remainder_BK, fade) if fade else y_BCT

    def _faded(
        self,
        x_BCT: torch.Tensor,
        y_BCT: torch.Tensor,
        begin_BK: torch.Tensor,
        by_BK: torch.Tensor,
        is_remainder_BK: torch.Tensor,
        fade: int,
    ) -> torch.Tensor:
        """Crossfade where pieces begin; the rest of the clip, when inserted before, continues the last repeat."""
        within_W = torch.arange(fade, device=x_BCT.device)
        fade_in_BKW, fade_out_BKW = (
            torch.where(
                (is_remainder_BK[:, 1:] & (self.mode == "insert"))[..., None],
                crossfade(position_W, fade, equal_energy=False),
                crossfade(position_W, fade, equal_energy=True),
            )
            for position_W in (within_W, fade - 1 - within_W)
        )
        before_BCKW, piece_BCKW = (
            read_around(x_BCT, begin_BK[:, 1:] - by, fade) for by in (by_BK[:, :-1], by_BK[:, 1:])
        )
        faded_BCKW = piece_BCKW * fade_in_BKW[:, None] + before_BCKW * fade_out_BKW[:, None]
        padded_BCT = F.pad(y_BCT, (0, fade))  # into which the last may reach
        for begin_B, faded_BCW in zip(begin_BK[:, 1:].unbind(1), faded_BCKW.unbind(2)):
            write(padded_BCT, begin_B, faded_BCW)
        return padded_BCT[..., : y_BCT.shape[-1]]

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        start, part, longer = params["start"], params["part"], params.get("length_out", length)
        if start == NEVER:
            return Timeline.identity(length)
        again = [start + part * (k + 1) for k in range(params["repeats"])]
        remainder = start + part * (params["repeats"] + 1)
        since = start + part if self.mode == "insert" else remainder
        pieces = [(0, start + part, 0, start + part), *((start, start + part, place, place + part) for place in again)]
        return Timeline([*pieces, (since, length, remainder, remainder + length - since)], length, longer)
