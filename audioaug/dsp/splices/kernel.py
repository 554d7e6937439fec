"""Kernels that fold segments of rows: each sample of the result is read from where it was before all splices.

Shapes: B examples, C channels, T samples, N splices, W samples of a fade; the grid is rows (channels).
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel
from audioaug.dsp.windows.kernel import BLOCK


def splice(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    """Return what ``splices.splice`` does."""
    x_BCT, y_BCT = x_BCT.contiguous(), torch.empty_like(x_BCT, memory_format=torch.contiguous_format)
    (rows, channels, samples), splices = x_BCT.shape, start_BN.shape[1]
    fade_BCNW = x_BCT.new_empty(rows, channels, splices, widest)
    places = start_BN.contiguous(), half_BN.contiguous()
    sizes = samples, splices, widest, channels
    dispatch.launch(_fade, (rows * channels,), fade_BCNW, x_BCT, *places, *sizes, BLOCK=BLOCK)
    dispatch.launch(_read, grid_of(y_BCT, BLOCK), y_BCT, fade_BCNW, x_BCT, *places, *sizes, BLOCK=BLOCK)
    return y_BCT


@kernel
def _fade(fade_ptr, x_ptr, start_ptr, half_ptr, samples, splices, widest, channels, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    first = part // channels * splices
    n = 0
    while n < splices:
        start, half = tl.load(start_ptr + first + n), tl.load(half_ptr + first + n)
        begin = 0
        while begin < half:
            within = begin + tl.arange(0, BLOCK)
            turn = tl.minimum(within.to(tl.float32) / half.to(tl.float32), 1.0) * 1.5707963267948966
            share = tl.sin(turn) * tl.sin(turn)
            before = _value(fade_ptr, x_ptr, start_ptr, half_ptr, start + within, n, samples, splices, widest, channels)
            after = _value(
                fade_ptr, x_ptr, start_ptr, half_ptr, start + half + within, n, samples, splices, widest, channels
            )
            into_ptr = fade_ptr + (part * splices + n) * widest + within
            tl.store(into_ptr, before + share * (after - before), mask=within < half)
            begin += BLOCK
        tl.debug_barrier()  # the next fades may read this one
        n += 1


@kernel
def _read(y_ptr, fade_ptr, x_ptr, start_ptr, half_ptr, samples, splices, widest, channels, BLOCK: tl.constexpr):
    place = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = _value(fade_ptr, x_ptr, start_ptr, half_ptr, place, splices, samples, splices, widest, channels)
    tl.store(y_ptr + tl.program_id(0).to(tl.int64) * samples + place, value, mask=place < samples)


@triton.jit
def _value(fade_ptr, x_ptr, start_ptr, half_ptr, place, count, samples, splices, widest, channels):
    """Return a row's samples after the first ``count`` splices: found backwards, in one of their fades or in x."""
    part = tl.program_id(0).to(tl.int64)
    first = part // channels * splices
    fade = (place * 0 - 1).to(tl.int32)  # which it lies in
    n = count - 1
    while n >= 0:
        start, half = tl.load(start_ptr + first + n), tl.load(half_ptr + first + n)
        into = (fade < 0) & (place >= start)
        fade = tl.where(into & (place < start + half), n, fade)
        place = tl.where(into, tl.where(fade == n, place - start, place + half), place)
        n -= 1
    faded = tl.load(fade_ptr + (part * splices + fade) * widest + place, mask=fade >= 0, other=0.0)
    own = tl.load(x_ptr + part * samples + place, mask=(fade < 0) & (place < samples), other=0.0)
    return tl.where(fade >= 0, faded, own)
