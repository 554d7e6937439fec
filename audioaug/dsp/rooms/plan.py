"""The rooms of a batch as numbers, computed on the host: where images are, how long responses get, and their filters.

Shapes: as in ``audioaug.dsp.rooms``; S sets of bands, Z ways to share an order among three axes.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.rooms import EDGE, PHASES, SPEED_OF_SOUND, TAPS, Late, Rooms, fft_bits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
WIDTH_STEP = 1024
"""Responses are padded to a multiple of this many samples, so that FFT sizes repeat."""


def plan(
    size_B3: FloatArray,
    source_B3: FloatArray,
    microphone_B3: FloatArray,
    absorption_B: FloatArray,
    order_B: IntArray,
    sample_rate: int,
) -> Rooms:
    """Return what ``responses`` needs for these rooms. Places and sizes are in metres.

    Args:
        size_B3: of each room.
        source_B3: inside its room.
        microphone_B3: inside its room, elsewhere.
        absorption_B: share of the energy that a wall absorbs, 0 to 1.
        order_B: the most reflections of an image.
        sample_rate: in Hz.
    """
    order = int(order_B.max())
    length_B = lengths(size_B3, source_B3, microphone_B3, order_B, sample_rate)
    width = _width(length_B)
    shared, order_O = _filters(sample_rate), np.arange(order + 1)
    return Rooms(
        offset=offsets(size_B3, source_B3, microphone_B3, order).ravel(),
        reflected=(np.sqrt(1.0 - absorption_B)[:, None] ** order_O * (order_O <= order_B[:, None])).ravel(),
        length=length_B,
        images=images(order).ravel(),
        decay=shared.decay_K,
        **_banks(sample_rate, width, length_B),
        highpass=_highpass(sample_rate, width),
        taps=_taps().ravel(),
        sizes=(order + 1, len(shared.decay_K), width),
    )


def plan_late(impulses: Sequence[FloatArray], length_B: IntArray, sample_rate: int) -> Late:
    """Return what ``responses`` needs for the impulses of each room, whose images make responses of these lengths."""
    end_B = np.asarray([len(impulses_T) for impulses_T in impulses])
    length_B = np.maximum(length_B, end_B + TAPS // 2)
    width = min(factor << (-(-_width(length_B) // factor) - 1).bit_length() for factor in (4, 5, 6))  # few sizes
    return Late(
        impulses=np.concatenate([np.pad(impulses_T, (0, width - len(impulses_T))) for impulses_T in impulses]),
        ends=end_B,
        **_banks(sample_rate, width, np.where(end_B > 0, end_B, width)),
        highpass=_highpass(sample_rate, width),
        length=length_B,
        width=width,
    )


def _width(length_B: IntArray) -> int:
    """Return how many samples responses of these lengths are computed with."""
    return -(-(int(length_B.max()) + 2 * EDGE) // WIDTH_STEP) * WIDTH_STEP


def _banks(sample_rate: int, width: int, length_B: IntArray) -> dict[str, NDArray[Any]]:
    """Return the ``bank`` of each of these lengths, and all ``bands``."""
    bits_S, bank_B = np.unique(fft_bits(length_B), return_inverse=True)
    return {
        "bank": bank_B,
        "bands": np.concatenate([_bands(sample_rate, width, bits).ravel() for bits in bits_S.tolist()]),
    }


def offsets(size_B3: FloatArray, source_B3: FloatArray, microphone_B3: FloatArray, order: int) -> FloatArray:
    """Return how far from the microphone images -order..order along each axis are, (B, 3, Q)."""
    image_Q = np.arange(-order, order + 1)
    mirrored_Q = image_Q % 2 != 0
    image_B3Q = (image_Q + mirrored_Q) * size_B3[..., None] + np.where(mirrored_Q, -1, 1) * source_B3[..., None]
    return np.asarray(image_B3Q - microphone_B3[..., None])


@functools.lru_cache(maxsize=16)
def images(order: int) -> IntArray:
    """Return where the offsets of all images of up to ``order`` reflections are among (3, Q), and the number of these.

    That is (4, I). The nearest are first.
    """
    axis_Q, count = np.arange(-order, order + 1), 2 * order + 1
    reflections_QQQ = np.abs(axis_Q)[:, None, None] + np.abs(axis_Q)[:, None] + np.abs(axis_Q)
    place_3I = np.stack(np.nonzero(reflections_QQQ <= order))
    reflections_I = reflections_QQQ[tuple(place_3I)]
    found_4I = np.concatenate([place_3I + count * np.arange(3)[:, None], reflections_I[None]])
    return found_4I[:, np.argsort(reflections_I, kind="stable")]


def lengths(
    size_B3: FloatArray, source_B3: FloatArray, microphone_B3: FloatArray, order_B: IntArray, sample_rate: int
) -> IntArray:
    """Return how long the responses are, in samples: up to the last tap of the farthest image, and two more."""
    farthest_B = np.zeros(len(order_B))
    for order in np.unique(order_B).tolist():
        rows = order_B == order
        offset_B3Q = np.abs(offsets(size_B3[rows], source_B3[rows], microphone_B3[rows], order))
        square_B3Q = np.maximum(offset_B3Q[..., order:], offset_B3Q[..., order::-1]) ** 2  # of 0 to order reflections
        x_Z, y_Z = np.nonzero(np.tri(order + 1)[::-1])  # all others are nearer
        square_BZ = square_B3Q[:, 0, x_Z] + square_B3Q[:, 1, y_Z] + square_B3Q[:, 2, order - x_Z - y_Z]
        farthest_B[rows] = np.sqrt(square_BZ.max(axis=1))
    half = TAPS // 2
    last_B = farthest_B / SPEED_OF_SOUND + half / sample_rate
    return np.ceil(last_B * sample_rate + half + 1).astype(np.int64) + 1


@functools.lru_cache(maxsize=1)
def _taps() -> NDArray[np.float32]:
    """Return the windowed sinc at all delays, (P + 2, L), as the library's single precision adds up the times."""
    one = np.float32(1.0)
    time_N = np.cumsum(np.r_[-one * (TAPS // 2 + 1), np.full((TAPS + 1) * PHASES + 1, one / PHASES)], dtype=np.float32)
    angle_N = np.float32(np.pi) * time_N
    sinc_N = np.divide(np.sin(angle_N), angle_N, out=np.ones_like(angle_N), where=angle_N != 0)
    window_L = np.float32(0.5) - np.float32(0.5) * np.cos(np.float32(np.pi) * 2 * np.arange(TAPS) / (TAPS - 1))
    place_PL = np.arange(PHASES + 2)[:, None] + PHASES * np.arange(TAPS)
    return (window_L * sinc_N[place_PL]).astype(np.float32)


class Filters(NamedTuple):
    """What all rooms of a sample rate share: the octave bands, and the exponent of what air leaves after a metre."""

    octaves: Any
    decay_K: FloatArray


@functools.lru_cache(maxsize=16)
def _filters(sample_rate: int) -> Filters:
    import pyroomacoustics

    room = pyroomacoustics.ShoeBox([1.0, 1.0, 1.0], fs=sample_rate, air_absorption=True, max_order=0)
    return Filters(room.octave_bands, -0.5 * np.asarray(room.air_absorption, dtype=np.float64))


@functools.lru_cache(maxsize=64)
def _bands(sample_rate: int, width: int, bits: int) -> NDArray[np.float32]:
    """Return the bands' spectra at FFTs of 2 W samples over 2 W, (K, F), of filters made for one of ``2**bits``.

    They have no phase: the response to an impulse at the start is the half that its mirror image completes.
    """
    impulse = np.zeros(2 ** (bits - 1))
    impulse[0] = 1.0
    half_NK = _filters(sample_rate).octaves.analysis(impulse)[:width]
    whole_NK = np.zeros((2 * width, half_NK.shape[1]))
    whole_NK[: len(half_NK)] = half_NK
    whole_NK[len(whole_NK) - len(half_NK) + 1 :] = half_NK[:0:-1]
    return np.ascontiguousarray(np.fft.rfft(whole_NK, axis=0, norm="forward").real.T, dtype=np.float32)


@functools.lru_cache(maxsize=64)
def _highpass(sample_rate: int, width: int) -> NDArray[np.float32]:
    """Return the spectrum of the high-pass at FFTs of 2 W samples over 2 W, its response cut after W, (2 F)."""
    from pyroomacoustics.parameters import constants
    from pyroomacoustics.utilities import design_highpass_filter_sos
    from scipy.signal import sosfilt

    sections = design_highpass_filter_sos(sample_rate, constants.get("rir_hpf_fc"), **constants.get("rir_hpf_kwargs"))
    impulse = np.zeros(width)
    impulse[0] = 1.0
    spectrum_F = np.fft.rfft(sosfilt(sections, impulse), 2 * width, norm="forward")
    return np.concatenate([spectrum_F.real, spectrum_F.imag]).astype(np.float32)
