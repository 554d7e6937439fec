"""Phases of a stretched clip, so that partials go on unbroken where frames overlap.

Shapes: R rows, C channels, N frames, F frequencies.
"""

import math

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.loops.compiling import Complex, Floats, Integers, loop, loop_as_written

f32, i32 = np.float32, np.int32

LOCK_BINS, PLACE, LATE_BITS = 2, 7, 10
"""As in ``stretch``."""
OLD_SHARE = f32(1 - 0.9)
"""... of a frequency's power, which was there before the attack."""
ONE = np.complex64(1)


@loop
def turn_spectra(
    before_RCNF: Complex,
    frame_RN: Integers,
    old_RN: Integers,
    late_RN: Integers,
    near_RN: NDArray[np.bool_],
    heard_R: Integers,
    here_RCNF: Complex,
    first: int,
    last: int,
) -> None:
    """Do what ``stretch`` does with the frames' spectra, in place. The numbers of each frame are its ``_Anchors``.

    Of each row so many frequencies are heard, from below.
    """
    _, channels, frames, bins = here_RCNF.shape
    missing_NF, total_NF = np.empty((frames, bins), dtype=np.complex64), np.empty((frames, bins), dtype=np.complex64)
    power_NF, around_NF = np.empty((frames, bins), dtype=f32), np.empty((frames, bins), dtype=f32)
    turn_F, on_F = np.empty(bins, dtype=np.complex64), np.empty(bins, dtype=np.complex64)
    marked_E, place_3F = np.empty(bins + 2 * LOCK_BINS, dtype=i32), np.empty((3, bins), dtype=np.int64)
    for row in range(first, last):
        _find_missing(here_RCNF[row], before_RCNF[row], missing_NF, total_NF)
        _find_power(here_RCNF[row], power_NF)
        for n in range(frames):
            _add_neighbours(power_NF[n], around_NF[n])
        here_RCNF[row, :, 0, heard_R[row] :] = 0
        turn_F[:] = ONE
        for n in range(1, frames):
            _find_peaks(power_NF[n], marked_E, place_3F)
            for f in range(bins):
                on_F[f] = turn_F[f] * missing_NF[n, f]
            for f in range(bins):
                turn_F[f] = on_F[place_3F[2, f]]
            if near_RN[row, n]:
                anchor, old, late = frame_RN[row, n], old_RN[row, n], late_RN[row, n]
                step = np.exp(-1j * math.pi * late / ((bins - 1) << LATE_BITS))
                delay = np.complex128(1)
                for f in range(bins):
                    power = around_NF[old, f] if old >= 0 else f32(0)
                    if power < OLD_SHARE * around_NF[anchor, f]:
                        turn_F[f] = total_NF[n, f] * np.conj(total_NF[anchor, f]) * np.complex64(delay)
                    delay *= step
            for channel in range(channels):
                here_F = here_RCNF[row, channel, n]
                for f in range(heard_R[row]):
                    here_F[f] *= turn_F[f]
                here_F[heard_R[row] :] = 0


@loop
def _find_missing(here_CNF: Complex, before_CNF: Complex, missing_NF: Complex, total_NF: Complex) -> None:
    """Find how much further each frequency must be turned than in the frame before; and in all frames up to there."""
    channels, frames, bins = here_CNF.shape
    missing_NF[0] = ONE
    total_NF[0] = ONE
    for n in range(1, frames):
        missing_F, earlier_F, total_F = missing_NF[n], total_NF[n - 1], total_NF[n]
        missing_F[:] = 0
        for channel in range(channels):
            here_F, before_F = here_CNF[channel, n - 1], before_CNF[channel, n]
            for f in range(bins):
                missing_F[f] += here_F[f] * np.conj(before_F[f])
        for f in range(bins):
            z = missing_F[f]
            square = z.real * z.real + z.imag * z.imag
            one = z * (f32(1) / np.sqrt(square)) if square > 0 else ONE
            missing_F[f] = one
            total_F[f] = earlier_F[f] * one


@loop_as_written
def _find_power(here_CNF: Complex, power_NF: Floats) -> None:
    """Find the power of each frequency of each frame, of all channels together."""
    channels, frames, bins = here_CNF.shape
    power_NF[:] = 0
    for channel in range(channels):
        for n in range(frames):
            here_F, power_F = here_CNF[channel, n], power_NF[n]
            for f in range(bins):
                power_F[f] += here_F[f].real * here_F[f].real + here_F[f].imag * here_F[f].imag


@loop
def _add_neighbours(x_F: Floats, y_F: Floats) -> None:
    """Add to each frequency's value those of two on either side, in the order in which the twin does."""
    bins = len(x_F)
    for f in range(bins):
        a = x_F[f - 2] if f >= 2 else f32(0)
        b = x_F[f - 1] if f >= 1 else f32(0)
        d = x_F[f + 1] if f + 1 < bins else f32(0)
        e = x_F[f + 2] if f + 2 < bins else f32(0)
        y_F[f] = ((a + b) + (x_F[f] + d)) + e


@loop
def _find_peaks(power_F: Floats, marked_E: NDArray[np.int32], place_3F: Integers) -> None:
    """Find for each frequency the peak that it belongs to, up to eight away: the last of three places."""
    bins = len(power_F)
    uphill_F, farther_F, peak_F = place_3F[0], place_3F[1], place_3F[2]
    bits_F = power_F.view(i32)
    marked_E[:LOCK_BINS] = -1
    marked_E[LOCK_BINS + bins :] = -1
    for f in range(bins):
        marked_E[LOCK_BINS + f] = (bits_F[f] & ~PLACE) | (f & PLACE)
    for f in range(bins):
        loudest = max(max(max(marked_E[f], marked_E[f + 1]), max(marked_E[f + 2], marked_E[f + 3])), marked_E[f + 4])
        uphill = f - LOCK_BINS + ((loudest - (f - LOCK_BINS)) & PLACE)
        uphill_F[f] = min(max(uphill, 0), bins - 1)  # of what is not a number anything may be said
    for f in range(bins):
        farther_F[f] = uphill_F[uphill_F[f]]
    for f in range(bins):
        peak_F[f] = farther_F[farther_F[f]]
