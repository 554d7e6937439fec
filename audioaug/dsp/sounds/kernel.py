"""Kernels that find how loud sounds are to be, and add them to examples.

Shapes: B examples, C channels (1), T samples, S sounds of all examples together, P samples in memory.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel
from audioaug.dsp.levels.kernel import added

BLOCK = 1024
"""Samples that a program takes together."""


def with_sounds(
    x_BCT: torch.Tensor,
    memory_P: torch.Tensor,
    places: Sequence[torch.Tensor],
    excerpts: Sequence[torch.Tensor],
    level_S: torch.Tensor,
    is_relative: bool,
    gain_db: float,
) -> torch.Tensor:
    """Return what ``sounds.with_sounds`` does.

    Args:
        x_BCT: the examples.
        memory_P: what sounds are read from.
        places: of the sounds: ``row``, ``first`` and ``begin``.
        excerpts: ``count``, ``place``, ``played``, ``left``, ``fade_in`` and ``fade_out``.
        level_S: the RMS that they are to have.
        is_relative: whether that is a share of the example's.
        gain_db: of the example while there are sounds.
    """
    x_BCT, samples = x_BCT.contiguous(), x_BCT.shape[-1]
    row_S, first_B, begin_S = (each.contiguous() for each in places)
    gain_S, out = torch.empty_like(level_S), torch.empty_like(x_BCT)
    of_sounds = memory_P, begin_S, *(each.contiguous() for each in excerpts)
    numbers = row_S, level_S.contiguous(), samples, int(is_relative)
    dispatch.launch(_find_gains, (len(gain_S),), gain_S, x_BCT, *of_sounds, *numbers, BLOCK=BLOCK)
    change = gain_db * math.log(10) / 20
    dispatch.launch(_add, grid_of(out, BLOCK), out, x_BCT, *of_sounds, first_B, gain_S, samples, change, BLOCK=BLOCK)
    return out


@kernel
def _find_gains(
    gain_ptr,
    x_ptr,
    memory_ptr,
    begin_ptr,
    count_ptr,
    place_ptr,
    played_ptr,
    left_ptr,
    fade_in_ptr,
    fade_out_ptr,
    row_ptr,
    level_ptr,
    samples,
    is_relative,
    BLOCK: tl.constexpr,
):
    sound = tl.program_id(0)
    count, memory_ptr = tl.load(count_ptr + sound), memory_ptr + tl.load(place_ptr + sound)
    played, left = tl.load(played_ptr + sound), tl.load(left_ptr + sound)
    fade_in, fade_out = tl.load(fade_in_ptr + sound), tl.load(fade_out_ptr + sound)
    x_ptr += tl.load(row_ptr + sound) * samples + tl.load(begin_ptr + sound)
    total, reference = tl.full([BLOCK], 0.0, tl.float32), tl.full([BLOCK], 0.0, tl.float32)
    begin = count * 0
    while begin < count:
        time = begin + tl.arange(0, BLOCK)
        heard = tl.load(memory_ptr + time, mask=time < count, other=0.0)
        heard *= _fade(played + time, left - time, fade_in, fade_out)
        total += heard * heard
        under = tl.load(x_ptr + time, mask=(time < count) & (is_relative != 0), other=1.0)
        reference += tl.where(time < count, under * under, 0.0)  # their number, unless it is relative
        begin += BLOCK
    square, wanted = tl.reduce(total, 0, added), tl.reduce(reference, 0, added)
    gain = tl.load(level_ptr + sound) * tl.sqrt(wanted / tl.where(square > 0, square, 1.0))
    tl.store(gain_ptr + sound, tl.where(square > 0, gain, 0.0))


@kernel
def _add(
    y_ptr,
    x_ptr,
    memory_ptr,
    begin_ptr,
    count_ptr,
    place_ptr,
    played_ptr,
    left_ptr,
    fade_in_ptr,
    fade_out_ptr,
    first_ptr,
    gain_ptr,
    samples,
    change,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total, most = tl.full([BLOCK], 0.0, tl.float32), tl.full([BLOCK], 0.0, tl.float32)
    sound, end = tl.load(first_ptr + row), tl.load(first_ptr + row + 1)
    while sound < end:
        time, gain = place - tl.load(begin_ptr + sound), tl.load(gain_ptr + sound)
        inside = (time >= 0) & (time < tl.load(count_ptr + sound))
        since, until = tl.load(played_ptr + sound) + time, tl.load(left_ptr + sound) - time
        fade = _fade(since, until, tl.load(fade_in_ptr + sound), tl.load(fade_out_ptr + sound))
        heard = tl.load(memory_ptr + tl.load(place_ptr + sound) + time, mask=inside, other=0.0)
        total += tl.where(inside, heard * fade * gain, 0.0)
        most = tl.maximum(most, tl.where(inside, fade, 0.0) * tl.where(gain > 0, 1.0, 0.0))
        sound += 1
    x = tl.load(x_ptr + row * samples + place, mask=place < samples, other=0.0)
    tl.store(y_ptr + row * samples + place, x * tl.exp(most * change) + total, mask=place < samples)


@triton.jit
def _fade(since, until, fade_in, fade_out):
    coming = since.to(tl.float32) / tl.maximum(fade_in - 1, 1).to(tl.float32)
    going = until.to(tl.float32) / tl.maximum(fade_out - 1, 1).to(tl.float32)
    return tl.minimum(tl.where(since < fade_in, coming, 1.0), tl.where(until < fade_out, going, 1.0))
