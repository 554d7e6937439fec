"""Time stretching of whole batches, each row by a real rate of its own: two phase vocoders.

Both cut the clip into overlapping frames, lay the frames out at another distance, and turn the phase of each frequency
of each frame so that partials continue unbroken where frames overlap. They differ in how: ``phase_vocoder`` equals
librosa's, which turns each frequency for itself and so loses what belongs together; ``stretch`` keeps it together, in
the way Laroche and Dolson (1999, phases locked to spectral peaks) and Roebel (2003, phases taken anew at attacks) have
found.

Shapes: R rows, C channels, T samples in, S samples out, N frames, W samples of a frame, F = W // 2 + 1 frequencies,
K blocks of a few milliseconds.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.fft import fast_length
from audioaug.dsp.loops import Complex, Floats, Integers, loop, loop_as_written, run
from audioaug.dsp.stft import added_up, centres, spectra_at
from audioaug.dsp.stretch.attacks import APART, PAST, QUIET, RISE, attack_times

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
f32, i32, u32, ONE = np.float32, np.int32, np.uint32, np.complex64(1)

FRAME_SECONDS = 0.09
"""Long enough to tell the partials of a deep voice apart. The hop is a quarter of it."""

LOCK_BINS = 2
"""A peak is the loudest of this many neighbours on either side: the main lobe of a Hann window."""

PLACE = 7
"""The bits that tell a frequency's neighbours from each other."""

BLOCKS = 24
"""Attacks are looked for in as many blocks a frame (4 ms each)."""

NEW_SHARE = 0.9
"""Where more than this share of a frequency's power came with an attack, its phase is taken anew."""

OLD_SHARE = f32(1 - NEW_SHARE)
"""... of its power, which was there before the attack."""

NEAR = 0.4
"""... in frames whose centre is not farther off than that part of a frame. More would delay what follows the attack."""

LATE_BITS = 10
"""A delay is in so small fractions of a sample, so that turns, of whole numbers, lose no digits."""

BINS_TOGETHER = 32
"""A loop finds the delays of this many frequencies as those of the first, times one turn each."""

LEAST = float(np.finfo(np.float32).tiny)
"""A square below this has lost digits, and GPUs take its root as 0: such a frequency, of silence, is not turned."""

CLASSIC_FRAME = 2048
"""What librosa takes, at any sample rate."""


def frame_size(sample_rate: int) -> int:
    """Return W for a sample rate: ``FRAME_SECONDS``, made a fast FFT length."""
    return 8 * fast_length(math.ceil(FRAME_SECONDS * sample_rate / 8))


def stretch(
    x_RCT: torch.Tensor, rate_R: torch.Tensor, samples_out: int, frame: int, kept_R: torch.Tensor | None = None
) -> torch.Tensor:
    """Play each row faster by its rate, at the same pitch: result sample k is what sounds at input time ``k * rate``.

    Args:
        x_RCT: the clips, silent past their ends.
        rate_R: above 1 is faster and shorter.
        samples_out: S, for all rows; silence follows ``T / rate``.
        frame: W, from ``frame_size``.
        kept_R: which part of the band to keep, from below; all of it if ``None``.

    Returns (R, C, S). Phases and levels between channels are kept. A rate of 1 changes nothing.
    """
    hop = frame // 4
    count = samples_out // hop + 3
    here = spectra_at(x_RCT, frame, count, rate_R)
    with torch.no_grad():
        before, anchors = spectra_at(x_RCT, frame, count, rate_R, earlier=hop), _anchors(x_RCT, rate_R, count, frame)
    return added_up(_turned(here, before, anchors, kept_R), samples_out)


def phase_vocoder(x_RCT: torch.Tensor, rate_R: torch.Tensor, samples_out: int, lengths_R: torch.Tensor) -> torch.Tensor:
    """Play each row faster by its rate, at the same pitch, as ``librosa.effects.time_stretch`` does.

    It agrees to a few thousandths: librosa adds phases up in float32, hundreds of thousands of radians in a few
    seconds, and loses that much. See ``stretch`` for the rest; S must reach to the end of the longest result.
    """
    hop = CLASSIC_FRAME // 4
    count, steps = x_RCT.shape[-1] // hop + 3, samples_out // hop + 3
    number_R1 = 1 + torch.div(lengths_R, hop, rounding_mode="floor")[:, None]
    centre_N = torch.arange(count, device=x_RCT.device)
    spectra = spectra_at(x_RCT, CLASSIC_FRAME, count)
    spectra = torch.where((centre_N < number_R1)[:, None, :, None], spectra, 0.0)  # past its frames a clip has none
    time_RN = torch.arange(steps, device=x_RCT.device) * rate_R[:, None]
    place_RN = time_RN.long().clamp(max=count - 2)
    here, after = (_taken(spectra, place_RN + k) for k in (0, 1))
    size = torch.lerp(here.abs(), after.abs(), (time_RN - place_RN).clamp(max=1.0)[:, None, :, None])
    first = spectra[:, :, :1]
    first = torch.where(first == 0, 0.0, first)  # the sign that an FFT gives to zeros is not a phase
    with torch.no_grad():
        advance = (torch.where(after == 0, 1.0, after) * torch.where(here == 0, 1.0, here).conj()).angle()
        phase = running_sum(torch.cat([first.angle(), advance[:, :, :-1]], dim=2), 2)
    return added_up(_polar(size, phase), samples_out, time_RN < number_R1)


def running_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return ``x.cumsum(dim)``; by doubling where algorithms have to be deterministic, which on CUDA forbids that."""
    if not torch.are_deterministic_algorithms_enabled():
        return x.cumsum(dim)
    count, step = x.shape[dim], 1
    while step < count:
        later = x.narrow(dim, step, count - step) + x.narrow(dim, 0, count - step)
        x, step = torch.cat([x.narrow(dim, 0, step), later], dim), 2 * step
    return x


@primitive
def _turned(here: torch.Tensor, before: torch.Tensor, anchors: "_Anchors", kept_R: torch.Tensor | None) -> torch.Tensor:
    """Return the frames' spectra with each frequency turned as it must be, (R, C, N, F), and those not kept 0.

    Either may be written over.
    """
    with torch.no_grad():
        power_RNF = (here.real.square() + here.imag.square()).sum(1)
        turn_RNF = _turns(here, before, power_RNF, anchors)
        is_heard_RF = torch.arange(here.shape[-1], device=here.device) < _heard(here, kept_R)[:, None]
        turn_RNF = torch.where(is_heard_RF[:, None], turn_RNF, 0.0)
    return here * turn_RNF[:, None]


def _heard(here: torch.Tensor, kept_R: torch.Tensor | None) -> torch.Tensor:
    """Return how many frequencies of each row are kept."""
    if kept_R is None:
        return torch.full((len(here),), here.shape[-1], device=here.device)
    return (kept_R * here.shape[-1]).ceil().long()


@_turned.loop()
def _turn_by_loop(
    here: torch.Tensor, before: torch.Tensor, anchors: "_Anchors", kept_R: torch.Tensor | None
) -> torch.Tensor:
    run(_turn_spectra, len(here), before, *anchors, _heard(here, kept_R), here)
    return here


@_turned.kernel(when=lambda here, before, anchors, kept_R: here.is_contiguous() and before.is_contiguous())
def _turn_by_kernel(
    here: torch.Tensor, before: torch.Tensor, anchors: "_Anchors", kept_R: torch.Tensor | None
) -> torch.Tensor:
    from audioaug.dsp.stretch import kernel

    return kernel.turn(here, before, *anchors, kept_R, LATE_BITS, 1 - NEW_SHARE, LEAST)


def _turns(here: torch.Tensor, before: torch.Tensor, power_RNF: torch.Tensor, anchors: "_Anchors") -> torch.Tensor:
    """Return by how much each frequency of each frame must be turned, (R, N, F), the same for all channels.

    Turns are complex numbers of size 1: to turn further is to multiply. ``before`` holds the frames one hop earlier in
    the clip. From one frame to the next a partial must advance by what it does in a hop, but the clip has moved on by
    rate * hop. What is missing is its advance from ``before`` to the previous frame. One after the other, this is the
    turn; all frequencies around a peak are turned by the same angle.
    """
    missing = (here[:, :, :-1] * before[:, :, 1:].conj()).sum(1)
    is_silent = missing.real.square() + missing.imag.square() < LEAST
    missing_RNF = torch.cat([torch.ones_like(missing[:, :1]), torch.where(is_silent, 1.0, missing.sgn())], dim=1)
    peak_RNF = _peaks(power_RNF)
    new_RNF, anew_RNF = _anew(missing_RNF, power_RNF, anchors)
    steps = zip(*(each_RNF.unbind(1) for each_RNF in (missing_RNF, peak_RNF, new_RNF, anew_RNF)), strict=True)
    turn_RF, turns = missing_RNF[:, 0], list[torch.Tensor]()
    for missing_RF, peak_RF, is_new_RF, anew_RF in steps:  # each needs the one before: at most 50 in a second of result
        turn_RF = torch.where(is_new_RF, anew_RF, (turn_RF * missing_RF).gather(-1, peak_RF))
        turns.append(turn_RF)
    return torch.stack(turns, 1)


def _peaks(power_RNF: torch.Tensor) -> torch.Tensor:
    """Return for each frequency the peak that it belongs to: where it leads always to the loudest neighbour."""
    first_F = torch.arange(-LOCK_BINS, power_RNF.shape[-1] - LOCK_BINS, dtype=torch.int32, device=power_RNF.device)
    # As integers, floats that are not negative have the same order; the lowest bits tell where each was.
    marked_RNF = power_RNF.view(torch.int32).bitwise_and(~PLACE).bitwise_or_((first_F + LOCK_BINS) & PLACE)
    loudest_RNF = _with_neighbours(marked_RNF, torch.maximum, outside=-1)
    uphill = loudest_RNF.sub_(first_F).bitwise_and_(PLACE).add_(first_F).long()
    uphill.clamp_(0, power_RNF.shape[-1] - 1)  # of what is not a number anything may be said
    for _ in range(2):  # up to 4 * LOCK_BINS away; what lies farther off belongs to no partial
        uphill = uphill.gather(-1, uphill)
    return uphill


def _with_neighbours(values_RNF: torch.Tensor, combine: Combine, outside: float = 0) -> torch.Tensor:
    """Combine each frequency's value with those of ``LOCK_BINS`` (two) on either side, in fewer passes than pooling."""
    around = torch.nn.functional.pad(values_RNF, (LOCK_BINS, LOCK_BINS), value=outside)
    pairs = combine(around[..., :-1], around[..., 1:])
    fours = combine(pairs[..., :-2], pairs[..., 2:])
    return combine(fours[..., :-1], around[..., 4:])


class _Anchors(NamedTuple):
    """For each frame, of the attack nearest to its centre: (R, N) all.

    ``frame``: whose centre is nearest to it; ``old``: the last frame without it, negative if there is none; ``late``:
    how much it comes too early if that frame is not turned, in 2**-LATE_BITS samples; ``near``: whether this frame has
    it at all.
    """

    frame: torch.Tensor
    old: torch.Tensor
    late: torch.Tensor
    near: torch.Tensor


@primitive
def _anchors(x_RCT: torch.Tensor, rate_R: torch.Tensor, count: int, frame: int) -> _Anchors:
    """Find for each of ``count`` frames the attack that is nearest to its centre."""
    centre_RN = centres(frame, count, len(x_RCT), rate_R, x_RCT.device)
    time_RN = attack_times(x_RCT, centre_RN, frame // BLOCKS)
    near_RN = (time_RN - centre_RN).abs() < NEAR * frame
    time_RN, last = torch.where(near_RN, time_RN, 0), count - 1
    hop_R1 = (frame // 4) * rate_R[:, None]
    frame_RN = (time_RN / hop_R1).round().long().clamp(max=last)
    old_RN = ((time_RN - frame // 2) / hop_R1).floor().long().clamp(max=last)
    late_RN = (1 / rate_R[:, None] - 1) * (time_RN - centre_RN.gather(1, frame_RN))
    late_RN = (late_RN * 2.0**LATE_BITS).round().long()
    return _Anchors(frame_RN, old_RN, late_RN, near_RN)


@_anchors.kernel()
def _anchors_by_kernel(x_RCT: torch.Tensor, rate_R: torch.Tensor, count: int, frame: int) -> _Anchors:
    from audioaug.dsp.stretch import kernel

    attack_RK = kernel.attacks(x_RCT, frame // BLOCKS, PAST, APART, RISE, QUIET)
    return _Anchors(*kernel.anchors(attack_RK, rate_R, count, frame, frame // BLOCKS, NEAR, LATE_BITS))


def _anew(missing_RNF: torch.Tensor, power_RNF: torch.Tensor, anchors: _Anchors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where turns are counted from an attack, and these turns; (R, N, F) both.

    An attack must sound at one time, whichever frame it is in. So all frames that have it, before and after it, are
    turned as if the one around it were the first; there, its own phases are right, but for the distance between the
    attack and the middle of the frame, which should have been stretched as well: a delay.
    """
    total_RNF, bins = missing_RNF.cumprod(1), missing_RNF.shape[-1]
    whole = 2 * (bins - 1) << LATE_BITS  # a turn, in the fractions of samples that the delay is in, of frequency 1
    angle = ((torch.arange(bins, device=missing_RNF.device) * anchors.late[..., None]) % whole) * (-2 * math.pi / whole)
    turn_RNF = total_RNF * _at(total_RNF, anchors.frame).conj() * _polar(1.0, angle)
    power_RNF = _with_neighbours(power_RNF, torch.add)
    old_RNF = torch.where((anchors.old < 0)[..., None], 0.0, _at(power_RNF, anchors.old.clamp(min=0)))
    new_RNF = old_RNF < (1 - NEW_SHARE) * _at(power_RNF, anchors.frame)
    return new_RNF & anchors.near[..., None], turn_RNF


def _at(values_RNF: torch.Tensor, frame_RN: torch.Tensor) -> torch.Tensor:
    """Return each row's values of other frames, (R, N, F)."""
    return _taken(values_RNF[:, None], frame_RN)[:, 0]


def _taken(spectra: torch.Tensor, frame_RN: torch.Tensor) -> torch.Tensor:
    """Return each row's spectra of other frames, for all channels, (R, C, N, F): a copy of whole frames."""
    rows, channels, frames = spectra.shape[:3]
    first_RC1 = torch.arange(rows * channels, device=spectra.device).view(rows, channels, 1) * frames
    place_RCN = first_RC1 + frame_RN[:, None]
    return spectra.flatten(0, 2).index_select(0, place_RCN.flatten()).unflatten(0, place_RCN.shape)


def _polar(size: torch.Tensor | float, angle: torch.Tensor) -> torch.Tensor:
    """Return complex numbers of this size and angle: on a CPU in half of the time that ``torch.polar`` takes."""
    return torch.complex(angle.cos() * size, angle.sin() * size)


@loop
def _turn_spectra(
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
    """Turn the spectra in place. The numbers of each frame are its ``_Anchors``.

    What is found of a frame, ``missing`` in the place of ``before``, is found just before it is needed, while its
    spectra are in the CPU's cache.
    """
    _, channels, frames, bins = here_RCNF.shape
    power_NE, around_NF = np.zeros((frames, bins + 2 * LOCK_BINS), dtype=f32), np.empty((frames, bins), dtype=f32)
    turn_F, on_F, delay_F = np.empty((3, bins), dtype=np.complex64)
    marked_E, place_3F = np.full(bins + 2 * LOCK_BINS, -1, dtype=i32), np.empty((3, bins), dtype=u32)
    for row in range(first, last):
        here_CNF, before_CNF, ready = here_RCNF[row], before_RCNF[row], 0
        missing_NF = before_CNF[0]
        turn_F[:] = ONE
        for n in range(frames):
            anchor, old = (frame_RN[row, n], old_RN[row, n]) if near_RN[row, n] else (n, n)
            while ready < min(frames, max(n + 2, anchor + 1)):  # of the next frame, too: it needs this one unturned
                _find_missing(here_CNF, before_CNF, ready)
                _find_power(here_CNF, ready, power_NE[ready])
                _add_neighbours(power_NE[ready], around_NF[ready])
                ready += 1
            _find_peaks(power_NE[n], marked_E, place_3F)
            _multiply(turn_F, missing_NF[n], on_F)
            peak_F = place_3F[2]
            for f in range(bins):
                turn_F[f] = on_F[peak_F[f]]
            if near_RN[row, n]:
                _find_delays(late_RN[row, n], delay_F)
                for between in range(anchor + 1, n + 1):
                    _multiply_in_place(delay_F, missing_NF[between])
                for between in range(n + 1, anchor + 1):
                    _divide_in_place(delay_F, missing_NF[between])
                for f in range(bins):
                    power = around_NF[old, f] if old >= 0 else f32(0)
                    if power < OLD_SHARE * around_NF[anchor, f]:
                        turn_F[f] = delay_F[f]
            for channel in range(channels):
                here_F, heard = here_CNF[channel, n], heard_R[row]
                _multiply_in_place(here_F[:heard], turn_F)
                here_F[heard:] = 0


# Real and imaginary parts lie side by side: loops over such floats are vectorized, over complex numbers they are not.
# Nor are they where two arrays may overlap, so functions that work in place have two arguments instead of three.


@loop
def _multiply(x_F: Complex, y_F: Complex, into_F: Complex) -> None:
    x, y, into = x_F.view(f32), y_F.view(f32), into_F.view(f32)
    for f in range(len(x_F)):
        a, b, c, d = x[2 * f], x[2 * f + 1], y[2 * f], y[2 * f + 1]
        into[2 * f], into[2 * f + 1] = a * c - b * d, a * d + b * c


@loop
def _multiply_in_place(x_F: Complex, y_F: Complex) -> None:
    x, y = x_F.view(f32), y_F.view(f32)
    for f in range(len(x_F)):
        a, b, c, d = x[2 * f], x[2 * f + 1], y[2 * f], y[2 * f + 1]
        x[2 * f], x[2 * f + 1] = a * c - b * d, a * d + b * c


@loop
def _divide_in_place(x_F: Complex, y_F: Complex) -> None:
    """Divide x by y, numbers of size 1: multiply it by their conjugates."""
    x, y = x_F.view(f32), y_F.view(f32)
    for f in range(len(x_F)):
        a, b, c, d = x[2 * f], x[2 * f + 1], y[2 * f], y[2 * f + 1]
        x[2 * f], x[2 * f + 1] = a * c + b * d, b * c - a * d


@loop
def _multiply_conjugates_in_place(x_F: Complex, y_F: Complex) -> None:
    """Multiply the conjugates of x by y."""
    x, y = x_F.view(f32), y_F.view(f32)
    for f in range(len(x_F)):
        a, b, c, d = x[2 * f], x[2 * f + 1], y[2 * f], y[2 * f + 1]
        x[2 * f], x[2 * f + 1] = a * c + b * d, a * d - b * c


@loop
def _find_missing(here_CNF: Complex, before_CNF: Complex, n: int) -> None:
    """Find how much further each frequency must be turned than in the frame before, in place of the first channel."""
    missing_F = before_CNF[0, n]
    if n == 0:
        missing_F[:] = ONE
        return
    for channel in range(len(here_CNF)):
        before_F = before_CNF[channel, n]
        _multiply_conjugates_in_place(before_F, here_CNF[channel, n - 1])
        if channel:
            missing_F += before_F
    missing = missing_F.view(f32)
    for f in range(len(missing_F)):
        re, im = missing[2 * f], missing[2 * f + 1]
        square = re * re + im * im
        is_heard = square >= f32(LEAST)
        by = f32(1) / np.sqrt(square if is_heard else f32(1))
        missing[2 * f] = re * by if is_heard else f32(1)
        missing[2 * f + 1] = im * by if is_heard else f32(0)


@loop_as_written
def _find_power(here_CNF: Complex, n: int, power_E: Floats) -> None:
    """Find the power of each frequency of a frame, of all channels together; around them stays none."""
    channels, _, bins = here_CNF.shape
    power_F = power_E[LOCK_BINS : LOCK_BINS + bins]
    power_F[:] = 0
    for channel in range(channels):
        here = here_CNF[channel, n].view(f32)
        for f in range(bins):
            power_F[f] += here[2 * f] * here[2 * f] + here[2 * f + 1] * here[2 * f + 1]


@loop
def _add_neighbours(x_E: Floats, y_F: Floats) -> None:
    """Add to each frequency's value those of two on either side, in the order of the torch definition."""
    for f in range(len(y_F)):
        y_F[f] = ((x_E[f] + x_E[f + 1]) + (x_E[f + 2] + x_E[f + 3])) + x_E[f + 4]


@loop
def _find_delays(late: int, delay_F: Complex) -> None:
    """Find the turns that delay a frame by a number of fractions of a sample."""
    bins, delay = len(delay_F), delay_F.view(f32)
    step, turn, whole = np.exp(-1j * math.pi * late / ((bins - 1) << LATE_BITS)), np.complex128(1), np.complex128(1)
    first_F = np.empty(BINS_TOGETHER, dtype=np.complex64)
    first = first_F.view(f32)
    for f in range(BINS_TOGETHER):
        first_F[f] = turn
        turn *= step
    for start in range(0, bins, BINS_TOGETHER):
        a, b, some = f32(whole.real), f32(whole.imag), delay[2 * start :]
        for f in range(min(BINS_TOGETHER, bins - start)):
            c, d = first[2 * f], first[2 * f + 1]
            some[2 * f], some[2 * f + 1] = a * c - b * d, a * d + b * c
        whole *= turn


@loop
def _find_peaks(power_E: Floats, marked_E: NDArray[np.int32], place_3F: NDArray[np.uint32]) -> None:
    """Find for each frequency the peak that it belongs to, up to eight away: the last of three places."""
    uphill_F, farther_F, peak_F = place_3F[0], place_3F[1], place_3F[2]
    bins, place, value, last = len(peak_F), i32(PLACE), i32(~PLACE), i32(len(peak_F) - 1)
    bits_F, marked_F = power_E.view(i32)[LOCK_BINS : LOCK_BINS + bins], marked_E[LOCK_BINS : LOCK_BINS + bins]
    for f in range(bins):
        marked_F[f] = i32(bits_F[f] & value) | i32(i32(f) & place)
    for f in range(bins):
        loudest = max(max(max(marked_E[f], marked_E[f + 1]), max(marked_E[f + 2], marked_E[f + 3])), marked_E[f + 4])
        lowest = i32(f - LOCK_BINS)
        uphill = i32(lowest + i32(i32(loudest - lowest) & place))
        uphill_F[f] = u32(min(max(uphill, i32(0)), last))  # of what is not a number anything may be said
    for f in range(bins):
        farther_F[f] = uphill_F[uphill_F[f]]
    for f in range(bins):
        peak_F[f] = farther_F[farther_F[f]]
