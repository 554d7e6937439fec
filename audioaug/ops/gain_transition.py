"""GainTransition: a fade from one random gain to another.

Shapes: B examples, C channels, T samples; R rows, a channel of an example each.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    FRACTION,
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
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import db_to_ratio
from audioaug.dsp.loops import Floats, Integers, loop, run_rows
from audioaug.errors import ChainError

SHORTEST_FADE = 3

BLOCK = 64
"""A loop finds the gains of this many samples as those of the first, times one power each."""


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
    param_types = {"start_gain_db": FLOATS, "end_gain_db": FLOATS, "fade_time_samples": INTS, "t0": INTS}

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
        return {**gains, "fade_time_samples": fade, "t0": t0}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return dict(params)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        start_db_B, end_db_B, steps_B = params["start_gain_db"], params["end_gain_db"], params["fade_time_samples"] - 1
        return _change_gain(x_BCT, start_db_B, end_db_B, steps_B, params["t0"], batch.out(x_BCT))


@primitive
def _change_gain(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Change the gain in ``steps`` from sample ``begin`` on; a loop writes into ``out``."""
    into_BT = torch.arange(x_BCT.shape[-1], device=x_BCT.device, dtype=torch.int32) - begin_B[:, None].int()
    share_BT = (into_BT / steps_B[:, None]).clamp(0.0, 1.0)
    return x_BCT * db_to_ratio(torch.lerp(start_db_B[:, None], end_db_B[:, None], share_BT))[:, None]


@_change_gain.loop()
def _change_gain_by_loop(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    return run_rows(_change_gain_rows, x_BCT, start_db_B, end_db_B, steps_B, begin_B, out=out)


@loop
def _change_gain_rows(
    x_RT: Floats,
    start_db_B: Floats,
    end_db_B: Floats,
    steps_B: Integers,
    begin_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Change the gain of rows, ``channels`` of them an example. The result may be where x is."""
    power_K = np.empty(BLOCK)
    for row in range(first, last):
        b, x_T, y_T = row // channels, x_RT[row], y_RT[row]
        start, end = start_db_B[b] * (math.log(10) / 20), end_db_B[b] * (math.log(10) / 20)
        slope, samples = (end - start) / steps_B[b], len(x_T)
        begin, end_t = min(max(begin_B[b], 0), samples), min(max(begin_B[b] + steps_B[b], 0), samples)
        _amplify(x_T[:begin], np.float32(math.exp(start)), y_T[:begin])
        for k in range(BLOCK):
            power_K[k] = math.exp(slope * k)
        for t in range(begin, end_t, BLOCK):
            gain = math.exp(start + slope * (t - begin_B[b]))
            for k in range(min(BLOCK, end_t - t)):
                y_T[t + k] = x_T[t + k] * np.float32(gain * power_K[k])
        _amplify(x_T[end_t:], np.float32(math.exp(end)), y_T[end_t:])


@loop
def _amplify(x_T: Floats, gain: np.float32, y_T: Floats) -> None:
    for t in range(len(x_T)):
        y_T[t] = gain * x_T[t]
