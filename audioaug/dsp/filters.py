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

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.biquads import Section

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


def cascade(kind: Kind, order_R: NDArray[np.int64], low_R: FloatArray, high_R: FloatArray) -> list[Section]:
    """Return the sections of these filters; in rows of lower order than others some sections change nothing."""
    found = list[Section]()
    single = _single(kind, low_R, high_R)
    for pair in range((int(order_R.max()) + 1) // 2):
        angle_R = np.pi * (2 * pair + 1) / (2 * order_R)
        pole_R = -np.sin(angle_R) + 1j * np.cos(angle_R)
        for number, section in enumerate(_pair(kind, pole_R, low_R, high_R)):
            if not (both_R := order_R >= 2 * pair + 2).all():
                other = NOTHING if number else _where(order_R == 2 * pair + 1, single, NOTHING)
                section = _where(both_R, section, other)
            found.append(section)
    return found


def _pair(kind: Kind, pole_R: NDArray[np.complex128], low_R: FloatArray, high_R: FloatArray) -> Iterator[Section]:
    """Yield the sections of a pole of the prototype and its conjugate: two-sided kinds have two."""
    one, zero = np.ones_like(low_R), np.zeros_like(low_R)
    if kind in ("lowpass", "highpass"):
        numerator = (one, zero, zero) if kind == "lowpass" else (zero, zero, one)
        yield _section(low_R, one, numerator, (one, -2 * pole_R.real, one))
        return
    half_R, square_R = (high_R - low_R) * pole_R / 2, low_R * high_R
    root_R = np.sqrt(half_R**2 - square_R)
    larger_R = np.where(np.abs(half_R + root_R) > np.abs(half_R - root_R), half_R + root_R, half_R - root_R)
    for mapped_R in (larger_R, square_R / larger_R):
        tan_R = np.abs(mapped_R)
        gain_R = (high_R - low_R) / tan_R if kind == "bandpass" else one
        numerator = (zero, one, zero) if kind == "bandpass" else (square_R / tan_R**2, zero, one)
        yield _section(tan_R, gain_R, numerator, (one, -2 * mapped_R.real / tan_R, one))


def _single(kind: Kind, low_R: FloatArray, high_R: FloatArray) -> Section:
    """Return the section of the prototype's real pole, -1.

    That of a one-sided kind is of first order. Both sides are multiplied by c + j s, which is nowhere 0.
    """
    one, zero = np.ones_like(low_R), np.zeros_like(low_R)
    if kind in ("lowpass", "highpass"):
        numerator = (low_R, low_R, zero) if kind == "lowpass" else (zero, one, one)
        return _section(one, one, numerator, (low_R, 1 + low_R, one))
    tan_R = np.sqrt(low_R * high_R)
    width_R = (high_R - low_R) / tan_R
    return _section(tan_R, one, (zero, width_R, zero) if kind == "bandpass" else (one, zero, one), (one, width_R, one))


def _section(
    tan_R: FloatArray, gain_R: FloatArray, numerator: tuple[FloatArray, ...], denominator: tuple[FloatArray, ...]
) -> Section:
    return Section(tan_R, gain_R, np.asarray(numerator).T, np.asarray(denominator).T)


def _where(chosen_R: NDArray[np.bool_], section: Section, other: Section) -> Section:
    """Return one section in the chosen rows, the other elsewhere."""
    return Section(
        np.where(chosen_R, section.tan_R, other.tan_R),
        np.where(chosen_R, section.gain_R, other.gain_R),
        np.where(chosen_R[:, None], section.numerator_R3, other.numerator_R3),
        np.where(chosen_R[:, None], section.denominator_R3, other.denominator_R3),
    )


NOTHING = Section(np.ones(1), np.ones(1), np.asarray([[1.0, 2.0, 1.0]]), np.asarray([[1.0, 2.0, 1.0]]))
"""A section that changes nothing."""
