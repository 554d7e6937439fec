"""Limiter: peaks above a random threshold pressed down to it.

Shapes: B examples, C channels, T samples, K blocks of L samples; R rows, a channel of an example each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import FLOATS, INTS, STATIC, BatchInfo, Contract, DeviceBatchInfo, Distribution, Op, Params, Uniform
from audioaug.core.distributions import FloatArray
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import db_to_ratio
from audioaug.dsp.loops import Doubles, Floats, Integers, loop, run_rows
from audioaug.errors import ChainError

DELAY_STEP = 256
"""The batch is padded by a multiple of this many samples, so that sizes repeat."""

SILENCE = 1e-36
"""No threshold is below this: that of silence would be 0."""

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
BLOCK = 32
"""Recursions combine blocks of this many samples."""


@dataclass(frozen=True, kw_only=True)
class Limiter(Op):
    """Follow each channel's peaks with an envelope, and turn the channel down while that is above the threshold.

    The gain approaches threshold / envelope, and 1 below the threshold, exponentially. It is ahead of the audio by 60 %
    of the attack time, and the audio itself is not delayed. The threshold is the same for all channels of an example.

    Args:
        min_threshold_db: lowest threshold, in dB.
        max_threshold_db: highest threshold, in dB.
        min_attack: least time, in seconds, greater than 0, in which the gain goes 99.9 % of its way.
        max_attack: greatest such time.
        min_release: least time, in seconds, greater than 0, in which the envelope falls by 60 dB.
        max_release: greatest such time.
        threshold_mode: ``"relative_to_signal_peak"`` (of all channels) or ``"absolute"``: relative to 1.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Limiter``, whose steps are rounded to float32 one after the other: what that adds up to
    (3e-6 of the peak; 1e-5 for attacks of seconds) is all the difference.
    """

    min_threshold_db: float = -24.0
    max_threshold_db: float = -2.0
    min_attack: float = 0.0005
    max_attack: float = 0.025
    min_release: float = 0.05
    max_release: float = 0.7
    threshold_mode: Literal["relative_to_signal_peak", "absolute"] = "relative_to_signal_peak"

    contract = Contract.exact(rtol=1e-5)
    param_types = {
        "threshold_db": FLOATS,
        "log_attack": FLOATS,
        "log_release": FLOATS,
        "delay": INTS,
        "longest_delay": STATIC,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_attack", "min_release"):
            if getattr(self, name) <= 0:
                raise ChainError(f"Limiter: {name} is {getattr(self, name):g}, but it must be greater than 0.")

    def distributions(self) -> dict[str, Distribution]:
        return {
            "threshold_db": Uniform(self.min_threshold_db, self.max_threshold_db),
            "attack_seconds": Uniform(self.min_attack, self.max_attack),
            "release_seconds": Uniform(self.min_release, self.max_release),
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        delay_B = np.maximum(np.rint(0.6 * draw["attack_seconds"] * batch.sample_rate), 1).astype(np.int64)
        return {
            "threshold_db": draw["threshold_db"],
            "log_attack": _log_coefficient(draw["attack_seconds"], batch.sample_rate),
            "log_release": _log_coefficient(draw["release_seconds"], batch.sample_rate),
            "delay": delay_B,
            "longest_delay": -(-int(delay_B.max()) // DELAY_STEP) * DELAY_STEP,
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        full = float(np.abs(samples).max()) if self.threshold_mode == "relative_to_signal_peak" else 1.0
        return {
            "attack": float(np.exp(params["log_attack"])),
            "release": float(np.exp(params["log_release"])),
            "delay": params["delay"],
            "threshold": full * 10 ** (params["threshold_db"] / 20),
        }

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        peak_BCT = batch.masked(x_BCT).abs()
        threshold_B11 = db_to_ratio(params["threshold_db"])[:, None, None]
        if self.threshold_mode == "relative_to_signal_peak":
            threshold_B11 = threshold_B11 * peak_BCT.amax(dim=(1, 2), keepdim=True)
        return _limit(x_BCT, peak_BCT, threshold_B11.clamp(min=SILENCE), params, batch)


@primitive
def _limit(
    x_BCT: torch.Tensor, peak_BCT: torch.Tensor, threshold_B11: torch.Tensor, params: Params, batch: DeviceBatchInfo
) -> torch.Tensor:
    """Follow the absolute values with an envelope, and press down what is above the threshold."""
    ahead_BCT = torch.nn.functional.pad(peak_BCT, (0, params["longest_delay"]))
    envelope_BCT = decaying_max(ahead_BCT, params["log_release"])
    # With d = 1 - gain, which starts from 0: d[t] = a d[t - 1] + (1 - a) (1 - threshold / envelope[t])
    wanted_BCT = 1.0 - threshold_B11 / torch.maximum(envelope_BCT, threshold_B11)
    log_attack_B = params["log_attack"]
    less_BCT = decaying_sum(wanted_BCT * -torch.expm1(log_attack_B)[:, None, None], log_attack_B)
    time_B1T = torch.arange(x_BCT.shape[-1], device=x_BCT.device) + params["delay"][:, None, None]
    return x_BCT * (1.0 - less_BCT.gather(-1, time_B1T.expand(x_BCT.shape)))


@_limit.loop()
def _limit_by_loop(
    x_BCT: torch.Tensor, peak_BCT: torch.Tensor, threshold_B11: torch.Tensor, params: Params, batch: DeviceBatchInfo
) -> torch.Tensor:
    attack_B, release_B = params["log_attack"].double().exp(), params["log_release"].double().exp()
    threshold_B = threshold_B11.flatten().double()
    return run_rows(_limit_rows, x_BCT, batch.lengths_B, threshold_B, attack_B, release_B, params["delay"])


def _log_coefficient(seconds_B: FloatArray, sample_rate: int) -> FloatArray:
    """Return the logarithm of what -60 dB in that time is for each sample, as the reference rounds it, to float32."""
    coefficient_B = 10.0 ** (-3.0 / np.maximum(seconds_B * sample_rate, 1.0))
    return np.log(coefficient_B.astype(np.float32).astype(np.float64))


def decaying_max(x_RCT: torch.Tensor, log_decay_R: torch.Tensor) -> torch.Tensor:
    """Return ``y[t] = max(x[t], r * y[t - 1])``, a peak envelope, from ``y[-1] = 0``.

    Args:
        x_RCT: not negative.
        log_decay_R: the natural logarithm of each row's r: at most 0. (A float32 r near 1 would be too coarse.)
    """
    return _scan(x_RCT, log_decay_R[:, None, None], torch.maximum)


def decaying_sum(x_RCT: torch.Tensor, log_decay_R: torch.Tensor) -> torch.Tensor:
    """Return ``y[t] = x[t] + r * y[t - 1]`` from ``y[-1] = 0``; see ``decaying_max``."""
    return _scan(x_RCT, log_decay_R[:, None, None], torch.add)


# Both recursions combine all earlier x[s], decayed by r^(t - s), with an operation that does not mind their order and
# that r distributes over. So y over the last 2n samples is y over the last n, combined with r^n times the same n
# samples ago: a block of L samples takes log2(L) passes. The blocks' last values are a recursion themselves, with r^L,
# and what comes out of it decays into the next block. All factors are at most 1: nothing can overflow.


def _scan(x_RCT: torch.Tensor, log_decay_R11: torch.Tensor, combine: Combine) -> torch.Tensor:
    samples = x_RCT.shape[-1]
    if samples <= BLOCK:
        return _doubled(x_RCT, log_decay_R11, combine)
    blocks_RCKL = torch.nn.functional.pad(x_RCT, (0, -samples % BLOCK)).unflatten(-1, (-1, BLOCK))
    within_RCKL = _doubled(blocks_RCKL, log_decay_R11[..., None], combine)
    ends_RCK = _scan(within_RCKL[..., -1], log_decay_R11 * BLOCK, combine)
    before_RCK1 = torch.nn.functional.pad(ends_RCK[..., :-1], (1, 0))[..., None]
    decay_R11L = (log_decay_R11[..., None] * torch.arange(1, BLOCK + 1, device=x_RCT.device)).exp()
    return combine(within_RCKL, before_RCK1 * decay_R11L).flatten(-2)[..., :samples]


def _doubled(x: torch.Tensor, log_decay: torch.Tensor, combine: Combine) -> torch.Tensor:
    """Run the recursion over the last axis, of N samples, in log2(N) passes."""
    step = 1
    while step < x.shape[-1]:
        earlier = x[..., :-step] * (log_decay * step).exp()
        x = torch.cat([x[..., :step], combine(x[..., step:], earlier)], dim=-1)
        step *= 2
    return x


@loop
def _limit_rows(
    x_RT: Floats,
    length_B: Integers,
    threshold_B: Doubles,
    attack_B: Doubles,
    release_B: Doubles,
    delay_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Limit rows, ``channels`` of them an example, in float64.

    ``attack``: what is left of a change of the gain after each sample; ``release``: what is left of a peak; ``delay``:
    how many samples the gain comes before what it follows.
    """
    for row in range(first, last):
        example = row // channels
        threshold, attack, release = threshold_B[example], attack_B[example], release_B[example]
        length, delay, samples = length_B[example], delay_B[example], x_RT.shape[1]
        envelope = less = 0.0
        for time in range(samples + delay):
            peak = np.float64(abs(x_RT[row, time])) if time < length else 0.0
            envelope = max(peak, release * envelope)
            less = attack * less + (1 - attack) * (1 - threshold / max(envelope, threshold))
            if time >= delay:
                y_RT[row, time - delay] = x_RT[row, time - delay] * (1 - less)
