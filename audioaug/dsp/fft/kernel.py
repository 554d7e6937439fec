"""A kernel that cuts rows into overlapping blocks, for FFTs.

Shapes: R rows, C channels, T samples, K blocks of N samples; the grid is blocks, one row after the other.
"""

import torch
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.fft import with_room
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program copies."""


def cut(x_RCT: torch.Tensor, n: int, tail: int, count: int, steady: bool) -> torch.Tensor:
    """Return what ``fft._blocks`` does, with room for the rows that its FFT gets."""
    rows, channels, samples = x_RCT.shape
    y_RCKN = with_room(x_RCT, rows, channels, count, n)
    sizes = samples, count, n, tail, int(steady)
    dispatch.launch(_cut, grid_of(y_RCKN, BLOCK), y_RCKN, x_RCT.contiguous(), *sizes, BLOCK=BLOCK)
    return y_RCKN


@kernel
def _cut(y_ptr, x_ptr, samples, count, n, tail, steady, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = number % count * (n - tail) + place - tail
    row_ptr = x_ptr + number // count * samples
    value = tl.load(row_ptr + time, mask=(time >= 0) & (time < samples) & (place < n), other=0.0)
    value = tl.where(time < 0, tl.load(row_ptr) * steady, value)
    value = tl.where((time >= samples) & (tail == 0), tl.load(row_ptr) * steady, value)  # a whole row
    tl.store(y_ptr + number * n + place, value, mask=place < n)
