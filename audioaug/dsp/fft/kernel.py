"""Kernels that cut rows into overlapping blocks, for FFTs, multiply their spectra, and join what comes of the blocks.

Shapes: R rows, C channels, T samples, K blocks of N samples, F frequencies, S spectra that are shared; the grid is
blocks, one row after the other.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.fft import with_room
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program copies."""


def cut(
    x_RCT: torch.Tensor, n: int, tail: int, count: int, steady: bool, rows_R: torch.Tensor | None = None
) -> torch.Tensor:
    """Return what ``fft._blocks`` does, with room for the rows that its FFT gets."""
    every, channels, samples = x_RCT.shape
    y_RCKN = with_room(x_RCT, every if rows_R is None else len(rows_R), channels, count, n)
    values = x_RCT.contiguous(), y_RCKN if rows_R is None else rows_R
    sizes = channels, samples, count, n, tail, int(steady)
    dispatch.launch(_cut, grid_of(y_RCKN, BLOCK), y_RCKN, *values, *sizes, CHOSEN=rows_R is not None, BLOCK=BLOCK)
    return y_RCKN


def join(blocks_RCKN: torch.Tensor, before: int, rows_R: torch.Tensor, into_RCT: torch.Tensor) -> torch.Tensor:
    """Do what ``fft._put`` does."""
    rows, channels, count, n = blocks_RCKN.shape
    sizes = channels, into_RCT.shape[-1], count, n, before
    grid = grid_of(into_RCT[:rows], BLOCK)
    dispatch.launch(_join, grid, into_RCT, blocks_RCKN, rows_R, *sizes, BLOCK=BLOCK)
    return into_RCT


def multiply(spectrum_RCKF: torch.Tensor, response_SCF: torch.Tensor, which_R: torch.Tensor) -> torch.Tensor:
    """Do what ``fft.multiply_by`` does."""
    (rows, channels, count, bins), responses = spectrum_RCKF.shape, response_SCF.shape[1]
    grid, values = (rows * channels * count, triton.cdiv(bins, BLOCK)), torch.view_as_real(response_SCF.contiguous())
    sizes = channels, responses, count, bins
    dispatch.launch(_multiply, grid, torch.view_as_real(spectrum_RCKF), values, which_R, *sizes, BLOCK=BLOCK)
    return spectrum_RCKF


@kernel
def _cut(
    y_ptr,
    x_ptr,
    rows_ptr,
    channels,
    samples,
    count,
    n,
    tail,
    steady,
    CHOSEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = number % count * (n - tail) + place - tail
    row = number // count
    if CHOSEN:
        row = tl.load(rows_ptr + row // channels).to(tl.int64) * channels + row % channels
    row_ptr = x_ptr + row * samples
    value = tl.load(row_ptr + time, mask=(time >= 0) & (time < samples) & (place < n), other=0.0)
    value = tl.where(time < 0, tl.load(row_ptr) * steady, value)
    value = tl.where((time >= samples) & (tail == 0), tl.load(row_ptr) * steady, value)  # a whole row
    tl.store(y_ptr + number * n + place, value, mask=place < n)


@kernel
def _join(y_ptr, x_ptr, rows_ptr, channels, samples, count, n, before, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    time = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows_ptr + number // channels).to(tl.int64) * channels + number % channels
    place = time // (n - before) * n + before + time % (n - before)
    value = tl.load(x_ptr + number * count * n + place, mask=time < samples)
    tl.store(y_ptr + row * samples + time, value, mask=time < samples)


@kernel
def _multiply(y_ptr, response_ptr, which_ptr, channels, responses, count, bins, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    which = tl.load(which_ptr + number // (channels * count)).to(tl.int64)
    channel = tl.minimum(number // count % channels, responses - 1)
    from_ptr = response_ptr + 2 * ((which * responses + channel) * bins + place)
    into_ptr, inside = y_ptr + 2 * (number * bins + place), place < bins
    x, x_j = tl.load(into_ptr, mask=inside, other=0.0), tl.load(into_ptr + 1, mask=inside, other=0.0)
    by, by_j = tl.load(from_ptr, mask=inside, other=0.0), tl.load(from_ptr + 1, mask=inside, other=0.0)
    tl.store(into_ptr, x * by - x_j * by_j, mask=inside)
    tl.store(into_ptr + 1, x * by_j + x_j * by, mask=inside)
