"""Quantization: samples rounded to multiples of a step.

Shapes: B examples, C channels, T samples; R rows, a channel of an example each.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, loop_as_written, run_rows


@primitive
def quantized(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Round each example to multiples of 1 / steps, halves to the even one; ``out`` may be x itself."""
    # A true division, here and there: a sample that lies half-way must not be moved before it is rounded.
    steps_B11 = steps_B[:, None, None]
    return torch.mul(x_BCT, steps_B11, out=out).round_().div_(steps_B11)


@quantized.loop()
def _quantize_by_loop(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    return run_rows(_quantize_rows, x_BCT, steps_B, out=out)


@quantized.kernel()
def _quantize_by_kernel(x_BCT: torch.Tensor, steps_B: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    from audioaug.dsp.quantization import kernel

    return kernel.quantized(x_BCT, steps_B, out)


@loop_as_written
def _quantize_rows(x_RT: Floats, steps_B: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    in_place = x_RT.ctypes.data == y_RT.ctypes.data
    for row in range(first, last):
        x_T, y_T, steps = x_RT[row], y_RT[row], steps_B[row // channels]
        if in_place:  # with two arrays that overlap, the loop would not be vectorized: 4x slower
            for t in range(len(y_T)):
                y_T[t] = np.rint(y_T[t] * steps) / steps
        else:
            for t in range(len(x_T)):
                y_T[t] = np.rint(x_T[t] * steps) / steps
