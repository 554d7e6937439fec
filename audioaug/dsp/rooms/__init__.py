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
response, N = 2 W samples and F = W + 1 frequencies of an FFT.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from audioaug.dsp.dispatch import map_chunks, primitive
from audioaug.dsp.fft import irfft, rfft
from audioaug.dsp.loops import Floats, loop, run

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
    """Return what air leaves of impulses, (B, V), as late as images are: of each band less, the longer it travels."""
    width, delay = late.width, TAPS // 2
    impulses_BV, bands_SKF = late.impulses.view(-1, width), late.bands.view(-1, len(decay_K), width + 1)
    time_V = torch.arange(width, device=impulses_BV.device)
    left_KV = (decay_K[:, None] * (time_V * metres_a_sample)).exp_()

    def dampen(some: slice) -> torch.Tensor:
        spectrum_BKF = rfft(impulses_BV[some], 2 * width)[:, None] * bands_SKF.index_select(0, late.bank[some])
        return irfft(spectrum_BKF, 2 * width, scaled=False)[..., :width].mul_(left_KV).sum(1)

    left_BV = map_chunks(dampen, impulses_BV, 2 * width * len(decay_K)).mul_(time_V < late.ends[:, None])
    return torch.nn.functional.pad(left_BV[:, : width - delay], (delay, 0))


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
