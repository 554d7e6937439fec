"""A kernel that limits rows: two recursions as associative scans, block after block, and the gain that they give.

Shapes: B examples, C channels, T samples; the grid is rows, a channel of an example each.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 1024
"""Samples that a program scans together."""


def limit(
    x_BCT: torch.Tensor,
    length_B: torch.Tensor,
    threshold_B: torch.Tensor,
    log_attack_B: torch.Tensor,
    attack_share_B: torch.Tensor,
    log_release_B: torch.Tensor,
    delay_B: torch.Tensor,
) -> torch.Tensor:
    """Return what ``limiter.limit`` does."""
    x_BCT, y_BCT = x_BCT.contiguous(), torch.empty_like(x_BCT, memory_format=torch.contiguous_format)
    numbers = [each.contiguous() for each in (threshold_B, log_attack_B, attack_share_B, log_release_B)]
    rows, channels, samples = x_BCT.shape
    whole, last = (length_B.contiguous(), delay_B.contiguous()), x_BCT.new_empty(rows * channels, 2, 2)
    dispatch.launch(_limit, (rows * channels,), y_BCT, x_BCT, *numbers, *whole, last, samples, channels, BLOCK=BLOCK)
    return y_BCT


@kernel
def _limit(
    y_ptr,
    x_ptr,
    threshold_ptr,
    attack_ptr,
    share_ptr,
    release_ptr,
    length_ptr,
    delay_ptr,
    last_ptr,
    samples,
    channels,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)
    example = part // channels
    threshold, share = tl.load(threshold_ptr + example), tl.load(share_ptr + example)
    length, delay = tl.load(length_ptr + example), tl.load(delay_ptr + example)
    step = tl.arange(0, BLOCK)
    each_N = tl.full([BLOCK], 0.0, tl.float32)
    attack_N, release_N = each_N + tl.load(attack_ptr + example), each_N + tl.load(release_ptr + example)
    envelope_N, less_N, begin = each_N, each_N, 0  # of the last sample before: 0
    while begin < samples + delay:
        time = begin + step
        peak_N = tl.abs(tl.load(x_ptr + part * samples + time, mask=(time < length) & (time < samples), other=0.0))
        decay_N, highest_N = tl.associative_scan((release_N, peak_N), 0, _highest)
        envelope_N = tl.maximum(highest_N, envelope_N * tl.exp(decay_N))
        wanted_N = share * (1.0 - threshold / tl.maximum(envelope_N, threshold))
        decay_N, total_N = tl.associative_scan((attack_N, wanted_N), 0, _total)
        less_N = total_N + less_N * tl.exp(decay_N)
        place = time - delay
        inside = (place >= 0) & (place < samples)
        value_N = tl.load(x_ptr + part * samples + place, mask=inside, other=0.0)
        tl.store(y_ptr + part * samples + place, value_N * (1.0 - less_N), mask=inside)
        own_ptr = last_ptr + (part * 2 + begin // BLOCK % 2) * 2  # two by turns: one barrier is enough
        tl.store(own_ptr + step * 0, envelope_N, mask=step == BLOCK - 1)
        tl.store(own_ptr + step * 0 + 1, less_N, mask=step == BLOCK - 1)
        tl.debug_barrier()
        envelope_N, less_N = each_N + tl.load(own_ptr), each_N + tl.load(own_ptr + 1)
        begin += BLOCK


# Of two neighbours in a scan: the logarithms of how much what is before them decays, and what they come to.


@triton.jit
def _highest(decay, value, next_decay, next_value):
    return decay + next_decay, tl.maximum(next_value, value * tl.exp(next_decay))


@triton.jit
def _total(decay, value, next_decay, next_value):
    return decay + next_decay, next_value + value * tl.exp(next_decay)
