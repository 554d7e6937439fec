"""A kernel that multiplies spectra by the responses of filter cascades, which are never written to memory.

Shapes: R rows, C channels, B blocks, F frequencies, S sections, K numbers of each; a row's parts are its channels'
blocks.
"""

import math

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import kernel

BLOCK = 512
"""Frequencies that a program computes, for all parts of a row."""


def multiply_by_cascades(
    spectrum_RCBF: torch.Tensor,
    numbers_RSK: torch.Tensor,
    n: int,
    cut: int,
    missing_R: torch.Tensor,
    start_RC: torch.Tensor | None,
) -> None:
    """Multiply each row's spectra by the response over n, in place; see ``dsp.biquads`` for the response.

    Args:
        spectrum_RCBF: complex64, contiguous, of FFTs of n samples.
        numbers_RSK: g, k, low, band, high, and what is cut off: even, odd.
        n: of the FFTs.
        cut: the sample at which sections are cut; 0 if none is.
        missing_R: where some are, what is missing of the response at 0 Hz.
        start_RC: the first sample of each row; ``None`` if no section is cut.
    """
    (rows, channels, blocks, bins), (sections, count) = spectrum_RCBF.shape, numbers_RSK.shape[1:]
    start = missing_R if start_RC is None else start_RC.contiguous()  # which is not read then
    values = torch.view_as_real(spectrum_RCBF), numbers_RSK.contiguous(), missing_R.contiguous(), start
    sizes = channels, blocks, bins, sections, n, cut, math.pi / n
    dispatch.launch(_multiply, (rows, triton.cdiv(bins, BLOCK)), *values, *sizes, NUMBERS=count, BLOCK=BLOCK)


@kernel
def _multiply(
    spectrum_ptr,
    numbers_ptr,
    missing_ptr,
    start_ptr,
    channels,
    blocks,
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
    part, missing = 0, 0.0
    while part < channels * blocks:
        part_ptr = spectrum_ptr + ((row.to(tl.int64) * channels * blocks + part) * bins + place_F) * 2
        x, x_j = tl.load(part_ptr, mask=inside_F), tl.load(part_ptr + 1, mask=inside_F)
        if cut > 0:
            missing = tl.load(missing_ptr + row) * tl.load(start_ptr + row * channels + part // blocks)
        tl.store(part_ptr, x * response - x_j * response_j + tl.where(place_F == 0, missing, 0.0), mask=inside_F)
        tl.store(part_ptr + 1, x * response_j + x_j * response, mask=inside_F)
        part += 1
