"""Companding: samples as the 8 bits of ITU-T G.711 hold them, by mu-law or A-law, rounded as libsndfile rounds.

Shapes: B examples, C channels, T samples, N sizes of samples; R rows, a channel of an example each.
"""

import functools
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import peak
from audioaug.dsp.loops import Floats, loop_as_written, run_rows

Law: TypeAlias = Literal["mulaw", "alaw"]


class Scale(NamedTuple):
    """How a law counts: a sample of full scale has ``steps`` of the smallest steps, of which ``most`` are kept.

    ``bias`` is added before the number is rounded to five binary digits; ``step`` is what one is when it is decoded.
    """

    steps: float
    most: float
    bias: float
    step: float


SCALES: dict[Law, Scale] = {
    "mulaw": Scale(steps=8191.75, most=8158.0, bias=33.0, step=2.0**-13),
    "alaw": Scale(steps=2047.9375, most=2047.0, bias=0.0, step=2.0**-11),
}
"""libsndfile multiplies by 32767 / 4 and 32767 / 16 to encode, and divides by 32768 to decode."""

DIGITS, HALF = -(2**19), 2**18
"""Of a float32: the bits that hold the five leading binary digits, and the bit after these."""

MANTISSA, EXPONENT = 2**23 - 1, 0x7F800000
"""Of a positive float32: the bits after the leading digit, and those that say where that is."""


def full_scale(x_BCT: torch.Tensor) -> torch.Tensor:
    """Return what each example is divided by to be encoded, (B, 1, 1): 1, or the power of 2 that no sample exceeds."""
    bits_B11 = (peak(x_BCT).view(torch.int32) + MANTISSA) & EXPONENT
    return bits_B11.view(torch.float32).clamp(min=1.0)


@primitive
def companded(x_BCT: torch.Tensor, full_B: torch.Tensor, law: Law, out: torch.Tensor | None) -> torch.Tensor:
    """Encode each sample in 8 bits and decode it.

    Args:
        x_BCT: the examples.
        full_B: full scale of each, a power of 2.
        law: mu-law or A-law.
        out: where a loop or kernel writes the result, if it is contiguous; it may be where x is.
    """
    scale, full_B11 = SCALES[law], full_B[:, None, None]
    size_BCT = _decoded((x_BCT * full_B11.reciprocal()).abs_().mul_(scale.steps).round_(), scale).mul_(full_B11)
    return torch.where(x_BCT < 0, -size_BCT, size_BCT)


def _decoded(size_N: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Return what is decoded for a number of smallest steps: the middle of all numbers with its five leading digits."""
    biased_N = size_N.clamp(max=scale.most) + scale.bias
    middle_N = ((biased_N.view(torch.int32) & DIGITS) | HALF).view(torch.float32)
    return (torch.where(biased_N < 16.0, biased_N + 0.5, middle_N) - scale.bias) * scale.step


@companded.loop()
def _compand_by_loop(x_BCT: torch.Tensor, full_B: torch.Tensor, law: Law, out: torch.Tensor | None) -> torch.Tensor:
    return run_rows(_compand_rows, x_BCT, full_B, _decoded_sizes(law), SCALES[law].steps, out=out)


@functools.cache
def _decoded_sizes(law: Law) -> torch.Tensor:
    """Return what is decoded for each number of smallest steps, up to the greatest."""
    return _decoded(torch.arange(SCALES[law].most + 1, device="cpu"), SCALES[law])


@loop_as_written
def _compand_rows(
    x_RT: Floats, full_B: Floats, decoded_N: Floats, steps: float, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Look each sample up. The result may be where x is."""
    for row in range(first, last):
        x_T, y_T, full = x_RT[row], y_RT[row], full_B[row // channels]
        for t in range(len(x_T)):
            size = np.rint(abs(x_T[t] / full) * np.float32(steps))
            if np.isnan(size):
                y_T[t] = size
                continue
            value = decoded_N[min(int(size), len(decoded_N) - 1)] * full
            y_T[t] = -value if x_T[t] < 0 else value


@companded.kernel()
def _compand_by_kernel(x_BCT: torch.Tensor, full_B: torch.Tensor, law: Law, out: torch.Tensor | None) -> torch.Tensor:
    from audioaug.dsp.companding import kernel

    return kernel.companded(x_BCT, full_B, SCALES[law], out)
