"""RepeatPart: a part of the sound said twice, or more often.

Shapes: B examples, C channels, T samples, K segments.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
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
from audioaug.dsp.fades import crossfaded_segments
from audioaug.dsp.windows import join_segments
from audioaug.errors import ChainError

Integers = NDArray[np.int64]

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
        crossfade_duration: of the fades at each seam, in seconds: 0 for none, else from 0.00025 to half the shortest
            part.
        part_transform: not supported; ``Chain.from_audiomentations`` keeps it, and runs the op in the workers.
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
            **dict.fromkeys(("start", "part", "repeats", "drawn_repeats"), HOST_ONLY),
            **dict.fromkeys(("begins", "bys", "same_sound"), INTS),
            **dict.fromkeys(("fade", "longest"), STATIC),
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
        repeats = drawn_repeats = draw["repeats"].astype(np.int64)
        if self.mode == "replace":  # the last repeat is the first that reaches beyond the end
            repeats = np.clip((batch.lengths - fade - first) // part + 1, 1, repeats)
        length_out = batch.lengths + np.where(fits, repeats * part, 0) if self.mode == "insert" else batch.lengths
        return {
            "part": part,
            "start": np.where(fits, start, NEVER),
            "repeats": repeats,
            "drawn_repeats": drawn_repeats,
            **self._segments(np.where(fits, first, NEVER), part, repeats),
            "fade": fade,
            "longest": int(length_out.max()),
            **({"length_out": length_out} if self.mode == "insert" else {}),
        }

    def _segments(self, first: Integers, part: Integers, repeats: Integers) -> dict[str, Integers]:
        """Return where each example's segments begin, and by how much they are later, one example after the other.

        From sample ``first`` on, pieces follow each other, ``part`` samples after the one before each: the repeats,
        then the rest of the clip, which, when inserted before, continues the last repeat.
        """
        insert, piece_K = self.mode == "insert", np.arange(int(repeats.max(initial=0)) + 1)
        part_B1, repeats_B1 = part[:, None], repeats[:, None]
        begin_BK, by_BK = np.zeros((2, len(part), len(piece_K) + 1), dtype=np.int64)  # the first segment's stay 0
        begin_BK[:, 1:] = np.where(piece_K > repeats_B1, NEVER, first[:, None] + piece_K * part_B1)
        by_BK[:, 1:] = part_B1 * np.where(piece_K == repeats_B1, repeats_B1 if insert else 0, piece_K + 1)
        same_sound = repeats + 1 if insert else np.zeros_like(repeats)
        return {"begins": begin_BK.ravel(), "bys": by_BK.ravel(), "same_sound": same_sound}

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
        samples = params["longest"] if self.mode == "insert" else x_BCT.shape[-1]
        begin_BK, by_BK = (params[name].view(len(x_BCT), -1) for name in ("begins", "bys"))
        if not params["fade"]:
            return join_segments(x_BCT, begin_BK, by_BK, samples)
        return crossfaded_segments(x_BCT, begin_BK, by_BK, params["same_sound"], samples, params["fade"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        start, part, longer = params["start"], params["part"], params.get("length_out", length)
        if start == NEVER:
            return Timeline.identity(length)
        again = [start + part * (k + 1) for k in range(params["repeats"])]
        remainder = start + part * (params["repeats"] + 1)
        since = start + part if self.mode == "insert" else remainder
        pieces = [(0, start + part, 0, start + part), *((start, start + part, place, place + part) for place in again)]
        return Timeline([*pieces, (since, length, remainder, remainder + length - since)], length, longer)
