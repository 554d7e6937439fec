"""Kernels that cut rows into windowed frames, and add frames up.

Shapes: R rows, C channels, T samples, S samples out, N frames of W samples.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.fft import with_room
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 1024
"""Samples that a program computes."""

AS_WRITTEN = {"enable_fp_fusion": False}
"""For kernels that round times to samples: fused, a product would not be rounded before, and halves go elsewhere."""


def frames(
    x_RCT: torch.Tensor,
    frame: int,
    count: int,
    rate_R: torch.Tensor | None,
    earlier: int,
    length_R: torch.Tensor | None,
) -> torch.Tensor:
    """Return the frames of ``stft.spectra_at`` under their windows, (R, C, N, W), with room for the FFT's rows."""
    rows, channels, samples = x_RCT.shape
    x_RCT, y_RCNW = x_RCT.contiguous(), with_room(x_RCT, rows, channels, count, frame)
    rate_R, has_rate = (x_RCT, 0) if rate_R is None else (rate_R.contiguous(), 1)
    length_R, has_length = (_nothing(x_RCT, torch.int64), 0) if length_R is None else (length_R.contiguous(), 1)
    grid, sizes = grid_of(y_RCNW, BLOCK), (samples, count, channels, frame, earlier)
    numbers = *sizes, has_rate, has_length
    dispatch.launch(_cut, grid, y_RCNW, x_RCT, rate_R, length_R, *numbers, BLOCK=BLOCK, **AS_WRITTEN)
    return y_RCNW


def add_up(
    frames_RCNW: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None, least_weight: float
) -> torch.Tensor:
    """Return what ``stft.added_up`` makes of frames that are W times too large, (R, C, S)."""
    rows, channels, count, frame = frames_RCNW.shape
    y_RCS = frames_RCNW.new_empty(rows, channels, samples_out)
    there_RN, has_there = (_nothing(y_RCS, torch.bool), 0) if there_RN is None else (there_RN.contiguous(), 1)
    sizes = samples_out, count, channels, frame, has_there, least_weight
    dispatch.launch(_add_up, grid_of(y_RCS, BLOCK), y_RCS, frames_RCNW.contiguous(), there_RN, *sizes, BLOCK=BLOCK)
    return y_RCS


def _nothing(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that is not read: pointers to numbers of another type would be compiled for anew."""
    return x.new_empty(1, dtype=dtype)


@kernel
def _cut(
    y_ptr,
    x_ptr,
    rate_ptr,
    length_ptr,
    samples,
    count,
    channels,
    frame,
    earlier,
    has_rate,
    has_length,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)  # of the frame, one row after the other
    part, n = number // count, number % count
    rate = tl.load(rate_ptr + part // channels, mask=has_rate != 0, other=1.0)
    centre = tl.where(has_rate != 0, centre_at(n, frame // 4, rate), n * (frame // 4)) - earlier
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    time = centre - frame // 2 + place
    length = tl.load(length_ptr + part // channels, mask=has_length != 0, other=samples)
    inside = (time >= 0) & (time < length) & (time < samples) & (place < frame)
    value = tl.load(x_ptr + part * samples + time, mask=inside, other=0.0)
    tl.store(y_ptr + number * frame + place, value * _hann(place, frame), mask=place < frame)


@kernel
def _add_up(y_ptr, frame_ptr, there_ptr, samples, count, channels, frame, has_there, least_weight, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    time = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = time + frame // 2
    total, weight = tl.full([BLOCK], 0.0, tl.float32), tl.full([BLOCK], 0.0, tl.float32)
    back = 0
    while back < 4:  # unrolled, it would take twice as long to compile
        n = place // (frame // 4) - back
        inside = (n >= 0) & (n < count) & (time < samples)
        there = tl.load(there_ptr + part // channels * count + n, mask=inside & (has_there != 0), other=1)
        inside = inside & (there != 0)
        window = tl.where(inside, _hann(place - n * (frame // 4), frame), 0.0)
        at = (part * count + n) * frame + place - n * (frame // 4)
        total += tl.load(frame_ptr + at, mask=inside, other=0.0) * window
        weight += window * window
        back += 1
    tl.store(y_ptr + part * samples + time, total / (tl.maximum(weight, least_weight) * frame), mask=time < samples)


@triton.jit
def _hann(place, size):
    return 0.5 - 0.5 * tl.cos(place.to(tl.float32) * (6.283185307179586 / size.to(tl.float32)))


@triton.jit
def centre_at(number, hop, rate):
    """Return the sample that frame ``number`` is centred on, as ``stft.centres`` with a rate."""
    return rounded(number.to(tl.float32) * (hop.to(tl.float32) * rate)).to(tl.int64)


@triton.jit
def rounded(x):
    """Round to the nearest whole number, halves to even, as torch does."""
    low = tl.floor(x)
    is_odd = low - 2.0 * tl.floor(low * 0.5) != 0.0
    return low + tl.where((x - low > 0.5) | ((x - low == 0.5) & is_odd), 1.0, 0.0)
