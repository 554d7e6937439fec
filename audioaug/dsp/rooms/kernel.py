"""A kernel that adds up the images of rooms: each program those that reach its part of a response.

Shapes: B rooms, K bands, N samples, I images, Q images along an axis, O orders, L taps; the grid is rooms by blocks.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.fft import with_room
from audioaug.dsp.jit import kernel

BLOCK = 256
"""Samples that a program computes, of all bands."""
MOST_BANDS = 16
"""Octaves from 125 Hz on, for any sample rate; a power of two."""


def add_echoes(
    offset_B3Q: torch.Tensor,
    reflected_BO: torch.Tensor,
    images_4I: torch.Tensor,
    decay_K: torch.Tensor,
    taps_PL: torch.Tensor,
    samples_a_metre: float,
    samples: int,
) -> torch.Tensor:
    """Return what ``rooms.add_echoes`` does."""
    (rooms, _, axis), orders, images = offset_B3Q.shape, reflected_BO.shape[1], images_4I.shape[1]
    phases, taps = taps_PL.shape[0] - 2, taps_PL.shape[1]
    y_BKN = with_room(offset_B3Q, rooms, len(decay_K), samples)
    numbers = [each.contiguous() for each in (offset_B3Q, reflected_BO, images_4I, decay_K, taps_PL)]
    sizes = 3 * axis, orders, images, len(decay_K), samples
    grid, tables = (rooms, triton.cdiv(samples, BLOCK)), {"PHASES": phases, "TAPS": taps, "BANDS": MOST_BANDS}
    dispatch.launch(_add, grid, y_BKN, *numbers, samples_a_metre, *sizes, BLOCK=BLOCK, **tables)
    return y_BKN


@kernel
def _add(
    y_ptr,
    offset_ptr,
    reflected_ptr,
    images_ptr,
    decay_ptr,
    taps_ptr,
    samples_a_metre,
    offsets,
    orders,
    images,
    bands,
    samples,
    BLOCK: tl.constexpr,
    PHASES: tl.constexpr,
    TAPS: tl.constexpr,
    BANDS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * BLOCK
    place, band = begin + tl.arange(0, BLOCK), tl.arange(0, BANDS)
    decay = tl.load(decay_ptr + band, mask=band < bands, other=0.0)
    total = tl.full([BANDS, BLOCK], 0.0, tl.float32)
    last = tl.where(begin < samples // 2, images, 0)  # the second half is silent
    n = 0
    while n < last:
        x = tl.load(offset_ptr + row * offsets + tl.load(images_ptr + n))
        y = tl.load(offset_ptr + row * offsets + tl.load(images_ptr + images + n))
        z = tl.load(offset_ptr + row * offsets + tl.load(images_ptr + 2 * images + n))
        reflected = tl.load(reflected_ptr + row * orders + tl.load(images_ptr + 3 * images + n))
        distance = tl.sqrt(x * x + y * y + z * z)
        delay = distance * samples_a_metre
        start = delay.to(tl.int32)
        if (reflected > 0.0) & (start < begin + BLOCK) & (start + TAPS > begin):
            phase = (1.0 - (delay - start.to(tl.float32))) * PHASES
            before, tap = phase.to(tl.int32), place - start
            share, inside = phase - before.to(tl.float32), (tap >= 0) & (tap < TAPS)
            low = tl.load(taps_ptr + before * TAPS + tap, mask=inside, other=0.0)
            high = tl.load(taps_ptr + (before + 1) * TAPS + tap, mask=inside, other=0.0)
            gain = tl.exp(decay * distance) * (reflected / distance)
            total += gain[:, None] * (low + share * (high - low))[None, :]
        n += 1
    into_ptr = y_ptr + (row * bands + band[:, None]) * samples + place[None, :]
    tl.store(into_ptr, total, mask=(band < bands)[:, None] & (place < samples)[None, :])
