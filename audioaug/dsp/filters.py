"""Butterworth filters of any order, a row each, as cascades of second order: those of ``scipy.signal.butter``.

A digital Butterworth filter is an analog prototype with poles on the unit circle, its frequency axis mapped: X = u/v,
with s = sin(w/2), c = cos(w/2), t = tan(w_edge/2) of each band edge, is

* low-pass:   u = s,              v = c t
* high-pass:  u = -c t,           v = s
* band-pass:  u = s^2 - c^2 t1 t2, v = s c (t2 - t1)
* band-stop:  u = -s c (t2 - t1), v = s^2 - c^2 t1 t2

A pole of the prototype and its conjugate make one section of a one-sided filter and two of a two-sided one.

Shapes: R rows, C channels, T samples.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.biquads import Sections

Kind = Literal["lowpass", "highpass", "bandpass", "bandstop"]
FloatArray = NDArray[np.float64]
Whole = TypeVar("Whole", int, torch.Tensor, NDArray[np.int64])


def extension(kind: Kind, order: Whole) -> Whole:
    """Return how many samples ``scipy.signal.sosfiltfilt`` puts at each end of a clip."""
    return 3 * ((1 if kind in ("lowpass", "highpass") else 2) * order + 1)


def zero_phase(
    forward: Callable[[torch.Tensor], torch.Tensor],
    x_RCT: torch.Tensor,
    length_R: torch.Tensor,
    edge_R: torch.Tensor,
    longest_edge: int,
) -> torch.Tensor:
    """Filter forward, then backward, with odd extension at both ends, as ``scipy.signal.sosfiltfilt`` does."""
    place_RN = torch.arange(x_RCT.shape[-1] + 2 * longest_edge, device=x_RCT.device) - edge_R[:, None]
    extended = _odd_extension(x_RCT, place_RN, length_R)
    total_R = length_R + 2 * edge_R
    for _ in range(2):
        extended = _reversed(forward(extended), total_R)
    place_RT = torch.arange(x_RCT.shape[-1], device=x_RCT.device) + edge_R[:, None]
    return extended.gather(-1, place_RT[:, None].expand_as(x_RCT))


def _odd_extension(x_RCT: torch.Tensor, place_RN: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Read x at places before its start and past its end, mirrored and inverted about the end points."""
    last_R1 = length_R[:, None] - 1
    folded_RN = torch.where(place_RN < 0, -place_RN, torch.where(place_RN > last_R1, 2 * last_R1 - place_RN, place_RN))
    folded_RN = torch.minimum(folded_RN, last_R1)  # of a clip shorter than the extension, the end again
    values = _take(x_RCT, folded_RN)
    end = torch.where((place_RN < 0)[:, None], x_RCT[..., :1], _take(x_RCT, last_R1))
    return torch.where(((place_RN < 0) | (place_RN > last_R1))[:, None], 2 * end - values, values)


def _reversed(x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Turn each row around within its length."""
    return _take(x_RCT, length_R[:, None] - 1 - torch.arange(x_RCT.shape[-1], device=x_RCT.device))


def _take(x_RCT: torch.Tensor, place_RN: torch.Tensor) -> torch.Tensor:
    place = place_RN.clamp(0, x_RCT.shape[-1] - 1)[:, None]
    return x_RCT.gather(-1, place.expand(-1, x_RCT.shape[1], -1))


def warped(edge_hz: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    """Return band edges on the analog axis, tan(w / 2). On the host: float32 hertz are too coarse next to Nyquist."""
    return np.tan(np.pi * edge_hz / sample_rate)


def cascade(kind: Kind, order_R: NDArray[np.int64], low_R: FloatArray, high_R: FloatArray) -> Sections:
    """Return the sections of these filters; in rows of lower order than others some sections change nothing."""
    if kind in ("lowpass", "highpass"):
        return _one_sided(kind, order_R, low_R)
    return _two_sided(kind, order_R, low_R, high_R)


def _poles(order_R: NDArray[np.int64]) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the angles of the prototypes' poles, one of each pair, and how many poles earlier ones have left."""
    before_P1 = 2 * np.arange((int(order_R.max()) + 1) // 2)[:, None]
    return np.pi * (before_P1 + 1) / (2 * order_R), order_R - before_P1


def _one_sided(kind: Kind, order_R: NDArray[np.int64], tan_R: FloatArray) -> Sections:
    """Return a section for each pole of the prototype and its conjugate: looked up, since only ``tan`` varies."""
    every, row_R = _one_sided_of_every_order(kind, int(order_R.max())), order_R - 1
    tan_SR, numerator_3SR, denominator_3SR = (
        np.take(values, row_R, axis=-1) for values in (every.tan_SR, every.numerator_3SR, every.denominator_3SR)
    )
    return Sections(np.where(tan_SR == 1.0, 1.0, tan_R), np.ones(tan_SR.shape), numerator_3SR, denominator_3SR)


@functools.lru_cache(maxsize=64)
def _one_sided_of_every_order(kind: Kind, highest: int) -> Sections:
    """Return the sections of order 1, 2 and so on. Where ``tan`` is 1, and not 0, they change nothing.

    The last pole of an odd order is alone, -1: both sides of its section are multiplied by 1 + p.
    """
    angle_PR, left_PR = _poles(np.arange(1, highest + 1))
    one, zero, alone = np.ones(left_PR.shape), np.zeros(left_PR.shape), (left_PR == 1).astype(np.float64)
    numerator = (one, alone, zero) if kind == "lowpass" else (zero, alone, one)
    return _sections(left_PR < 1, zero, one, numerator, (one, 2 * np.sin(angle_PR), one))


def _two_sided(kind: Kind, order_R: NDArray[np.int64], low_R: FloatArray, high_R: FloatArray) -> Sections:
    """Return two sections for each pole of the prototype and its conjugate; one if the pole is alone, -1."""
    angle_PR, left_PR = _poles(order_R)
    width_R, square_R, left_P1R = high_R - low_R, low_R * high_R, left_PR[:, None]
    half_PR = width_R * (1j * np.cos(angle_PR) - np.sin(angle_PR)) / 2
    root_PR = np.sqrt(half_PR**2 - square_R)
    larger_PR = half_PR + np.where((half_PR * root_PR.conj()).real > 0, root_PR, -root_PR)
    mapped_P2R = np.stack([larger_PR, square_R / larger_PR], axis=1)
    tan_P2R = np.where(left_P1R == 1, np.sqrt(square_R), np.abs(mapped_P2R))
    middle_P2R = np.where(left_P1R == 1, width_R, -2 * mapped_P2R.real) / tan_P2R
    one, zero = np.ones(tan_P2R.shape), np.zeros(tan_P2R.shape)
    gain_P2R, numerator = one, (square_R / tan_P2R**2, zero, one)
    if kind == "bandpass":
        gain_P2R, numerator = width_R / tan_P2R, (zero, one, zero)
    return _sections(left_P1R < [[1], [2]], tan_P2R, gain_P2R, numerator, (one, middle_P2R, one))


def _sections(none: NDArray[np.bool_], *parts: FloatArray | Sequence[FloatArray]) -> Sections:
    """Return sections of (..., R) as (S, R), which change nothing where there are none."""
    tan, gain, numerator_3, denominator_3 = (np.asarray(part) for part in parts)
    shape = -1, none.shape[-1]
    found = Sections(
        tan.reshape(shape), gain.reshape(shape), numerator_3.reshape(3, *shape), denominator_3.reshape(3, *shape)
    )
    return found.without(none.reshape(shape))
