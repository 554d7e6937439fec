"""Butterworth filters of any order, a row each, by FFT: the exact twin of ``scipy.signal.butter`` and ``sosfilt``.

A digital Butterworth filter is an analog prototype with poles p_k on the unit circle, its frequency axis mapped. On the
digital axis, with s = sin(w/2), c = cos(w/2), t = tan(w_edge/2) of each band edge, the prototype's is X = u/v:

* low-pass:   u = s,              v = c t
* high-pass:  u = -c t,           v = s
* band-pass:  u = s^2 - c^2 t1 t2, v = s c (t2 - t1)
* band-stop:  u = -s c (t2 - t1), v = s^2 - c^2 t1 t2

and the response is the product of v / (j u - p_k v): nothing is divided by zero at any frequency. The filter starts in
the steady state of its first sample, as ``sosfilt(zi=sosfilt_zi * x[0])`` does: filter x - x[0], then add H(0) x[0].

A filter with an edge next to 0 Hz or to Nyquist rings for longer than most clips. The same filter as a
``cascade`` can be cut at the clip's end (``biquads``).

Shapes: R rows, C channels, T samples, F frequencies.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.biquads import Section
from audioaug.dsp.fft import apply_response, fast_length

Kind = Literal["lowpass", "highpass", "bandpass", "bandstop"]
FloatArray = NDArray[np.float64]
Whole = TypeVar("Whole", int, torch.Tensor, NDArray[np.int64])
LONGEST_TAIL = 2**19
TAIL_ERROR = 1e-7


@dataclass(frozen=True)
class Butterworth:
    """A filter for each row. ``low_R`` and ``high_R`` are the band's edges, warped (one-sided kinds use ``low_R``)."""

    kind: Kind
    order_R: torch.Tensor
    low_R: torch.Tensor
    high_R: torch.Tensor
    highest_order: int
    tail: int

    def response_RF(self, n: int) -> torch.Tensor:
        """Return the complex response at the frequencies of an FFT of n samples."""
        u, v = self._prototype_axis(n)
        scale = torch.rsqrt(u.square() + v.square())
        u, v = u * scale, v * scale
        response = torch.ones_like(u, dtype=torch.complex64)
        order_R1 = self.order_R[:, None]
        for pair in range(self.highest_order // 2):
            damping = 2.0 * torch.sin(math.pi * (2 * pair + 1) / (2 * order_R1))
            factor = v.square() / torch.complex((v - u) * (v + u), damping * u * v)
            response = torch.where(2 * pair + 2 <= order_R1, response * factor, response)
        return torch.where(order_R1 % 2 == 1, response * (v / torch.complex(v, u)), response)

    def _prototype_axis(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        # cos(w/2) as the sine of the rest of a right angle: a cosine would lose its digits near the Nyquist frequency.
        place = torch.arange(n // 2 + 1, device=self.order_R.device, dtype=torch.float32)
        s, c = torch.sin(place * (math.pi / n)), torch.sin((n - 2 * place) * (math.pi / (2 * n)))
        low_R1, high_R1 = self.low_R[:, None], self.high_R[:, None]
        if self.kind == "lowpass":
            return s.expand(len(low_R1), -1), c * low_R1
        if self.kind == "highpass":
            return -c * low_R1, s.expand(len(low_R1), -1)
        centre_R1 = (low_R1 * high_R1).sqrt()
        off_centre, width = (s - c * centre_R1) * (s + c * centre_R1), s * c * (high_R1 - low_R1)
        return (off_centre, width) if self.kind == "bandpass" else (-width, off_centre)

    def __call__(self, x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
        """Filter forward in time; samples behind the end of a row are ignored and come out undefined."""
        n = fast_length(x_RCT.shape[-1] + self.tail)
        response_RF = self.response_RF(n)
        inside_R1T = torch.arange(x_RCT.shape[-1], device=x_RCT.device) < length_R[:, None, None]
        first_RC1 = x_RCT[..., :1]
        moving = torch.where(inside_R1T, x_RCT - first_RC1, 0.0)
        return apply_response(moving, response_RF, n) + first_RC1 * response_RF[:, None, :1].real

    def zero_phase(self, x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
        """Filter forward, then backward; see ``zero_phase``."""
        edge_R = extension(self.kind, self.order_R.long())
        return zero_phase(self, x_RCT, length_R, edge_R, extension(self.kind, self.highest_order))


def extension(kind: Kind, order: Whole) -> Whole:
    """Return how many samples ``scipy.signal.sosfiltfilt`` puts at each end of a clip."""
    return 3 * ((1 if kind in ("lowpass", "highpass") else 2) * order + 1)


def zero_phase(
    forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
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
        extended = _reversed(forward(extended, total_R), total_R)
    place_RT = torch.arange(x_RCT.shape[-1], device=x_RCT.device) + edge_R[:, None]
    return extended.gather(-1, place_RT[:, None].expand_as(x_RCT))


def _odd_extension(x_RCT: torch.Tensor, place_RN: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Read x at places before its start and behind its end, mirrored and turned about the end points."""
    last_R1 = length_R[:, None] - 1
    folded_RN = torch.where(place_RN < 0, -place_RN, torch.where(place_RN > last_R1, 2 * last_R1 - place_RN, place_RN))
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


def tail_samples(
    kind: Kind, order_R: NDArray[np.int64], low_R: NDArray[np.float64], high_R: NDArray[np.float64]
) -> int:
    """Return how long the slowest of these filters rings (to 1e-7 of its start), as one of few sizes. On the host."""
    slowest = max(
        float(_pole_radii(kind, order, low_R[order_R == order], high_R[order_R == order]).max())
        for order in set(order_R.tolist())
    )
    samples = math.log(TAIL_ERROR) / math.log(slowest) if 0 < slowest < 1 else LONGEST_TAIL
    return min(LONGEST_TAIL, 1 << max(8, math.ceil(math.log2(samples))))


def _pole_radii(kind: Kind, order: int, low_R: NDArray[np.float64], high_R: NDArray[np.float64]) -> NDArray[np.float64]:
    prototype = np.exp(1j * np.pi * (2 * np.arange(order) + order + 1) / (2 * order))
    if kind in ("lowpass", "highpass"):
        poles = low_R[:, None] * prototype
    else:
        half = (high_R - low_R)[:, None] * prototype / 2
        root = np.sqrt(half**2 - (low_R * high_R)[:, None])
        poles = np.concatenate([half + root, half - root], axis=1)
    return np.abs((1 + poles) / (1 - poles))


def cascade(kind: Kind, order_R: NDArray[np.int64], low_R: FloatArray, high_R: FloatArray) -> list[Section]:
    """Return the same filters as sections for ``biquads``; in rows of lower order some sections change nothing."""
    found = list[Section]()
    single = _single(kind, low_R, high_R)
    for pair in range((int(order_R.max()) + 1) // 2):
        angle_R = np.pi * (2 * pair + 1) / (2 * order_R)
        pole_R = -np.sin(angle_R) + 1j * np.cos(angle_R)
        for number, section in enumerate(_pair(kind, pole_R, low_R, high_R)):
            last_R = (order_R == 2 * pair + 1) & (number == 0)
            found.append(_where(order_R >= 2 * pair + 2, section, _where(last_R, single, NOTHING)))
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
    return Section(tan_R, gain_R, np.stack(numerator, axis=1), np.stack(denominator, axis=1))


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
