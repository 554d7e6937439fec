"""Kernels that reduce rows to one number each.

Shapes: R rows, N values; the grid is rows.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 1024
"""Values that a program takes together."""


def rms(x_RN: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    """Return the norm of each row over the root of its count; rows that follow each other may share one."""
    y_R = x_RN.new_empty(x_RN.shape[:-1])
    sizes = x_RN.shape[-1], y_R.numel() // count_R.numel()
    dispatch.launch(_rms, (y_R.numel(),), y_R, x_RN.contiguous(), count_R.contiguous(), *sizes, BLOCK=BLOCK)
    return y_R


def peak(x_RN: torch.Tensor) -> torch.Tensor:
    """Return the highest absolute value of each row."""
    y_R = x_RN.new_empty(x_RN.shape[:-1])
    dispatch.launch(_peak, (y_R.numel(),), y_R, x_RN.contiguous(), x_RN.shape[-1], BLOCK=BLOCK)
    return y_R


@kernel
def _rms(y_ptr, x_ptr, heard_ptr, count, rows, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total, begin = tl.full([BLOCK], 0.0, tl.float32), 0
    while begin < count:
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + row * count + place, mask=place < count, other=0.0)
        total += value * value
        begin += BLOCK
    heard = tl.maximum(tl.load(heard_ptr + row // rows), 1).to(tl.float32)
    tl.store(y_ptr + row, tl.sqrt(tl.reduce(total, 0, _added) / heard))


@kernel
def _peak(y_ptr, x_ptr, count, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest, begin = tl.full([BLOCK], 0.0, tl.float32), 0
    while begin < count:
        place = begin + tl.arange(0, BLOCK)
        highest = tl.maximum(highest, tl.abs(tl.load(x_ptr + row * count + place, mask=place < count, other=0.0)))
        begin += BLOCK
    tl.store(y_ptr + row, tl.reduce(highest, 0, _larger))


@triton.jit
def _added(a, b):
    return a + b


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)
