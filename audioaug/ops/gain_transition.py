"""GainTransition: a fade from one random gain to another.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    FRACTION,
    HOST_ONLY,
    INTS,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Uniform,
)
from audioaug.dsp.levels import change_gain
from audioaug.errors import ChainError

SHORTEST_FADE = 3


@dataclass(frozen=True, kw_only=True)
class GainTransition(Op):
    """Hold a first gain, go to a second one evenly in dB, and hold that.

    The transition may begin before the clip and end after it; at least two of its samples lie inside (one, in a clip
    of one). It is never shorter than three samples.

    Args:
        min_gain_db: lowest gain, in dB, of both.
        max_gain_db: highest gain, in dB, of both.
        min_duration: least length of the transition, in ``duration_unit``; greater than 0.
        max_duration: greatest length of the transition.
        duration_unit: ``"seconds"``, ``"samples"`` (whole numbers) or ``"fraction"`` of the clip.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.GainTransition``.
    """

    min_gain_db: float = -24.0
    max_gain_db: float = 6.0
    min_duration: float = 0.2
    max_duration: float = 6.0
    duration_unit: Literal["fraction", "samples", "seconds"] = "seconds"

    contract = Contract.exact(rtol=2e-6)
    capabilities = Capabilities(keeps_silence=True, needs_length=True)
    param_types = {
        **dict.fromkeys(("start_gain_db", "end_gain_db"), FLOATS),
        "fade_time_samples": HOST_ONLY,
        **dict.fromkeys(("steps", "t0"), INTS),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_duration <= 0:
            raise ChainError(f"GainTransition: min_duration is {self.min_duration:g}, but it must be greater than 0.")
        for name in ("min_duration", "max_duration") if self.duration_unit == "samples" else ():
            value = getattr(self, name)
            if value != int(value):
                raise ChainError(f"GainTransition: {name} is {value:g}, but it must be a whole number of samples.")
            object.__setattr__(self, name, int(value))

    def distributions(self) -> dict[str, Distribution]:
        gain_db = Uniform(self.min_gain_db, self.max_gain_db)
        return {"start_gain_db": gain_db, "end_gain_db": gain_db, "length_share": FRACTION, "start_share": FRACTION}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        units: dict[str, Any] = {"fraction": batch.lengths, "seconds": batch.sample_rate, "samples": 1}
        unit = units[self.duration_unit]
        least, most = (np.rint(duration * unit) for duration in (self.min_duration, self.max_duration))
        fade = np.maximum(SHORTEST_FADE, least + np.floor(draw["length_share"] * (most - least + 1))).astype(np.int64)
        first = 2 - fade
        t0 = first + np.floor(draw["start_share"] * (batch.lengths - 2 - first + 1)).astype(np.int64)
        gains = {name: draw[name] for name in ("start_gain_db", "end_gain_db")}
        return {**gains, "fade_time_samples": fade, "steps": fade - 1, "t0": t0}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {name: params[name] for name in ("start_gain_db", "end_gain_db", "fade_time_samples", "t0")}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        start_db_B, end_db_B, steps_B = params["start_gain_db"], params["end_gain_db"], params["steps"]
        return change_gain(x_BCT, start_db_B, end_db_B, steps_B, params["t0"], batch.out(x_BCT))
