"""Responses of box-shaped rooms by image sources, all rooms of a batch together, as pyroomacoustics computes them.

An image source at distance d arrives after d / c with the amplitude r^n / d, where r is what a wall reflects and n how
many of them it was reflected by. Air takes exp(-a_k d / 2) of each octave band k. A response is the sum of all images,
each a windowed sinc of 81 taps, band by band; then the bands are added up and a high-pass runs forward and backward.

With ray tracing there is a late part, impulses that ``rays.tails`` makes: what air leaves of it falls over time.

The bands' filters are linear and have no phase, and the high-pass starts in a steady state at either end: all of it is
done by FFTs of twice the width, in which nothing comes round.

References: J. B. Allen and D. A. Berkley, Image method for efficiently simulating small-room acoustics, J. Acoust. Soc.
Am. 65 (1979). ``pyroomacoustics.simulation.ism.compute_ism_rir``, ``pyroomacoustics.Room.compute_rir``.

Shapes: B rooms, O orders from 0 on, Q = 2 O - 1 images along an axis, I images, K bands, L = 81 taps, W samples of a
response by images, V of one with what comes late, N = 2 W samples and F = W + 1 frequencies of an FFT.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import map_chunks, primitive
from audioaug.dsp.fft import from_spectrum, has_mkl, irfft, mkl_plan, rfft, to_spectrum
from audioaug.dsp.loops import Doubles, Floats, Integers, loop, run

SPEED_OF_SOUND = 343.0
TAPS = 81
"""Of the windowed sinc that an image is."""
PHASES = 20
"""At this many delays between two samples it is in a table; between these it is interpolated."""
EDGE = 9
"""By this many samples the high-pass extends a response at either end."""
MOST_VALUES = 2**24
"""The torch definition adds up at most this many values together, or those of one image of each room.

They take 64 MiB; with the places that they go to and what they are made of, it needs three times as much.
"""


@dataclass(frozen=True)
class Rooms:
    """The rooms of a batch as plain numbers, and what all rooms of a sample rate share. Arrays are flat.

    ``offset`` (B, 3, Q): from the microphone to the images along each axis, in metres. ``reflected`` (B, O): what is
    left of the amplitude after 0, 1, ... reflections, 0 past a room's own order. ``length`` (B): of the responses, in
    samples. ``bank`` (B): which of the ``bands``, spectra over 2 W (., K, F), filter a room. ``images`` (4, I): where
    the offsets of an image are among (3, Q), and how many walls reflect it. ``decay`` (K): the exponent of what air
    leaves after a metre. ``highpass`` (2, F): its spectrum over 2 W, real and imaginary parts. ``taps`` (22, L): the
    windowed sinc. ``sizes``: O, K and W.
    """

    offset: Any
    reflected: Any
    length: Any
    bank: Any
    images: Any
    decay: Any
    bands: Any
    highpass: Any
    taps: Any
    sizes: tuple[int, int, int]


@dataclass(frozen=True)
class Late:
    """What comes after the images of a batch of rooms, by ray tracing. Arrays are flat; V is wider than W.

    ``impulses`` (B, V): as ``rays.tails`` makes them. ``ends`` (B): where they end. ``bank`` (B), ``bands`` and
    ``highpass``: as in ``Rooms``, over 2 V. ``length`` (B): of the responses with images. ``width``: V.
    """

    impulses: Any
    ends: Any
    bank: Any
    bands: Any
    highpass: Any
    length: Any
    width: int


def responses(rooms: Rooms, sample_rate: int, late: Late | None = None) -> torch.Tensor:
    """Return the rooms' responses, (B, W), or with what comes late (B, V), 0 past their ends."""
    sound_BW = _by_images(rooms, sample_rate)
    if late is None:
        return _high_passed(sound_BW, torch.complex(*rooms.highpass.view(2, -1)), rooms.length)
    sound_BV, width = _dampened(late, rooms.decay, SPEED_OF_SOUND / sample_rate), sound_BW.shape[1]
    sound_BV[:, :width] += sound_BW.mul_(torch.arange(width, device=sound_BW.device) < rooms.length[:, None])
    return _high_passed(sound_BV, torch.complex(*late.highpass.view(2, -1)), late.length)


def _by_images(rooms: Rooms, sample_rate: int) -> torch.Tensor:
    """Return what image sources make of the rooms, (B, W)."""
    orders, bands, width = rooms.sizes
    n = 2 * width
    echoes_BKN = add_echoes(
        rooms.offset.view(-1, 3, 2 * orders - 1),
        rooms.reflected.view(-1, orders),
        rooms.images.view(4, -1),
        rooms.decay,
        rooms.taps.view(PHASES + 2, TAPS),
        sample_rate / SPEED_OF_SOUND,
        n,
    )
    bands_BKF = rooms.bands.view(-1, bands, width + 1).index_select(0, rooms.bank)
    spectrum_BF = rfft(echoes_BKN).mul_(bands_BKF).sum(1)
    return irfft(spectrum_BF, n, scaled=False)[:, :width]


@primitive
def add_echoes(
    offset_B3Q: torch.Tensor,
    reflected_BO: torch.Tensor,
    images_4I: torch.Tensor,
    decay_K: torch.Tensor,
    taps_PL: torch.Tensor,
    samples_a_metre: float,
    samples: int,
) -> torch.Tensor:
    """Return the sum of all images in each band, (B, K, samples), 40 samples late. The second half is 0."""
    rooms, bands = len(offset_B3Q), len(decay_K)
    tap_L = torch.arange(TAPS, device=offset_B3Q.device)
    row_B1 = torch.arange(0, rooms * samples, samples, device=offset_B3Q.device)[:, None]
    y_NK = offset_B3Q.new_zeros(rooms * samples, bands)
    for some_4I in images_4I.split(max(1, MOST_VALUES // (rooms * TAPS * bands)), 1):
        along_BI3 = offset_B3Q.flatten(1).index_select(1, some_4I[:3].T.flatten()).view(rooms, -1, 3)
        distance_BI = along_BI3.square().sum(2).sqrt_()
        amplitude_BI = reflected_BO.index_select(1, some_4I[3]).div_(distance_BI)
        gain_BIK = (distance_BI[..., None] * decay_K).exp_().mul_(amplitude_BI[..., None])
        delay_BI = distance_BI * samples_a_metre
        start_BI = delay_BI.long()
        phase_BI = (1.0 - (delay_BI - start_BI)).mul_(PHASES)
        phase_N = phase_BI.long().flatten()
        low_NL, high_NL = taps_PL.index_select(0, phase_N), taps_PL.index_select(0, phase_N + 1)
        value_NLK = low_NL.lerp_(high_NL, phase_BI.frac().view(-1, 1))[..., None] * gain_BIK.view(-1, 1, bands)
        # Images past a room's own order may lie past the end, but they are silent.
        place_BIL = (start_BI.clamp_(max=samples - TAPS) + row_B1)[..., None] + tap_L
        y_NK.index_add_(0, place_BIL.flatten(), value_NLK.view(-1, bands))
    return y_NK.view(rooms, samples, bands).transpose(1, 2).contiguous()


@add_echoes.loop()
def _add_echoes_by_loop(
    offset_B3Q: torch.Tensor,
    reflected_BO: torch.Tensor,
    images_4I: torch.Tensor,
    decay_K: torch.Tensor,
    taps_PL: torch.Tensor,
    samples_a_metre: float,
    samples: int,
) -> torch.Tensor:
    y_BKN = offset_B3Q.new_empty(len(offset_B3Q), len(decay_K), samples)
    run(_add_images, len(y_BKN), offset_B3Q, reflected_BO, decay_K, taps_PL, samples_a_metre, y_BKN)
    return y_BKN


@loop
def _add_images(
    offset_B3Q: Floats,
    reflected_BO: Floats,
    decay_K: Floats,
    taps_PL: Floats,
    samples_a_metre: float,
    y_BKN: Floats,
    first: int,
    last: int,
) -> None:
    """Add up the images of rooms, one room after the other."""
    taps_L = np.empty(TAPS, dtype=np.float32)
    for row in range(first, last):
        offset_3Q, reflected_O, y_KN = offset_B3Q[row].astype(np.float64), reflected_BO[row], y_BKN[row]
        y_KN[:] = 0.0
        order = middle = len(reflected_O) - 1
        while order > 0 and reflected_O[order] == 0.0:
            order -= 1
        for i in range(-order, order + 1):
            for j in range(abs(i) - order, order - abs(i) + 1):
                for k in range(abs(i) + abs(j) - order, order - abs(i) - abs(j) + 1):
                    x, y, z = offset_3Q[0, middle + i], offset_3Q[1, middle + j], offset_3Q[2, middle + k]
                    distance = np.sqrt(x * x + y * y + z * z)
                    amplitude, delay = reflected_O[abs(i) + abs(j) + abs(k)] / distance, distance * samples_a_metre
                    start = int(delay)
                    phase = (1.0 - (delay - start)) * PHASES
                    low_L, high_L = taps_PL[int(phase)], taps_PL[int(phase) + 1]
                    share = np.float32(phase - int(phase))
                    for tap in range(TAPS):
                        taps_L[tap] = low_L[tap] + share * (high_L[tap] - low_L[tap])
                    for band in range(len(decay_K)):
                        gain, y_L = np.float32(amplitude * np.exp(decay_K[band] * distance)), y_KN[band, start:]
                        for tap in range(TAPS):
                            y_L[tap] += gain * taps_L[tap]


@add_echoes.kernel()
def _add_echoes_by_kernel(
    offset_B3Q: torch.Tensor,
    reflected_BO: torch.Tensor,
    images_4I: torch.Tensor,
    decay_K: torch.Tensor,
    taps_PL: torch.Tensor,
    samples_a_metre: float,
    samples: int,
) -> torch.Tensor:
    from audioaug.dsp.rooms import kernel

    return kernel.add_echoes(offset_B3Q, reflected_BO, images_4I, decay_K, taps_PL, samples_a_metre, samples)


def _dampened(late: Late, decay_K: torch.Tensor, metres_a_sample: float) -> torch.Tensor:
    """Return what air leaves of impulses, (B, V), as late as images are."""
    width, delay = late.width, TAPS // 2
    bands_SKF = late.bands.view(-1, len(decay_K), width + 1)
    left_BV = dampen(late.impulses.view(-1, width), late.ends, bands_SKF, late.bank, decay_K * metres_a_sample)
    return torch.nn.functional.pad(left_BV[:, : width - delay], (delay, 0))


@primitive
def dampen(
    impulses_BV: torch.Tensor,
    end_B: torch.Tensor,
    bands_SKF: torch.Tensor,
    bank_B: torch.Tensor,
    decay_K: torch.Tensor,
) -> torch.Tensor:
    """Return what air leaves of impulses: of each band less, the longer it travels; 0 past their ends.

    Args:
        impulses_BV: of the rooms.
        end_B: where those of each room end.
        bands_SKF: spectra over 2 V.
        bank_B: which of the S sets of K bands filter a room.
        decay_K: the exponent of what air leaves of a band after a sample.
    """
    width = impulses_BV.shape[1]
    time_V = torch.arange(width, device=impulses_BV.device)
    left_KV = (decay_K[:, None] * time_V).exp_()

    def work(some: slice) -> torch.Tensor:
        spectrum_BKF = rfft(impulses_BV[some], 2 * width)[:, None] * bands_SKF.index_select(0, bank_B[some])
        return irfft(spectrum_BKF, 2 * width, scaled=False)[..., :width].mul_(left_KV).sum(1)

    return map_chunks(work, impulses_BV, 2 * width * len(decay_K)).mul_(time_V < end_B[:, None])


@dampen.loop(when=has_mkl)
def _dampen_by_loop(
    impulses_BV: torch.Tensor,
    end_B: torch.Tensor,
    bands_SKF: torch.Tensor,
    bank_B: torch.Tensor,
    decay_K: torch.Tensor,
) -> torch.Tensor:
    """Filter each room by an FFT of its own length: bands are none but 0 further than that from their middle."""
    whole = 2 * impulses_BV.shape[1]
    needed_B = torch.from_numpy(1 << fft_bits(end_B.clamp(min=1).numpy()))
    stride_B = 1 << torch.log2((whole // needed_B).clamp(min=1)).long()
    plan_B = np.asarray([mkl_plan(whole // stride) for stride in stride_B.tolist()])
    y_BV = torch.empty_like(impulses_BV)
    run(_dampen, len(y_BV), impulses_BV, end_B, bands_SKF, bank_B, decay_K.double(), stride_B, plan_B, y_BV)
    return y_BV


@loop
def _dampen(
    impulses_BV: Floats,
    end_B: Integers,
    bands_SKF: Floats,
    bank_B: Integers,
    decay_K: Doubles,
    stride_B: Integers,
    plan_B: Integers,
    y_BV: Floats,
    first: int,
    last: int,
) -> None:
    for row in range(first, last):
        end, stride, y_V = end_B[row], stride_B[row], y_BV[row]
        y_V[:] = 0.0
        count = impulses_BV.shape[1] // stride + 1
        spectrum_F, band_F = np.empty(count, dtype=np.complex64), np.empty(count, dtype=np.complex64)
        impulses_N, band_N = spectrum_F.view(np.float32), band_F.view(np.float32)
        impulses_N[:end] = impulses_BV[row, :end]
        impulses_N[end:] = 0.0
        wrong = to_spectrum(plan_B[row], impulses_N.ctypes.data)
        for band in range(len(decay_K)):
            response_F = bands_SKF[bank_B[row], band, ::stride]
            for f in range(count):
                band_F[f] = spectrum_F[f] * (stride * response_F[f])
            wrong |= from_spectrum(plan_B[row], band_N.ctypes.data)
            left, kept = 1.0, np.exp(decay_K[band])
            for t in range(end):
                y_V[t] += np.float32(left) * band_N[t]
                left *= kept
        if wrong:
            raise RuntimeError("MKL refuses an FFT.")


def fft_bits(length_B: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the logarithm of the FFT length for which pyroomacoustics makes its bands: it rounds them to bins."""
    return np.ceil(np.log2(2 * length_B)).astype(np.int64)


def _high_passed(x_BW: torch.Tensor, highpass_F: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
    """Return what ``scipy.signal.sosfiltfilt`` makes of each row's samples, 0 after them.

    A filter that is 0 at 0 Hz and starts in the steady state of its first sample does what it does, from rest, to the
    row less that sample.
    """
    width, length_B1 = x_BW.shape[1], length_B[:, None]
    time_N = torch.arange(2 * width, device=x_BW.device)
    end_BE = x_BW.gather(1, length_B1 - time_N[1 : EDGE + 2])
    after_BE = torch.lerp(end_BE[:, :1], end_BE[:, 1:], -1.0)  # 2 * end - values
    before_BE = torch.lerp(x_BW[:, :1], x_BW[:, 1 : EDGE + 1].flip(1), -1.0)
    extended_BN = torch.cat([before_BE, x_BW, x_BW.new_zeros(len(x_BW), width - EDGE)], 1)
    after_place_BE = length_B1 + time_N[EDGE : 2 * EDGE]
    extended_BN.scatter_(1, after_place_BE, after_BE)
    inside_BN = time_N <= after_place_BE[:, -1:]
    from_start_BN = (extended_BN - extended_BN[:, :1]).mul_(inside_BN)
    forward_BN = irfft(rfft(from_start_BN).mul_(highpass_F), 2 * width, scaled=False)
    from_end_BN = (forward_BN - forward_BN.gather(1, after_place_BE[:, -1:])).mul_(inside_BN)
    both_BN = irfft(rfft(from_end_BN).mul_(highpass_F.conj()), 2 * width, scaled=False)
    return both_BN[:, EDGE : EDGE + width] * (time_N[:width] < length_B1)
