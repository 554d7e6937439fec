"""Cascades of shelving and peaking filters, a row each, by FFT: the exact twin of ``scipy.signal.sosfilt``.

The analog prototypes are those of the Audio EQ Cookbook (R. Bristow-Johnson, https://www.w3.org/TR/audio-eq-cookbook/).
On the digital axis, with u = sin(w/2), v = cos(w/2) tan(w_centre/2), a section's response is

    H = gain (n0 v^2 - n2 u^2 + j n1 u v) / D,  D = d0 v^2 - d2 u^2 + j d1 u v

whose differences of squares are multiplied out, so that float32 keeps its digits also next to 0 Hz and to Nyquist.

A filter that rings longer than the clip would need an endless FFT. Of its impulse response only the first L samples can
be heard, and cutting it there is exact: what it plays from sample L on is z^-L (c0 + c1 / z) / A(z), with the state
(c0, c1) that the filter is in then; subtract that from H.

The cascade starts in the steady state of its first sample, as ``sosfilt(zi=sosfilt_zi * x[0])`` does, section after
section: filter x - x[0], then add H(0) x[0].

Shapes: R rows, S sections, K = 10 numbers of each, C channels, T samples, F frequencies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.fft import apply_response, fast_length

Kind = Literal["low_shelf", "high_shelf", "peaking"]
FloatArray = NDArray[np.float64]
TAIL_ERROR = 1e-7
SHORTEST_TAIL = 2**8
NUMBERS = 10


@dataclass(frozen=True)
class Section:
    """One section's analog prototype for each of R rows, in float64 on the host. ``tan_R``: tan(w_centre / 2)."""

    tan_R: FloatArray
    gain_R: FloatArray
    numerator_R3: FloatArray
    denominator_R3: FloatArray

    def digital(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return b and a as scipy has them, (R, 3) each, and what a[0] was before they were divided by it."""
        t = self.tan_R
        b, a = (
            np.stack([p0 * t**2 + p1 * t + p2, 2 * (p0 * t**2 - p2), p0 * t**2 - p1 * t + p2], axis=1)
            for p0, p1, p2 in (self.numerator_R3.T, self.denominator_R3.T)
        )
        return b * (self.gain_R / a[:, 0])[:, None], a / a[:, :1], a[:, 0]

    def steady_R(self) -> FloatArray:
        """Return the gain at 0 Hz."""
        return self.gain_R * self.numerator_R3[:, 0] / self.denominator_R3[:, 0]

    def tail_samples(self) -> int:
        """Return how long the slowest row rings (to 1e-7 of its start), as a power of two."""
        d0, d1, d2 = self.denominator_R3.T.astype(np.complex128)
        root = np.sqrt(d1**2 - 4 * d2 * d0)
        poles = np.stack([-2 * d0 / (d1 + root), -(d1 + root) / (2 * d2)]) * self.tan_R
        slowest = min(float(np.abs((1 + poles) / (1 - poles)).max()), 1 - 1e-12)
        samples = math.log(TAIL_ERROR) / math.log(max(slowest, 1e-9))
        return max(SHORTEST_TAIL, 1 << math.ceil(math.log2(samples)))

    def cut_R2(self, at: int) -> FloatArray:
        """Return what the filter still plays from sample ``at`` on, as the factors of cos(w/2) and j sin(w/2)."""
        b, a, scale = self.digital()
        step_R22 = np.zeros((len(b), 2, 2))
        step_R22[:, :, 0], step_R22[:, 0, 1] = -a[:, 1:], 1.0
        state_R2 = np.linalg.matrix_power(step_R22, at - 1) @ (b[:, 1:] - a[:, 1:] * b[:, :1])[:, :, None]
        c0, c1 = state_R2[:, 0, 0], state_R2[:, 1, 0]
        return np.stack([c0 + c1, c0 - c1], axis=1) * (scale / 4)[:, None]


def section(kind: Kind, centre_hz: FloatArray, gain_db: FloatArray, q: FloatArray, sample_rate: int) -> Section:
    """Return a section of the Audio EQ Cookbook. Its centre must lie below half the sample rate."""
    one, a = np.ones_like(q), 10 ** (gain_db / 40)
    shelf = np.stack([a, np.sqrt(a) / q, one], axis=1)
    above, below, outer = {
        "low_shelf": (shelf, shelf[:, ::-1], a),
        "high_shelf": (shelf[:, ::-1], shelf, a),
        "peaking": (np.stack([one, a / q, one], axis=1), np.stack([one, 1 / (a * q), one], axis=1), one),
    }[kind]
    return Section(np.tan(np.pi * centre_hz / sample_rate), outer, above, below)


def below_nyquist(centre_hz: float | FloatArray, sample_rate: int) -> FloatArray:
    """Return frequencies as audiomentations keeps them, where it does: those above half the rate just below it."""
    nyquist_hz = sample_rate // 2
    return np.where(centre_hz > nyquist_hz, nyquist_hz * 0.9999, centre_hz)


@dataclass(frozen=True)
class Plan:
    """A cascade for each row as plain numbers: ``sections`` flat (R * S * K), H(0) of all, cuts (0: none), tail."""

    sections: NDArray[np.float64]
    steady_R: FloatArray
    cuts: tuple[int, ...]
    tail: int


def plan(sections: Sequence[Section], longest: int) -> Plan:
    """Decide on the host, for clips of at most that many samples, what ``run`` does on the device."""
    whole, cuts, tail, numbers = fast_length(max(1, longest)), list[int](), 0, list[FloatArray]()
    for each in sections:
        rings = each.tail_samples()
        cuts.append(whole if rings > whole else 0)
        tail += cuts[-1] or rings
        rest_R2 = each.cut_R2(cuts[-1]) if cuts[-1] else np.zeros((len(each.tan_R), 2))
        roots = np.sqrt(each.numerator_R3[:, ::2]), np.sqrt(each.denominator_R3[:, ::2])
        middles = each.numerator_R3[:, 1:2], each.denominator_R3[:, 1:2]
        parts = [each.tan_R[:, None], each.gain_R[:, None], roots[0], middles[0], roots[1], middles[1], rest_R2]
        numbers.append(np.concatenate(parts, axis=1))
    steady_R = np.prod([each.steady_R() for each in sections], axis=0)
    return Plan(np.stack(numbers, axis=1).reshape(-1), steady_R, tuple(cuts), tail)


def run(
    x_RCT: torch.Tensor,
    length_R: torch.Tensor,
    sections: torch.Tensor,
    steady_R: torch.Tensor,
    cuts: Sequence[int],
    tail: int,
) -> torch.Tensor:
    """Filter each row with its cascade; samples behind the end of a row are ignored and come out undefined."""
    n = fast_length(x_RCT.shape[-1] + tail)
    response_RF = _response_RF(sections.reshape(len(x_RCT), len(cuts), NUMBERS), cuts, n)
    inside_R1T = torch.arange(x_RCT.shape[-1], device=x_RCT.device) < length_R[:, None, None]
    first_RC1 = x_RCT[..., :1]
    moving = torch.where(inside_R1T, x_RCT - first_RC1, 0.0)
    return apply_response(moving, response_RF, n) + first_RC1 * steady_R[:, None, None]


def _response_RF(sections_RSK: torch.Tensor, cuts: Sequence[int], n: int) -> torch.Tensor:
    """Return the product of all sections' responses at the frequencies of an FFT of n samples."""
    # cos(w/2) as the sine of the rest of a right angle: a cosine would lose its digits near the Nyquist frequency.
    place = torch.arange(n // 2 + 1, device=sections_RSK.device)
    u, cosine = torch.sin(place * (math.pi / n)), torch.sin((n - 2 * place) * (math.pi / (2 * n)))
    response = torch.ones(1, dtype=torch.complex64, device=sections_RSK.device)
    for number, cut in enumerate(cuts):
        t, gain, n0, n2, n1, d0, d2, d1, even, odd = sections_RSK[:, number, :, None].unbind(dim=1)
        v = cosine * t
        above = torch.complex(gain * (n0 * v - n2 * u) * (n0 * v + n2 * u), gain * n1 * u * v)
        if cut:  # times exp(-j w (cut - 1/2)), whose angle is reduced while it is a whole number
            angle = ((place * (2 * cut - 1)) % (2 * n)) * (-math.pi / n)
            above = above - torch.complex(even * cosine, odd * u) * torch.polar(torch.ones_like(angle), angle)
        response = response * (above / torch.complex((d0 * v - d2 * u) * (d0 * v + d2 * u), d1 * u * v))
    return response
