"""Policy: how many masks SpecAugment draws and how wide they are; the draws by key, and the masks that follow.

All of it is computed on the host, for a whole batch together.

Shapes: B examples, M masks, F frequency bins, N frames, L columns of a table of draws.
"""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Draws, key_numbers
from audioaug.core.chain import integer
from audioaug.core.draws import uniforms
from audioaug.core.fields import check_fields, real_number
from audioaug.errors import ChainError

WARP, FREQUENCY, TIME = 2**31, 2**31 + 1, 2**31 + 2
"""Positions for the generator: those of the ops in a chain count from 0, so no draw is shared with one."""

LARGEST = float(np.finfo(np.float32).max)

INDICES = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What SpecAugment may do to an example. See ``SpecAugment`` for the fields.

    Raises:
        ChainError: a field has another type, or is out of range.
    """

    time_masks: int
    time_mask_width: int | None
    time_mask_share: float
    time_masks_per_frame: float | None
    frequency_masks: int
    frequency_mask_width: int
    time_warp: int
    mask_value: float | str

    name: ClassVar[str] = "SpecAugment"
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        **dict.fromkeys(("time_masks", "time_mask_width", "frequency_masks"), (0.0, math.inf)),
        **dict.fromkeys(("frequency_mask_width", "time_warp"), (0.0, math.inf)),
        **dict.fromkeys(("time_mask_share", "time_masks_per_frame"), (0.0, 1.0)),
    }

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mask_value != "mean":
            value = real_number(self.mask_value)
            if math.isnan(value):
                raise ChainError(f"{self.name}: mask_value is {self.mask_value!r}, but it must be a number or 'mean'.")
            if LARGEST < abs(value) < math.inf:
                raise ChainError(f"{self.name}: mask_value is {value:g}, but float32 holds {LARGEST:.3g} at most.")
            object.__setattr__(self, "mask_value", value)

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))

    @functools.cached_property
    def _addresses(self) -> list[tuple[str, int, int]]:
        """The name, position and lane of each column: two for a mask, so that further masks change no other."""
        names = [("warp", WARP, mask) for mask in range(bool(self.time_warp))]
        names += [("frequency", FREQUENCY, mask) for mask in range(self.frequency_masks)]
        names += [("time", TIME, mask) for mask in range(self.time_masks)]
        parts = {"warp": ("centre", "shift")}
        return [
            (f"{name}_{mask}:{part}", position, 2 * mask + lane)
            for name, position, mask in names
            for lane, part in enumerate(parts.get(name, ("width", "start")))
        ]

    def draw(self, keys: Any, epoch: int = 0, seed: int = 0) -> Draws:
        """Return a number in [0, 1) for each decision: a pure function of (seed, epoch, key, number of the mask).

        Args:
            keys: of the examples, B of them: integers, strings or bytes.
            epoch: counts passes over the dataset.
            seed: of the whole training run.

        Raises:
            UsageError: epoch or seed is not an integer.
            DataError: something else is among the keys.
        """
        names, positions, lanes = zip(*self._addresses) if self._addresses else ((), (), ())
        u_BL = uniforms(integer("seed", seed), integer("epoch", epoch), key_numbers(keys), positions, lanes)
        return Draws(names, u_BL)

    def frequency_spans(self, draws: Draws, bins: int) -> tuple[INDICES, INDICES]:
        """Return the first bin and the width of each frequency mask, both (B, M)."""
        most_B = np.full(len(draws), min(self.frequency_mask_width, bins))
        return _spans(draws, "frequency", self.frequency_masks, most_B, np.full(len(draws), bins))

    def time_spans(self, draws: Draws, length_B: INDICES) -> tuple[INDICES, INDICES]:
        """Return the first frame and the width of each time mask, both (B, M), within these lengths in frames."""
        most_B = np.minimum(_share(self.time_mask_share, length_B), length_B)
        if self.time_mask_width is not None:
            most_B = np.minimum(most_B, self.time_mask_width)
        start_BM, width_BM = _spans(draws, "time", self.time_masks, most_B, length_B)
        if self.time_masks_per_frame is not None:
            count_B1 = _share(self.time_masks_per_frame, length_B)[:, None]
            width_BM = np.where(np.arange(self.time_masks) < count_B1, width_BM, 0)
        return start_BM, width_BM

    def warps(self, draws: Draws, length_B: INDICES) -> tuple[INDICES, INDICES]:
        """Return which frame of each example moves, and to which frame, both (B,); 1 to 1 where there is no room."""
        if not self.time_warp:
            return np.ones_like(length_B), np.ones_like(length_B)
        room_B = length_B - 2 * self.time_warp - 2
        centre_B = self.time_warp + 1 + _below(draws["warp_0:centre"], room_B)
        shift_B = _below(draws["warp_0:shift"], np.full_like(length_B, 2 * self.time_warp + 1)) - self.time_warp
        return np.where(room_B > 0, centre_B, 1), np.where(room_B > 0, centre_B + shift_B, 1)


def covered(start_BM: INDICES, width_BM: INDICES, size: int) -> NDArray[np.bool_]:
    """Return which of ``size`` places lie in a mask, (B, size): as fast for many masks as for one."""
    row_BM = np.arange(len(start_BM))[:, None] * (size + 1)
    places = len(start_BM) * (size + 1)
    begun, ended = (
        np.bincount((row_BM + edge_BM).ravel(), minlength=places).reshape(-1, size + 1)
        for edge_BM in (start_BM, start_BM + width_BM)
    )
    inside: NDArray[np.bool_] = np.cumsum(begun - ended, axis=1)[:, :size] > 0
    return inside


def warp_pieces(last_B: INDICES, from_B: INDICES, to_B: INDICES) -> tuple[INDICES, INDICES]:
    """Return how to move frame ``from`` to frame ``to``, and all others up to ``last`` in proportion, as linear pieces.

    Shape:
        returns the last frame of the first and second piece, (B, 2); the third lies past the end, and stays. And of
        each piece (4, B, 3): where it starts and where that comes from; how many frames it is made of, and makes.
    """
    zero_B, one_B = np.zeros_like(last_B), np.ones_like(last_B)
    pieces = [
        (zero_B, zero_B, from_B, to_B),
        (to_B, from_B, (last_B - from_B).clip(min=1), (last_B - to_B).clip(min=1)),
        (zero_B, zero_B, one_B, one_B),
    ]
    return np.stack([to_B, last_B], axis=1), np.array(pieces).transpose(1, 2, 0).copy()


def _spans(draws: Draws, name: str, masks: int, most_B: INDICES, size_B: INDICES) -> tuple[INDICES, INDICES]:
    """Return starts and widths, (B, M): widths from 0 to ``most``, and starts wherever that width fits."""
    u_width_BM, u_start_BM = (
        np.stack([draws[f"{name}_{mask}:{part}"] for mask in range(masks)], axis=1)
        if masks
        else np.empty((len(draws), 0))
        for part in ("width", "start")
    )
    width_BM = _below(u_width_BM, most_B[:, None] + 1)
    return _below(u_start_BM, size_B[:, None] - width_BM + 1), width_BM


def _below(u: NDArray[np.float64], count: INDICES) -> INDICES:
    """Return integers from 0 to ``count`` - 1, each equally likely."""
    return (u * count).astype(np.int64)


def _share(share: float, length_B: INDICES) -> INDICES:
    """Return this share of the lengths, rounded down; 0.29 of 100 frames are 29, though 0.29 is a little less."""
    return np.floor(share * length_B + 1e-9).astype(np.int64)
