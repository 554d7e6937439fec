"""Cascades on the device: by a recursion on CPUs, elsewhere by FFT.

On a CPU a loop runs the recursion itself, 4 (one section) to 2 times (seven) faster than by FFT. On an NVIDIA GPU a
kernel multiplies spectra by the response. That, with u = sin(w/2) and v = g cos(w/2), is

    H = (low v^2 - high u^2 + j band u v) / D,  D = v^2 - u^2 + j k u v

where u^2, v^2 and u v keep all their digits in float32, also next to 0 Hz and to Nyquist. (cos(w) would not.)

Shapes: R rows, S sections, K = 7 numbers of each, C channels, T samples, F frequencies.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

from audioaug.dsp.biquads import NUMBERS, Cascade
from audioaug.dsp.dispatch import chunks, implementation_for, primitive
from audioaug.dsp.fft import apply_response, block_length
from audioaug.dsp.loops import Doubles, Floats, loop, run_rows, wide_vectors

RESPONSE_WEIGHT = 0.3
"""What a section's response costs, in FFTs of the same length and back (measured)."""


@primitive
def run(x_RCT: torch.Tensor, cascades: Sequence[Cascade], out: torch.Tensor | None = None) -> torch.Tensor:
    """Filter each row with its cascade, whose numbers are tensors. What comes out after a clip's end is undefined.

    It is written into ``out``, if given, which may be x's own memory.
    """
    y_RCT = torch.empty_like(x_RCT) if out is None else out
    for cascade in cascades:
        _write(x_RCT, cascade, y_RCT)
    return y_RCT


@run.loop()
def _run_by_loop(x_RCT: torch.Tensor, cascades: Sequence[Cascade], out: torch.Tensor | None = None) -> torch.Tensor:
    """Filter all rows together: how long they ring does not matter here."""
    numbers_RSK = torch.cat([_numbers(each, len(each.rows)) for each in cascades])
    if len(cascades) > 1:
        numbers_RSK = numbers_RSK.index_select(0, torch.cat([each.rows for each in cascades]).argsort())
    return run_rows(_filter_rows, x_RCT, numbers_RSK, out=out)


def _write(x_RCT: torch.Tensor, cascade: Cascade, y_RCT: torch.Tensor) -> None:
    """Filter the rows that a cascade is for into the same rows of y."""
    (_, channels, samples), rows = x_RCT.shape, len(cascade.rows)
    weight = 0.0 if implementation_for(x_RCT) == "kernel" else RESPONSE_WEIGHT * len(cascade.cuts) / channels
    n, numbers_RSK = block_length(samples, cascade.tail, weight, device=x_RCT.device), _numbers(cascade, rows)

    def multiply(spectrum_RCKF: torch.Tensor, some: slice) -> torch.Tensor:
        start_RC = x_RCT[..., 0].index_select(0, cascade.rows[some]) if any(cascade.cuts) else None
        return _multiply(spectrum_RCKF, numbers_RSK[some], cascade.cuts, n, cascade.missing_R[some], start_RC)

    for some in chunks(x_RCT, rows, max(n, samples * channels)):
        multiplied = functools.partial(multiply, some=some)
        apply_response(x_RCT, multiplied, n, cascade.tail, steady=True, rows_R=cascade.rows[some], into_RCT=y_RCT)


def response_RF(cascade: Cascade, rows: int, n: int) -> torch.Tensor:
    """Return the product of all sections' responses at the frequencies of an FFT of n samples."""
    numbers_RSK = _numbers(cascade, rows)
    return _response(numbers_RSK, cascade.cuts, _axis(n, max(cascade.cuts), numbers_RSK.device))


def _numbers(cascade: Cascade, rows: int) -> torch.Tensor:
    numbers_RSK: torch.Tensor = cascade.numbers.view(rows, len(cascade.cuts), NUMBERS)
    return numbers_RSK


def _axis(n: int, cut: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return sin(w/2), cos(w/2) and exp(-j w (cut - 1/2)) at the frequencies of an FFT of n samples."""
    # cos(w/2) as the sine of the rest of a right angle: a cosine would lose its digits near the Nyquist frequency.
    place = torch.arange(n // 2 + 1, device=device)
    u, c = torch.sin(place * (math.pi / n)), torch.sin((n - 2 * place) * (math.pi / (2 * n)))
    if not cut:
        return u, c
    angle = ((place * (2 * cut - 1)) % (2 * n)) * (-math.pi / n)  # reduced while it is a whole number
    return u, c, torch.polar(torch.ones_like(angle), angle)


@primitive
def _multiply(
    spectrum_RCKF: torch.Tensor,
    numbers_RSK: torch.Tensor,
    cuts: Sequence[int],
    n: int,
    missing_R: torch.Tensor,
    start_RC: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply spectra of FFTs of n samples by the responses of their rows' cascades over n, in place.

    ``start_RC`` is the first sample of each row, where sections are cut: of its steady state something is missing then.
    """
    axis = _axis(n, max(cuts), spectrum_RCKF.device)
    spectrum_RCKF.mul_(_response(numbers_RSK, cuts, axis).div_(n)[:, None, None])
    if start_RC is not None:
        spectrum_RCKF[..., 0] += (missing_R[:, None] * start_RC)[..., None]
    return spectrum_RCKF


@_multiply.kernel(when=lambda spectrum_RCKF, *_: spectrum_RCKF.is_contiguous())  # or a copy would be multiplied
def _multiply_by_kernel(
    spectrum_RCKF: torch.Tensor,
    numbers_RSK: torch.Tensor,
    cuts: Sequence[int],
    n: int,
    missing_R: torch.Tensor,
    start_RC: torch.Tensor | None,
) -> torch.Tensor:
    from audioaug.dsp.biquads.kernel import multiply_by_cascades

    multiply_by_cascades(spectrum_RCKF, numbers_RSK, n, max(cuts), missing_R, start_RC)
    return spectrum_RCKF


def _response(numbers_RSK: torch.Tensor, cuts: Sequence[int], axis: Sequence[torch.Tensor]) -> torch.Tensor:
    u, c, *turn = axis
    c2, u2, uc = c * c, u * u, u * c
    response: torch.Tensor | None = None
    for number, cut in enumerate(cuts):
        g, k, low, band, high, even, odd = numbers_RSK[:, number, :, None].unbind(dim=1)
        above = torch.complex(torch.addcmul((low * g * g) * c2, high, u2, value=-1.0), (band * g) * uc)
        below = torch.complex((g * g) * c2 - u2, (k * g) * uc)
        if cut:
            above.sub_(torch.complex(even * c, odd * u).mul_(turn[0]))
        each = below.reciprocal_().mul_(above)  # far quicker than a complex division
        response = each if response is None else response.mul_(each)
    assert response is not None
    return response


# The loop, in float64: sixteen rows side by side, in the lanes of registers. A section alone waits for itself from
# sample to sample. So the rows of a tile are interleaved; each section does a few samples of all lanes at a time. In
# the direct form I a sample waits for one product of the sample before, in the transposed form II for two.

LANES = 16
TILE = 64
"""Samples of each row that are interleaved."""
BLOCK = 4 * TILE
"""Samples of each row that are read together: shorter reads from sixteen rows are slow."""
ROW_PADDING = 16
"""Unused samples after each row of a block: without them all rows would need the same sets of the cache."""
STEPS = 8
"""Samples between stores of a section's state."""
TINY = 1e-200
"""A sample below it is 0: processors are slow with denormal numbers, as in the silence after a clip."""
SECTION_VALUES = 9
"""Of each section and lane: b0, b1, b2, a1, a2, and the state x[t - 1], x[t - 2], y[t - 1], y[t - 2]."""


@loop
def _filter_rows(x_RT: Floats, numbers_RSK: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Filter each row with its own cascade, from the steady state of its first sample; ``channels`` rows an example.

    Rows that no section filters, since another op than a filter applies to them, are only amplified.
    """
    samples, sections = x_RT.shape[1], numbers_RSK.shape[1]
    tile, section_values = np.zeros(TILE * LANES), np.zeros(sections * SECTION_VALUES * LANES)
    row_N, count, row_L = np.empty(last - first, np.int64), 0, np.empty(LANES, np.int64)
    block_LN = np.zeros((LANES, BLOCK + ROW_PADDING), np.float32)
    for row in range(first, last):
        gain = _gain(numbers_RSK[row // channels])
        if math.isnan(gain):
            row_N[count] = row
            count += 1
        else:
            for time in range(samples):
                y_RT[row, time] = gain * x_RT[row, time]
    for some in range(0, count, LANES):
        for lane in range(LANES):
            row = row_N[min(some + lane, count - 1)]  # lanes that are left do the same as the last one
            row_L[lane] = row
            _start(numbers_RSK[row // channels], np.float64(x_RT[row, 0]), section_values[lane:])
        for time in range(0, samples, BLOCK):
            end = min(time + BLOCK, samples)
            for lane in range(LANES):
                _copy(x_RT[row_L[lane], time:end], block_LN[lane, : end - time])
            for begin in range(0, end - time, TILE):
                _interleave(block_LN, begin, tile)
                for place in range(sections):
                    _filter(tile, section_values[place * SECTION_VALUES * LANES :])
                _deinterleave(tile, block_LN, begin)
            for lane in range(LANES):
                _copy(block_LN[lane, : end - time], y_RT[row_L[lane], time:end])


@loop
def _gain(numbers_SK: Floats) -> np.float32:
    """Return the factor that a cascade is, or NaN if it is more than that."""
    gain = np.float32(1.0)
    for place in range(len(numbers_SK)):
        k, low, band, high = numbers_SK[place, 1], numbers_SK[place, 2], numbers_SK[place, 3], numbers_SK[place, 4]
        gain *= low if low == high and band == k * low else np.float32(np.nan)
    return gain


@loop
def _start(numbers_SK: Floats, before: float, into: Doubles) -> None:
    """Write the coefficients of a cascade and its steady state for the constant input ``before`` into its lane."""
    for place in range(len(numbers_SK)):
        # (low + band p + high p^2) / (1 + k p + p^2), with p = (z - 1) / (z + 1) / g
        g, k = np.float64(numbers_SK[place, 0]), np.float64(numbers_SK[place, 1])
        low, band, high = numbers_SK[place, 2], numbers_SK[place, 3], numbers_SK[place, 4]
        a0 = 1 + g * (g + k)
        b0, b1, b2 = (
            (g * (g * low + band) + high) / a0,
            2 * (g * g * low - high) / a0,
            (g * (g * low - band) + high) / a0,
        )
        a1, a2 = 2 * (g * g - 1) / a0, (1 + g * (g - k)) / a0
        after = low * before
        own = into[place * SECTION_VALUES * LANES :]
        own[0], own[LANES], own[2 * LANES], own[3 * LANES], own[4 * LANES] = b0, b1, b2, a1, a2
        own[5 * LANES], own[6 * LANES], own[7 * LANES], own[8 * LANES] = before, before, after, after
        before = after


@loop
def _copy(x_N: Floats, y_N: Floats) -> None:
    for n in range(len(y_N)):
        y_N[n] = x_N[n]


@loop
def _interleave(block_LN: Floats, begin: int, tile: Doubles) -> None:
    for lane in range(LANES):
        x_T = block_LN[lane, begin : begin + TILE]
        for step in range(TILE):
            tile[step * LANES + lane] = x_T[step]


@loop
def _deinterleave(tile: Doubles, block_LN: Floats, begin: int) -> None:
    for lane in range(LANES):
        y_T = block_LN[lane, begin : begin + TILE]
        for step in range(TILE):
            y_T[step] = tile[step * LANES + lane]


@loop
def _filter(tile: Doubles, own: Doubles) -> None:
    """Run a tile through a section."""
    wide_vectors()
    for time in range(0, TILE, STEPS):
        some = tile[time * LANES : (time + STEPS) * LANES]
        for lane in range(LANES):
            b0, b1, b2 = own[lane], own[LANES + lane], own[2 * LANES + lane]
            a1, a2 = own[3 * LANES + lane], own[4 * LANES + lane]
            x_1, x_2 = own[5 * LANES + lane], own[6 * LANES + lane]
            y_1, y_2 = own[7 * LANES + lane], own[8 * LANES + lane]
            for step in range(STEPS):
                x = some[step * LANES + lane]
                y = b0 * x + b1 * x_1 + b2 * x_2 - a2 * y_2 - a1 * y_1
                x_1, x_2, y_1, y_2 = x, x_1, y, y_1
                some[step * LANES + lane] = y
            own[5 * LANES + lane], own[6 * LANES + lane] = x_1, x_2
            own[7 * LANES + lane], own[8 * LANES + lane] = _settled(y_1), _settled(y_2)


@loop
def _settled(sample: float) -> float:
    return 0.0 if abs(sample) < TINY else sample
