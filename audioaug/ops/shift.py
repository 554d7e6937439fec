"""Shift: the example moved forward or backward in time.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Timeline,
    TorchAudiomentationsOp,
    Uniform,
    UniformInt,
)
from audioaug.dsp.fades import fade_around
from audioaug.dsp.windows import moved, rolled
from audioaug.errors import ChainError, ClipRefused

SHORTEST_FADE = 0.00025

NOWHERE = 1 << 40
"""Where the stitch of a clip is that is not shifted: no clip is so long."""


@dataclass(frozen=True, kw_only=True)
class Shift(Op):
    """Move an example in time; what leaves it at one end comes in at the other, or silence does.

    Args:
        min_shift: least shift (negative: to the front), in ``shift_unit``.
        max_shift: greatest shift.
        shift_unit: ``"fraction"`` of the clip (-1 to 1), ``"samples"`` or ``"seconds"``.
        rollover: bring back at one end what left at the other; otherwise silence comes in.
        fade_duration: length of the fades at the stitch, in seconds; 0 for none, else at least 0.00025.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Shift``. Deviation: with a fade it raises where the shift is not shorter than the clip;
    here both builds then do what the batched one does.
    """

    min_shift: float = -0.5
    max_shift: float = 0.5
    shift_unit: Literal["fraction", "samples", "seconds"] = "fraction"
    rollover: bool = True
    fade_duration: float = 0.005

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(needs_length=True, changes_timing=True)
    param_types = {"shift_amount": HOST_ONLY, **dict.fromkeys(("places", "offset", "stitch"), INTS)}
    limits = {"fade_duration": (0.0, float("inf"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift_unit == "fraction" and (self.min_shift < -1 or self.max_shift > 1):
            raise ChainError(
                f"Shift: {self.min_shift} .. {self.max_shift} is not a fraction: it must lie within -1 .. 1."
            )
        if 0 < self.fade_duration < SHORTEST_FADE:
            raise ChainError(
                f"Shift: fade_duration is {self.fade_duration}, but it must be 0 or at least {SHORTEST_FADE}."
            )

    def distributions(self) -> dict[str, Distribution]:
        if self.shift_unit == "samples":
            return {"shift_amount": UniformInt(int(self.min_shift), int(self.max_shift))}
        return {"shift_amount": Uniform(self.min_shift, self.max_shift)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        unit = {"fraction": batch.lengths, "seconds": batch.sample_rate, "samples": 1}[self.shift_unit]
        places = np.rint(draw["shift_amount"] * unit).astype(np.int64)
        stitch = np.where(places < 0, batch.lengths + places, places)  # maybe outside
        return {
            **draw,
            "places": places,
            "offset": places % np.maximum(batch.lengths, 1),
            "stitch": np.where(places == 0, NOWHERE, stitch),
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        amount = params["shift_amount"]
        return {"shift_amount": int(amount) if self.shift_unit == "samples" else amount}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        if self.rollover and abs(params["places"]) >= samples.shape[-1]:  # where its fades raise, or go astray
            raise ClipRefused(f"it is shifted by {params['places']}")
        return super().apply_reference(reference, params, samples, sample_rate)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        if self.rollover:
            y_BCT = rolled(x_BCT, params["offset"], batch.lengths_B)
        else:
            y_BCT = moved(x_BCT, params["places"])
        if fade := int(batch.sample_rate * self.fade_duration):
            y_BCT = fade_around(y_BCT, params["stitch"], fade)
        return y_BCT

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        places = params["offset"] if self.rollover else params["places"]
        around = [(length - places, length, 0, places)] if self.rollover else []
        return Timeline([(0, length, places, length + places), *around], length, length)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "Shift",
            lambda x_BCT, params, batch: {"num_samples_to_shift": params["places"]},
            {"rollover": self.rollover},
            differs="no fade at the stitch",
        )
