"""Attacks: where a sound sets in, found in blocks of a few milliseconds.

Shapes: R rows, C channels, T samples, N frames, K blocks.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop_of_sums, run

PAST, APART = 6, 4
"""Each block is compared with the ``PAST`` before it; two attacks are more than ``APART`` blocks apart."""

RISE = 6.0
"""An attack is a block with more than this many times the mean power of those before it."""

QUIET = 1e-20
"""Blocks of less power than this attack nothing."""

FAR = 1 << 40
"""A block so far off that no frame is near it."""

f32 = np.float32


@primitive
def attack_times(x_RCT: torch.Tensor, centre_RN: torch.Tensor, block: int) -> torch.Tensor:
    """Return for each frame the time, in samples, of the middle of the nearest attack's block; far off if none."""
    attack_RK = _attacks(x_RCT, block)
    place_K = torch.arange(attack_RK.shape[-1], device=attack_RK.device)
    earlier_RK = torch.where(attack_RK, place_K, -FAR).cummax(-1)[0]
    later_RK = torch.where(attack_RK, place_K, FAR).flip(-1).cummin(-1)[0].flip(-1)
    at_RN = torch.div(centre_RN, block, rounding_mode="floor").clamp(max=len(place_K) - 1)
    earlier_RN, later_RN = (found.gather(-1, at_RN) * block + block // 2 for found in (earlier_RK, later_RK))
    return torch.where(centre_RN - earlier_RN < later_RN - centre_RN, earlier_RN, later_RN)


@attack_times.loop()
def _attack_times_by_loop(x_RCT: torch.Tensor, centre_RN: torch.Tensor, block: int) -> torch.Tensor:
    time_RN = torch.empty_like(centre_RN, memory_format=torch.contiguous_format)
    run(_find_attack_times, len(x_RCT), x_RCT, centre_RN, block, time_RN)
    return time_RN


def _attacks(x_RCT: torch.Tensor, block: int) -> torch.Tensor:
    """Return which blocks hold an attack, (R, K): their power rises, and rises more than in blocks nearby.

    It is the power of differences between samples, in which deep tones do not hide a click.
    """
    pad, samples = torch.nn.functional.pad, x_RCT.shape[-1]
    steps_RCT = torch.diff(x_RCT, dim=-1, prepend=torch.zeros_like(x_RCT[..., :1]))
    power_RK = pad(steps_RCT.square().sum(1), (0, -samples % block)).unflatten(-1, (-1, block)).sum(-1)
    past_RK = torch.nn.functional.avg_pool1d(pad(power_RK, (PAST, -1))[:, None], PAST, 1)[:, 0]
    rise_RK = torch.where(power_RK > RISE * past_RK + QUIET, power_RK - past_RK, 0.0)
    highest_RK = torch.nn.functional.max_pool1d(rise_RK[:, None], 2 * APART + 1, 1, APART)[:, 0]
    return (rise_RK == highest_RK) & (rise_RK > 0)


@loop_of_sums
def _find_attack_times(
    x_RCT: Floats, centre_RN: Integers, block: int, time_RN: Integers, first: int, last: int
) -> None:
    """Find the time of the attack nearest to each of these samples."""
    _, channels, samples = x_RCT.shape
    blocks = -(-samples // block)
    power_K, rise_K = np.empty(blocks, dtype=f32), np.empty(blocks, dtype=f32)
    earlier_K, later_K = np.empty(blocks, dtype=np.int64), np.empty(blocks, dtype=np.int64)
    for row in range(first, last):
        power_K[:] = 0
        for channel in range(channels):
            x_T = x_RCT[row, channel]
            power_K[0] += x_T[0] * x_T[0]
            for k in range(blocks):
                power = f32(0)
                for t in range(max(1, k * block), min((k + 1) * block, samples)):
                    power += (x_T[t] - x_T[t - 1]) * (x_T[t] - x_T[t - 1])
                power_K[k] += power
        for k in range(blocks):
            past = power_K[max(0, k - PAST) : k].sum() / f32(PAST)
            rise_K[k] = power_K[k] - past if power_K[k] > f32(RISE) * past + f32(QUIET) else f32(0)
        found = -FAR
        for k in range(blocks):
            if rise_K[k] > 0 and rise_K[k] == rise_K[max(0, k - APART) : k + APART + 1].max():
                found = k
            earlier_K[k] = found
        found = FAR
        for k in range(blocks - 1, -1, -1):
            if earlier_K[k] == k:
                found = k
            later_K[k] = found
        for n in range(centre_RN.shape[1]):
            centre = centre_RN[row, n]
            at = min(centre // block, blocks - 1)
            earlier, later = earlier_K[at] * block + block // 2, later_K[at] * block + block // 2
            time_RN[row, n] = earlier if centre - earlier < later - centre else later
