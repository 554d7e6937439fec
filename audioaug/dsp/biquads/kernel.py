"""A kernel that multiplies spectra by the responses of filter cascades, which are never written to memory.

Shapes: R rows, P parts of a row (channels and blocks), F frequencies, S sections, K numbers of each.
"""

import math

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 512
"""Frequencies that a program computes, for all parts of a row."""


def multiply_by_cascades(spectrum_RPF: torch.Tensor, numbers_RSK: torch.Tensor, n: int, cut: int) -> None:
    """Multiply each row's spectra by the response over n, in place; see ``dsp.biquads`` for the response.

    Args:
        spectrum_RPF: complex64, contiguous, of FFTs of n samples.
        numbers_RSK: g, k, low, band, high, and what is cut off: even, odd.
        n: of the FFTs.
        cut: the sample at which sections are cut; 0 if none is.
    """
    rows, parts, bins = spectrum_RPF.shape
    sections, count = numbers_RSK.shape[1:]
    grid, values = (rows, triton.cdiv(bins, BLOCK)), (torch.view_as_real(spectrum_RPF), numbers_RSK.contiguous())
    sizes = parts, bins, sections, n, cut, math.pi / n
    dispatch.launch(_multiply, grid, *values, *sizes, NUMBERS=count, BLOCK=BLOCK)


@kernel
def _multiply(
    spectrum_ptr,
    numbers_ptr,
    parts,
    bins,
    sections,
    n,
    cut,
    angle_step,
    NUMBERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    place_F = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside_F = place_F < bins
    # sin(w/2), and cos(w/2) as the sine of the rest of a right angle: a cosine would lose its digits near Nyquist.
    u, c = tl.sin(place_F.to(tl.float32) * angle_step), tl.sin((n - 2 * place_F).to(tl.float32) * (angle_step * 0.5))
    turn, turn_j = u, c
    if cut > 0:  # exp(-j w (cut - 1/2)), of an angle that is reduced while it is a whole number
        angle = (place_F.to(tl.int64) * (2 * cut - 1) % (2 * n)).to(tl.float32) * -angle_step
        turn, turn_j = tl.cos(angle), tl.sin(angle)
    c2, u2, uc = c * c, u * u, u * c
    response, response_j = tl.full([BLOCK], 1.0, tl.float32) / n, tl.full([BLOCK], 0.0, tl.float32)
    section = 0
    while section < sections:  # range() is more than Triton's interpreter can do
        number_ptr = numbers_ptr + (row * sections + section) * NUMBERS
        g, k = tl.load(number_ptr), tl.load(number_ptr + 1)
        low, band, high = tl.load(number_ptr + 2), tl.load(number_ptr + 3), tl.load(number_ptr + 4)
        above, above_j = low * g * g * c2 - high * u2, band * g * uc
        if cut > 0:
            even, odd = tl.load(number_ptr + 5) * c, tl.load(number_ptr + 6) * u
            above -= even * turn - odd * turn_j
            above_j -= even * turn_j + odd * turn
        below, below_j = g * g * c2 - u2, k * g * uc
        scale = 1.0 / (below * below + below_j * below_j)
        each, each_j = (above * below + above_j * below_j) * scale, (above_j * below - above * below_j) * scale
        before = response
        response = before * each - response_j * each_j
        response_j = before * each_j + response_j * each
        section += 1
    part = 0
    while part < parts:
        part_ptr = spectrum_ptr + ((row.to(tl.int64) * parts + part) * bins + place_F) * 2
        x, x_j = tl.load(part_ptr, mask=inside_F), tl.load(part_ptr + 1, mask=inside_F)
        tl.store(part_ptr, x * response - x_j * response_j, mask=inside_F)
        tl.store(part_ptr + 1, x * response_j + x_j * response, mask=inside_F)
        part += 1
