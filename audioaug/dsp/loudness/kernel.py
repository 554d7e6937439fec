"""A kernel that adds up the energy of steps after the K weighting, as a recursion, all steps side by side.

Each begins some steps early, in silence: by then, what the filters' state should have been there has died away.

Shapes: B examples, C channels, T samples, N steps; the grid is rows, a channel of an example each, by blocks of steps.
"""

import torch
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel

BLOCK = 32
"""Steps that a program adds up."""


def energy(x_BCT: torch.Tensor, step: int, early: int, sections: tuple[tuple[float, ...], ...]) -> torch.Tensor:
    """Return what ``loudness._energy_of_channels`` does, (B, C, N).

    Args:
        x_BCT: the samples; T is a multiple of the step.
        step: in samples.
        early: how many steps the filters ring.
        sections: b0, b1, b2, a1 and a2 of both.
    """
    rows, channels, samples = x_BCT.shape
    steps = samples // step
    y_BCN = x_BCT.new_empty(rows, channels, steps, dtype=torch.float64)
    grid, sizes = grid_of(y_BCN, BLOCK), (samples, steps, step, early)
    first, second = (tuple(section) for section in sections)
    dispatch.launch(_add_up, grid, y_BCN, x_BCT.contiguous(), *sizes, FIRST=first, SECOND=second, BLOCK=BLOCK)
    return y_BCN


@kernel
def _add_up(y_ptr, x_ptr, samples, steps, step, early, FIRST: tl.constexpr, SECOND: tl.constexpr, BLOCK: tl.constexpr):
    row_ptr = x_ptr + tl.program_id(0).to(tl.int64) * samples
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    p1, p2 = tl.full([BLOCK], 0.0, tl.float64), tl.full([BLOCK], 0.0, tl.float64)
    q1, q2, total = p1, p2, p1
    time = 0
    while time < (early + 1) * step:
        at = (place - early) * step + time
        x = tl.load(row_ptr + at, mask=(at >= 0) & (at < samples), other=0.0).to(tl.float64)
        y = x * FIRST[0] + p1
        p1 = x * FIRST[1] + p2 - y * FIRST[3]
        p2 = x * FIRST[2] - y * FIRST[4]
        z = y * SECOND[0] + q1
        q1 = y * SECOND[1] + q2 - z * SECOND[3]
        q2 = y * SECOND[2] - z * SECOND[4]
        total += tl.where(time >= early * step, z * z, 0.0)
        time += 1
    tl.store(y_ptr + tl.program_id(0).to(tl.int64) * steps + place, total, mask=place < steps)
