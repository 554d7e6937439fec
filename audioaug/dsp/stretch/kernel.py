"""Kernels of the phase vocoder ``stretch``: they find attacks, and turn the spectra of frames, one after the other.

Shapes: R rows, C channels, T samples, K blocks, N frames, F frequencies.
"""

import torch
import triton
import triton.language as tl

from audioaug.dsp import dispatch
from audioaug.dsp.jit import grid_of, kernel
from audioaug.dsp.stft.kernel import AS_WRITTEN, centre_at, rounded

BLOCK = 128
"""Blocks, or frames, that a program looks at."""

REACH = 16
"""Attacks farther off than this many blocks are not near."""

WARPS = 8
"""Of a program that turns the frequencies of a frame."""


def attacks(x_RCT: torch.Tensor, block: int, past: int, apart: int, rise: float, quiet: float) -> torch.Tensor:
    """Return which blocks hold an attack, as ``attacks._attacks`` does, as 0 or 1."""
    rows, channels, samples = x_RCT.shape
    count = triton.cdiv(samples, block)
    power_RK, attack_RK = x_RCT.new_empty(rows, count), x_RCT.new_empty(rows, count, dtype=torch.int32)
    grid = grid_of(power_RK, BLOCK)
    dispatch.launch(_find_power, grid, power_RK, x_RCT.contiguous(), samples, channels, count, block, BLOCK=BLOCK)
    numbers = count, rise, quiet
    dispatch.launch(_find_attacks, grid, attack_RK, power_RK, *numbers, PAST=past, APART=apart, BLOCK=BLOCK)
    return attack_RK


def anchors(
    attack_RK: torch.Tensor, rate_R: torch.Tensor, count: int, frame: int, block: int, near: float, late_bits: int
) -> tuple[torch.Tensor, ...]:
    """Return the fields of ``stretch._Anchors``, (R, N) each."""
    rows, blocks = attack_RK.shape
    numbers_3RN = rate_R.new_empty(3, rows, count, dtype=torch.int64)
    near_RN = rate_R.new_empty(rows, count, dtype=torch.bool)
    grid, sizes = grid_of(near_RN, BLOCK), (rows, count, blocks, frame, block, near * frame)
    inputs, numbers = (near_RN, attack_RK, rate_R.contiguous()), (*sizes, float(2**late_bits))
    dispatch.launch(_find_anchors, grid, numbers_3RN, *inputs, *numbers, REACH=REACH, BLOCK=BLOCK, **AS_WRITTEN)
    return *numbers_3RN, near_RN


def turn(
    here: torch.Tensor,
    before: torch.Tensor,
    frame_RN: torch.Tensor,
    old_RN: torch.Tensor,
    late_RN: torch.Tensor,
    near_RN: torch.Tensor,
    kept_R: torch.Tensor | None,
    late_bits: int,
    old_share: float,
    least: float,
) -> torch.Tensor:
    """Return what ``stretch._turned`` does, in the memory of ``before``."""
    rows, channels, frames, bins = here.shape
    block = triton.next_power_of_2(bins)
    spectra = torch.view_as_real(before), torch.view_as_real(here)
    power_RNF = spectra[1].new_empty(rows, frames, bins)
    peak_RNF = spectra[1].new_empty(rows, frames, bins, dtype=torch.int32)
    exact = {"BLOCK": block, "num_warps": WARPS, "enable_fp_fusion": False}  # where a digit more decides otherwise
    dispatch.launch(_find_peaks, (rows * frames,), peak_RNF, power_RNF, spectra[1], channels, frames, bins, **exact)
    scratch = spectra[1].new_empty(rows, frames, bins, 2), spectra[1].new_empty(rows, 2, bins, 2)
    kept_R, has_kept = (power_RNF, 0) if kept_R is None else (kept_R.contiguous(), 1)
    places = frame_RN.contiguous(), old_RN.contiguous(), late_RN.contiguous(), near_RN.contiguous(), kept_R
    sizes = channels, frames, bins, has_kept, 2 * (bins - 1) << late_bits, old_share, least
    dispatch.launch(_turn, (rows,), *spectra, power_RNF, peak_RNF, *scratch, *places, *sizes, **exact)
    return before


@kernel
def _find_power(power_ptr, x_ptr, samples, channels, blocks, block, BLOCK: tl.constexpr):
    """Find the power of each block's differences between samples, of all channels together."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.full([BLOCK], 0.0, tl.float32)
    channel = 0
    while channel < channels:
        row_ptr = x_ptr + (row * channels + channel) * samples
        time = place * block
        last = tl.load(row_ptr + time - 1, mask=(time > 0) & (time < samples), other=0.0)
        step = 0
        while step < block:
            value = tl.load(row_ptr + time + step, mask=time + step < samples, other=0.0)
            total += tl.where(time + step < samples, (value - last) * (value - last), 0.0)
            last = value
            step += 1
        channel += 1
    tl.store(power_ptr + row * blocks + place, total, mask=place < blocks)


@kernel
def _find_attacks(
    attack_ptr, power_ptr, blocks, rise, quiet, PAST: tl.constexpr, APART: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row_ptr = power_ptr + row * blocks
    own, highest = _rise(row_ptr, place, blocks, rise, quiet, PAST), tl.full([BLOCK], 0.0, tl.float32)
    around = -APART
    while around <= APART:
        highest = tl.maximum(highest, _rise(row_ptr, place + around, blocks, rise, quiet, PAST))
        around += 1
    attack = ((own == highest) & (own > 0.0)).to(tl.int32)
    tl.store(attack_ptr + row * blocks + place, attack, mask=place < blocks)


@triton.jit
def _rise(power_ptr, place, blocks, rise, quiet, PAST: tl.constexpr):
    """Return how much louder than those before it a block is, if it is so much louder; else 0."""
    there = (place >= 0) & (place < blocks)
    own = tl.load(power_ptr + place, mask=there, other=0.0)
    past = own * 0.0
    for before in tl.static_range(PAST):
        earlier = place - (PAST - before)
        past += tl.load(power_ptr + earlier, mask=(earlier >= 0) & (earlier < blocks), other=0.0)
    past = past / PAST
    return tl.where(there & (own > rise * past + quiet), own - past, 0.0)


@kernel
def _find_anchors(
    number_ptr,
    near_ptr,
    attack_ptr,
    rate_ptr,
    rows,
    frames,
    blocks,
    frame,
    block,
    near,
    late_scale,
    REACH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rate = tl.load(rate_ptr + row)
    hop = (frame // 4).to(tl.float32) * rate
    centre = centre_at(n, frame // 4, rate)
    at, far = tl.minimum(centre // block, blocks - 1), centre * 0 + 1099511627776  # no clip is so long
    earlier, later = -far, far
    step = REACH
    while step >= 0:  # the nearest is the last to be found
        before, after = at - step, at + step
        found = tl.load(attack_ptr + row * blocks + before, mask=before >= 0, other=0) != 0
        earlier = tl.where(found, before * block + block // 2, earlier)
        found = tl.load(attack_ptr + row * blocks + after, mask=after < blocks, other=0) != 0
        later = tl.where(found, after * block + block // 2, later)
        step -= 1
    time = tl.where(centre - earlier < later - centre, earlier, later)
    is_near = tl.abs(time - centre).to(tl.float32) < near
    time = tl.where(is_near, time, 0)
    anchor = tl.minimum(rounded(tl.div_rn(time.to(tl.float32), hop)).to(tl.int64), frames - 1)
    old = tl.floor(tl.div_rn((time - frame // 2).to(tl.float32), hop)).to(tl.int64)
    off = (time - centre_at(anchor, frame // 4, rate)).to(tl.float32)
    late = rounded((tl.div_rn(1.0, rate) - 1.0) * off * late_scale).to(tl.int64)
    into_ptr, plane, inside = number_ptr + row * frames + n, rows.to(tl.int64) * frames, n < frames
    tl.store(into_ptr, anchor, mask=inside)
    tl.store(into_ptr + plane, tl.minimum(old, frames - 1), mask=inside)
    tl.store(into_ptr + 2 * plane, late, mask=inside)
    tl.store(near_ptr + row * frames + n, is_near, mask=inside)


@kernel
def _find_peaks(peak_ptr, power_ptr, here_ptr, channels, frames, bins, BLOCK: tl.constexpr):
    """Find the power of a frame's frequencies, and for each the peak that it belongs to, as ``stretch._peaks``."""
    number = tl.program_id(0).to(tl.int64)
    row, n = number // frames, number % frames
    place = tl.arange(0, BLOCK)
    inside = place < bins
    power = tl.full([BLOCK], 0.0, tl.float32)
    channel = 0
    while channel < channels:
        at = here_ptr + (((row * channels + channel) * frames + n) * bins + place) * 2
        x, x_j = tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)
        power += x * x + x_j * x_j
        channel += 1
    tl.store(power_ptr + number * bins + place, power, mask=inside)
    tl.debug_barrier()
    peak, step = place, 0
    while step < 4:  # what lies farther off belongs to no partial
        peak = _uphill(power_ptr + number * bins, peak, bins)
        step += 1
    tl.store(peak_ptr + number * bins + place, peak, mask=inside)


@triton.jit
def _uphill(power_ptr, place, bins):
    """Return the loudest of each frequency and two on either side. The lowest bits of a power tell where it was."""
    loudest = place * 0 - 1
    for around in tl.static_range(5):
        near = place + (around - 2)
        inside = (near >= 0) & (near < bins)
        bits = tl.load(power_ptr + near, mask=inside, other=0.0).to(tl.int32, bitcast=True)
        loudest = tl.maximum(loudest, tl.where(inside, (bits & -8) | (near & 7), -1))
    uphill = place - 2 + ((loudest - (place - 2)) & 7)
    return tl.minimum(tl.maximum(uphill, 0), bins - 1)


@kernel
def _turn(
    before_ptr,
    here_ptr,
    power_ptr,
    peak_ptr,
    total_ptr,
    on_ptr,
    frame_ptr,
    old_ptr,
    late_ptr,
    near_ptr,
    kept_ptr,
    channels,
    frames,
    bins,
    has_kept,
    whole,
    old_share,
    least,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside, nothing = place < bins, tl.full([BLOCK], 0.0, tl.float32)
    kept = tl.load(kept_ptr + row, mask=has_kept != 0, other=1.0)
    heard = tl.ceil(kept * bins.to(tl.float32)).to(tl.int32)
    total, total_j = nothing + 1.0, nothing  # by how much all frames up to here must be turned
    n = 0
    while n < frames:
        missing, missing_j = _missing(here_ptr, before_ptr, row, n, place, channels, frames, bins, least)
        earlier = total
        total = earlier * missing - total_j * missing_j
        total_j = earlier * missing_j + total_j * missing
        at = total_ptr + ((row * frames + n) * bins + place) * 2
        tl.store(at, total, mask=inside)
        tl.store(at + 1, total_j, mask=inside)
        n += 1
    tl.debug_barrier()
    turn, turn_j = nothing + 1.0, nothing
    n = 0
    while n < frames:
        missing, missing_j = _missing(here_ptr, before_ptr, row, n, place, channels, frames, bins, least)
        on, on_j = turn * missing - turn_j * missing_j, turn * missing_j + turn_j * missing
        own_ptr = on_ptr + (row * 2 + n % 2) * bins * 2  # two by turns: one barrier is enough
        tl.store(own_ptr + 2 * place, on, mask=inside)
        tl.store(own_ptr + 2 * place + 1, on_j, mask=inside)
        tl.debug_barrier()
        number = row * frames + n
        peak = tl.load(peak_ptr + number * bins + place, mask=inside, other=0)
        turn, turn_j = tl.load(own_ptr + 2 * peak), tl.load(own_ptr + 2 * peak + 1)
        if tl.load(near_ptr + number) != 0:
            anchor, old = tl.load(frame_ptr + number), tl.load(old_ptr + number)
            was = _around(power_ptr + (row * frames + tl.maximum(old, 0)) * bins, place, bins)
            came = _around(power_ptr + (row * frames + anchor) * bins, place, bins)
            is_new = tl.where(old < 0, 0.0, was) < old_share * came
            anew, anew_j = _anew(total_ptr, row, n, anchor, tl.load(late_ptr + number), place, frames, bins, whole)
            turn, turn_j = tl.where(is_new, anew, turn), tl.where(is_new, anew_j, turn_j)
        channel = 0
        while channel < channels:
            at = (((row * channels + channel) * frames + n) * bins + place) * 2
            x, x_j = tl.load(here_ptr + at, mask=inside, other=0.0), tl.load(here_ptr + at + 1, mask=inside, other=0.0)
            is_heard = place < heard
            tl.store(before_ptr + at, tl.where(is_heard, x * turn - x_j * turn_j, 0.0), mask=inside)
            tl.store(before_ptr + at + 1, tl.where(is_heard, x * turn_j + x_j * turn, 0.0), mask=inside)
            channel += 1
        n += 1


@triton.jit
def _missing(here_ptr, before_ptr, row, n, place, channels, frames, bins, least):
    """Return by how much further than the frame before it each frequency of a frame must be turned: of size 1."""
    inside = (place < bins) & (n > 0)
    total, total_j = place.to(tl.float32) * 0.0, place.to(tl.float32) * 0.0
    channel = 0
    while channel < channels:
        at = (((row * channels + channel) * frames + n) * bins + place) * 2
        x, x_j = tl.load(before_ptr + at, mask=inside, other=0.0), tl.load(before_ptr + at + 1, mask=inside, other=0.0)
        at = at - bins * 2
        y, y_j = tl.load(here_ptr + at, mask=inside, other=0.0), tl.load(here_ptr + at + 1, mask=inside, other=0.0)
        total += y * x + y_j * x_j
        total_j += y_j * x - y * x_j
        channel += 1
    square = total * total + total_j * total_j
    is_heard = square >= least
    scale = 1.0 / tl.sqrt(tl.where(is_heard, square, 1.0))
    return tl.where(is_heard, total * scale, 1.0), tl.where(is_heard, total_j * scale, 0.0)


@triton.jit
def _anew(total_ptr, row, n, anchor, late, place, frames, bins, whole):
    """Return the turns of a frame that are counted from its attack; see ``stretch._anew``."""
    inside = place < bins
    at = total_ptr + ((row * frames + n) * bins + place) * 2
    x, x_j = tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)
    at = total_ptr + ((row * frames + anchor) * bins + place) * 2
    y, y_j = tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)
    turn, turn_j = x * y + x_j * y_j, x_j * y - x * y_j
    delay = place.to(tl.int64) * late % whole
    angle = delay.to(tl.float32) * (-6.283185307179586 / whole.to(tl.float32))
    c, s = tl.cos(angle), tl.sin(angle)
    return turn * c - turn_j * s, turn * s + turn_j * c


@triton.jit
def _around(power_ptr, place, bins):
    """Return the power of each frequency and two on either side, added up in the order of the torch definition."""
    a = tl.load(power_ptr + place - 2, mask=(place >= 2) & (place < bins), other=0.0)
    b = tl.load(power_ptr + place - 1, mask=(place >= 1) & (place < bins), other=0.0)
    c = tl.load(power_ptr + place, mask=place < bins, other=0.0)
    d = tl.load(power_ptr + place + 1, mask=place + 1 < bins, other=0.0)
    e = tl.load(power_ptr + place + 2, mask=place + 2 < bins, other=0.0)
    return ((a + b) + (c + d)) + e
