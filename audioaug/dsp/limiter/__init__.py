"""A limiter with a threshold, an attack and a release of its own for each example, and the recursions that it needs.

Shapes: B examples, C channels, T samples, K blocks of L samples; R rows, a channel of an example each.
"""

from collections.abc import Callable

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Doubles, Floats, Integers, loop, run_rows

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
BLOCK = 32
"""Recursions combine blocks of this many samples."""


@primitive
def limit(
    x_BCT: torch.Tensor,
    length_B: torch.Tensor,
    threshold_B: torch.Tensor,
    log_attack_B: torch.Tensor,
    attack_share_B: torch.Tensor,
    log_release_B: torch.Tensor,
    delay_B: torch.Tensor,
    longest_delay: int,
) -> torch.Tensor:
    """Follow each channel's absolute values with an envelope, and press down what is above the threshold.

    Args:
        x_BCT: the examples.
        length_B: what lies past the end counts as silence.
        threshold_B: greater than 0.
        log_attack_B: the logarithm of what is left of a change of the gain after each sample.
        attack_share_B: what is not left: 1 - exp(log_attack), which float32 would lose.
        log_release_B: the logarithm of what is left of a peak after each sample.
        delay_B: how many samples the gain comes before what it follows.
        longest_delay: which none exceeds.
    """
    there_B1T = torch.arange(x_BCT.shape[-1], device=x_BCT.device) < length_B[:, None, None]
    ahead_BCT = torch.nn.functional.pad(torch.where(there_B1T, x_BCT.abs(), 0.0), (0, longest_delay))
    envelope_BCT, threshold_B11 = decaying_max(ahead_BCT, log_release_B), threshold_B[:, None, None]
    # With d = 1 - gain, which starts from 0: d[t] = a d[t - 1] + (1 - a) (1 - threshold / envelope[t])
    wanted_BCT = 1.0 - threshold_B11 / torch.maximum(envelope_BCT, threshold_B11)
    less_BCT = decaying_sum(wanted_BCT * attack_share_B[:, None, None], log_attack_B)
    time_B1T = torch.arange(x_BCT.shape[-1], device=x_BCT.device) + delay_B[:, None, None]
    return x_BCT * (1.0 - less_BCT.gather(-1, time_B1T.expand(x_BCT.shape)))


@limit.loop()
def _limit_by_loop(
    x_BCT: torch.Tensor,
    length_B: torch.Tensor,
    threshold_B: torch.Tensor,
    log_attack_B: torch.Tensor,
    attack_share_B: torch.Tensor,
    log_release_B: torch.Tensor,
    delay_B: torch.Tensor,
    longest_delay: int,
) -> torch.Tensor:
    decays = log_attack_B.double().exp(), log_release_B.double().exp()
    return run_rows(_limit_rows, x_BCT, length_B, threshold_B.double(), *decays, delay_B)


@limit.kernel()
def _limit_by_kernel(
    x_BCT: torch.Tensor,
    length_B: torch.Tensor,
    threshold_B: torch.Tensor,
    log_attack_B: torch.Tensor,
    attack_share_B: torch.Tensor,
    log_release_B: torch.Tensor,
    delay_B: torch.Tensor,
    longest_delay: int,
) -> torch.Tensor:
    from audioaug.dsp.limiter import kernel

    return kernel.limit(x_BCT, length_B, threshold_B, log_attack_B, attack_share_B, log_release_B, delay_B)


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
    # The gain returns to 1 and the envelope to the threshold, not to 0: subnormal numbers are many times slower.
    for row in range(first, last):
        example = row // channels
        threshold, attack, release = threshold_B[example], attack_B[example], release_B[example]
        x_T, y_T, delay = x_RT[row], y_RT[row], delay_B[example]
        length = min(length_B[example], len(x_T))
        envelope, gain, share = threshold, 1.0, (1 - attack) * threshold
        for time in range(length + delay):
            peak = np.float64(abs(x_T[time])) if time < length else 0.0
            envelope = max(peak, threshold, release * envelope)
            gain = attack * gain + share / envelope
            if time >= delay:
                y_T[time - delay] = x_T[time - delay] * gain
        y_T[length:] = 0
