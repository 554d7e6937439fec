"""Distortion: examples bent by tanh, at the level that they had.

Shapes: B examples, C channels, T samples.
"""

import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import level


@primitive
def distorted(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    """Amplify each example until its threshold is at 0.5, bend it by tanh, and restore its level; silence stays so.

    Args:
        x_BCT: the examples, silent past their ends.
        threshold_B: a sample, at least 0; up to it, tanh does little.
        length_B: of each example.
        out: where a kernel writes the result, if it is contiguous; it may be where x is.
    """
    bent_BCT = torch.tanh(x_BCT * (0.5 / (threshold_B + 1e-6))[:, None, None])
    before_B, after_B = (level(y_BCT, length_B) for y_BCT in (x_BCT, bent_BCT))
    heard_B = before_B > 1e-9
    return bent_BCT * torch.where(heard_B, before_B / after_B.masked_fill(~heard_B, 1.0), 1.0)[:, None, None]


@distorted.kernel()
def _distort_by_kernel(
    x_BCT: torch.Tensor, threshold_B: torch.Tensor, length_B: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    from audioaug.dsp.distortion import kernel

    return kernel.distorted(x_BCT, threshold_B, length_B, out)
