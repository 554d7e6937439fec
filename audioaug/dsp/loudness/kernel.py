"""Kernels that add up the energy of steps after the K weighting, and find the gains that bring clips to a loudness.

The weighting is a recursion, all steps side by side. Each begins some steps early, in silence: by then, what the
filters' state should have been there has died away.

Shapes: B examples, C channels, T samples, N steps; the grid is rows, a channel of an example each, by blocks of steps,
or examples.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel
from audioaug.dsp.levels.kernel import added

BLOCK = 32
"""Steps that a program adds up."""

GATED = 128
"""Blocks of 0.4 s that a program takes together."""


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


def gain(
    energy_BCN: torch.Tensor,
    length_B: torch.Tensor,
    lufs_B: torch.Tensor,
    step: int,
    weights: tuple[float, ...],
    bins: tuple[float, ...],
    relative_gate: float,
) -> torch.Tensor:
    """Return what ``loudness._gain_of_steps`` does, (B,).

    Args:
        energy_BCN: the sums of the squares of steps.
        length_B: in samples.
        lufs_B: the loudness to reach.
        step: in samples.
        weights: of the channels.
        bins: what a mean square of 0 dB falls short of 0 LUFS, the lowest level, the width of a bin, and how many.
        relative_gate: the share of the mean that a block has to reach.
    """
    y_B = energy_BCN.new_empty(len(energy_BCN), dtype=torch.float32)
    rows = energy_BCN.contiguous(), length_B.contiguous(), lufs_B.contiguous()
    constants = {"WEIGHTS": weights, "BINS": bins, "LEAST": 10 ** ((bins[0] + bins[1]) / 10), "GATE": relative_gate}
    dispatch.launch(_find_gain, (len(y_B),), y_B, *rows, energy_BCN.shape[-1], step, **constants, BLOCK=GATED)
    return y_B


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


@kernel
def _find_gain(
    y_ptr,
    energy_ptr,
    length_ptr,
    lufs_ptr,
    steps,
    step,
    WEIGHTS: tl.constexpr,
    BINS: tl.constexpr,
    LEAST: tl.constexpr,
    GATE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    row_ptr = energy_ptr + example * len(WEIGHTS) * steps
    blocks = tl.minimum(tl.load(length_ptr + example) // step, steps) - 3
    nothing = tl.full([BLOCK], 0.0, tl.float64)
    mean = _mean(row_ptr, nothing, blocks, steps, step, WEIGHTS, BINS, LEAST, BLOCK)
    mean = _mean(row_ptr, nothing + mean * GATE, blocks, steps, step, WEIGHTS, BINS, LEAST, BLOCK)
    ratio = tl.exp((tl.load(lufs_ptr + example).to(tl.float64) + BINS[0]) * 0.11512925464970229)  # log(10) / 20
    ratio = tl.where(mean > 0.0, ratio / tl.sqrt(tl.where(mean > 0.0, mean, 1.0)), 1.0)
    tl.store(y_ptr + example, ratio.to(tl.float32))


@triton.jit
def _mean(
    row_ptr,
    gate,
    blocks,
    steps,
    step,
    WEIGHTS: tl.constexpr,
    BINS: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the mean of the middles of the bins of those blocks that reach the gate and the lowest level; or 0."""
    total, count, begin = tl.full([BLOCK], 0.0, tl.float64), tl.full([BLOCK], 0, tl.int32), 0
    while begin < blocks:
        place = begin + tl.arange(0, BLOCK)
        energy = _energy(row_ptr, place, blocks, steps, WEIGHTS) / (4 * step).to(tl.float64)
        level = tl.log(tl.maximum(energy, LEAST)) * 4.3429448190325175 - BINS[0]  # 10 / log(10)
        number = tl.minimum(tl.maximum(tl.floor((level - BINS[1]) / BINS[2]), 0.0), BINS[3] - 1.0)
        middle = tl.exp((number * BINS[2] + BINS[2] / 2 + BINS[1] + BINS[0]) * 0.23025850929940458)  # log(10) / 10
        chosen = (place < blocks) & (energy >= LEAST) & (middle >= gate)
        total += tl.where(chosen, middle, 0.0)
        count += chosen.to(tl.int32)
        begin += BLOCK
    return tl.reduce(total, 0, added) / tl.maximum(tl.reduce(count, 0, added), 1).to(tl.float64)


@triton.jit
def _energy(row_ptr, place, blocks, steps, WEIGHTS: tl.constexpr):
    """Return the energy of blocks, four steps each, over all channels."""
    energy = tl.full(place.shape, 0.0, tl.float64)
    for channel in tl.static_range(len(WEIGHTS)):
        if WEIGHTS[channel] != 0.0:
            for n in tl.static_range(4):
                own_ptr = row_ptr + channel * steps + place + n
                energy += tl.load(own_ptr, mask=place < blocks, other=0.0) * WEIGHTS[channel]
    return energy
