"""Butterworth filters of any order, a row each, by FFT: the exact twin of ``scipy.signal.butter`` and ``sosfilt``.

A digital Butterworth filter is an analog prototype with poles p_k on the unit circle, its frequency axis mapped. On the
digital axis, with s = sin(w/2), c = cos(w/2), t = tan(w_edge/2) of each band edge, the prototype's is X = u/v:

* low-pass:   u = s,              v = c t
* high-pass:  u = -c t,           v = s
* band-pass:  u = s^2 - c^2 t1 t2, v = s c (t2 - t1)
* band-stop:  u = -s c (t2 - t1), v = s^2 - c^2 t1 t2

and the response is the product of v / (j u - p_k v): nothing is divided by zero at any frequency. The filter starts in
the steady state of its first sample, as ``sosfilt(zi=sosfilt_zi * x[0])`` does: filter x - x[0], then add H(0) x[0].

Shapes: R rows, C channels, T samples, F frequencies.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.fft import apply_response, fast_length

Kind = Literal["lowpass", "highpass", "bandpass", "bandstop"]
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
        """Filter forward, then backward, with odd extension at both ends, as ``scipy.signal.sosfiltfilt`` does."""
        taps = 1 if self.kind in ("lowpass", "highpass") else 2
        edge_R = 3 * (taps * self.order_R.long() + 1)
        longest = 3 * (taps * self.highest_order + 1)
        place_RN = torch.arange(x_RCT.shape[-1] + 2 * longest, device=x_RCT.device) - edge_R[:, None]
        extended = _odd_extension(x_RCT, place_RN, length_R)
        total_R = length_R + 2 * edge_R
        for _ in range(2):
            extended = _reversed(self(extended, total_R), total_R)
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
