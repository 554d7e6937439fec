"""Kernels that add up the squares of hops, and find the first and last loud frame of examples.

Shapes: B examples, C channels, T samples, F hops, and as many frames; the grid is rows, a channel of an example each,
by blocks of hops, or examples.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel
from audioaug.dsp.levels.kernel import added, larger, smaller

HOPS = 16
"""That a program adds up."""

LANES = 32
"""Samples of each that it takes together."""

FRAMES = 128
"""That a program compares together."""


def loud_span(
    x_BCT: torch.Tensor, length_B: torch.Tensor, top_db: float, hop: int, frame_hops: int, smallest_power: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``trimming.loud_span`` does.

    Args:
        x_BCT: the examples.
        length_B: in samples.
        top_db: how far below the loudest frame silence begins, in dB.
        hop: samples between frames, a multiple of ``LANES``.
        frame_hops: hops of a frame.
        smallest_power: frames of less count as this loud.
    """
    (rows, channels, samples), hops = x_BCT.shape, x_BCT.shape[-1] // hop + 1
    energy_BCF = x_BCT.new_empty(rows, channels, hops)
    grid, sizes = grid_of(energy_BCF, HOPS), (samples, hops)
    dispatch.launch(_add_up, grid, energy_BCF, x_BCT.contiguous(), *sizes, HOP=hop, LANES=LANES, BLOCK=HOPS)
    start_B, count_B = length_B.new_empty(2, rows)
    numbers = length_B.contiguous(), 10 ** (-top_db / 10), hops, channels
    constants = {"HOP": hop, "FRAME_HOPS": frame_hops, "SMALLEST": smallest_power}
    dispatch.launch(_find_span, (rows,), start_B, count_B, energy_BCF, *numbers, **constants, BLOCK=FRAMES)
    return start_B, count_B


@kernel
def _add_up(energy_ptr, x_ptr, samples, hops, HOP: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    hop = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, total = hop[:, None] * HOP + tl.arange(0, LANES)[None, :], tl.full([BLOCK, LANES], 0.0, tl.float32)
    for begin in tl.static_range(0, HOP, LANES):
        value = tl.load(x_ptr + row * samples + first + begin, mask=first + begin < samples, other=0.0)
        total += value * value
    tl.store(energy_ptr + row * hops + hop, tl.reduce(total, 1, added), mask=hop < hops)


@kernel
def _find_span(
    start_ptr,
    count_ptr,
    energy_ptr,
    length_ptr,
    ratio,
    hops,
    channels,
    HOP: tl.constexpr,
    FRAME_HOPS: tl.constexpr,
    SMALLEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    own_ptr, length = energy_ptr + example * channels * hops, tl.load(length_ptr + example)
    frames = tl.minimum(length // HOP + 1, hops)
    loudest, begin = tl.full([BLOCK], SMALLEST, tl.float32), 0
    while begin < frames:
        place = begin + tl.arange(0, BLOCK)
        power = _power(own_ptr, place, hops, channels, HOP, FRAME_HOPS)
        loudest = tl.where(place < frames, tl.maximum(loudest, power), loudest)
        begin += BLOCK
    least = tl.reduce(loudest, 0, larger) * ratio
    first, last, begin = tl.full([BLOCK], 0, tl.int32) + hops, tl.full([BLOCK], -1, tl.int32), 0
    while begin < frames:
        place = begin + tl.arange(0, BLOCK)
        power = tl.maximum(_power(own_ptr, place, hops, channels, HOP, FRAME_HOPS), SMALLEST)
        loud = (place < frames) & (power > least)
        first = tl.where(loud, tl.minimum(first, place), first)
        last = tl.where(loud, place, last)
        begin += BLOCK
    end = tl.minimum((tl.reduce(last, 0, larger) + 1) * HOP, length)
    start = tl.where(end > 0, tl.reduce(first, 0, smaller) * HOP, 0)
    tl.store(start_ptr + example, start)
    tl.store(count_ptr + example, end - tl.minimum(start, end))


@triton.jit
def _power(own_ptr, place, hops, channels, HOP: tl.constexpr, FRAME_HOPS: tl.constexpr):
    """Return the power of frames, each centred on its place, in the channel where it is highest."""
    highest, channel = tl.full(place.shape, 0.0, tl.float32), 0
    while channel < channels:
        total = tl.full(place.shape, 0.0, tl.float32)
        for n in tl.static_range(FRAME_HOPS):
            hop = place + (n - FRAME_HOPS // 2)
            total += tl.load(own_ptr + channel * hops + hop, mask=(hop >= 0) & (hop < hops), other=0.0)
        highest = tl.maximum(highest, total / (FRAME_HOPS * HOP))
        channel += 1
    return highest
