"""Distortion: examples bent by tanh, at the level that they had.

Shapes: B examples, C channels, T samples.
"""

import math

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import level
from audioaug.dsp.loops import Floats, Integers, loop, loop_of_sums, run

BLOCK = 256
"""Samples that stay in the first cache while a loop works on them; their squares are added up in float32."""

f32 = np.float32


@primitive
def distorted(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    """Amplify each example until its threshold is at 0.5, bend it by tanh, and restore its level; silence stays so.

    Args:
        x_BCT: the examples, silent past their ends.
        threshold_B: a sample, at least 0; up to it, tanh does little.
        length_B: of each example.
        out: where a loop or kernel writes the result, if it is contiguous; it may be where x is.
    """
    bent_BCT = torch.tanh(x_BCT * (0.5 / (threshold_B + 1e-6))[:, None, None])
    before_B, after_B = (level(y_BCT, length_B) for y_BCT in (x_BCT, bent_BCT))
    heard_B = before_B > 1e-9
    return bent_BCT * torch.where(heard_B, before_B / after_B.masked_fill(~heard_B, 1.0), 1.0)[:, None, None]


@distorted.loop()
def _distort_by_loop(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    y_BCT = out if out is not None and out.is_contiguous() else x_BCT.new_empty(x_BCT.shape)
    run(_distort_examples, len(x_BCT), x_BCT, threshold_B, length_B, y_BCT)
    return y_BCT


@distorted.kernel()
def _distort_by_kernel(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    from audioaug.dsp.distortion import kernel

    return kernel.distorted(x_BCT, threshold_B, length_B, out)


@loop
def _distort_examples(
    x_BCT: Floats, threshold_B: Floats, length_B: Integers, y_BCT: Floats, first: int, last: int
) -> None:
    """Distort examples. The result may be where they are."""
    channels, samples = x_BCT.shape[1:]
    some_T = np.empty(BLOCK, f32)  # a loop over x and y would not be vectorized where these may overlap
    for row in range(first, last):
        gain, length = f32(0.5) / (threshold_B[row] + f32(1e-6)), max(length_B[row], 1)
        before, after = 0.0, 0.0
        for channel in range(channels):
            squares, bent_squares = 0.0, 0.0
            for begin in range(0, samples, BLOCK):
                x_T, y_T = x_BCT[row, channel, begin : begin + BLOCK], y_BCT[row, channel, begin : begin + BLOCK]
                square, bent_square = _bend(x_T, gain, some_T)
                squares, bent_squares = squares + square, bent_squares + bent_square
                for t in range(len(y_T)):
                    y_T[t] = some_T[t]
            before += math.sqrt(squares / length)
            after += math.sqrt(bent_squares / length)
        if before > 1e-9 * channels:
            _multiply(y_BCT[row].reshape(-1), f32(before / after))


@loop_of_sums
def _bend(x_T: Floats, gain: f32, y_T: Floats) -> tuple[float, float]:
    """Bend samples by tanh. Return the sums of the squares of the samples before and after.

    tanh is a minimax rational approximation on [-8, 8], whose relative error is at most 4e-7; inputs are clamped.
    """
    squares, bent_squares = f32(0), f32(0)
    for t in range(len(x_T)):
        x = x_T[t] * gain
        x = f32(-8) if x < f32(-8) else x
        x = f32(8) if x > f32(8) else x
        u = x * x
        above = (((f32(1.5230615e-8) * u + f32(2.18948e-5)) * u + f32(3.57160628e-3)) * u + f32(0.134445049)) * u
        below = (((f32(8.52252599e-7) * u + f32(3.41130561e-4)) * u + f32(2.61644743e-2)) * u + f32(0.467778322)) * u
        bent = x * (above + f32(1)) / (below + f32(1))
        y_T[t] = bent
        squares += x_T[t] * x_T[t]
        bent_squares += bent * bent
    return float(squares), float(bent_squares)


@loop
def _multiply(x_T: Floats, factor: f32) -> None:
    for t in range(len(x_T)):
        x_T[t] *= factor
