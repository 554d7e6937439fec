"""Cascades of shelving and peaking filters, a row each, equal to ``scipy.signal.sosfilt``.

The analog prototypes are those of the Audio EQ Cookbook (R. Bristow-Johnson, https://www.w3.org/TR/audio-eq-cookbook/).
Each is a low-pass, a band-pass and a high-pass of one frequency, g = tan(w_centre/2) or near it, added up:

    H = (low + band p + high p^2) / (1 + k p + p^2),  p = j tan(w/2) / g

What is here runs on the host: ``plan`` decides on numbers; ``dsp.biquads.cascade`` filters with them on the device.

A filter that rings longer than the clip would need an endless FFT. Of its impulse response only the first L samples can
be heard, and cutting it there is exact: what it plays from sample L on is z^-L (c0 + c1 / z) / A(z), with the state
(c0, c1) that the filter is in then; subtract that from H.

The cascade starts in the steady state of its first sample, as ``sosfilt(zi=sosfilt_zi * x[0])`` does, section after
section: as if it had been x[0] all the time before. Where H is cut, (H(0) - what is left of it) x[0] is missing then.

Shapes: R rows, S sections, K = 7 numbers of each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.fft import fast_length

Kind = Literal["low_shelf", "high_shelf", "peaking"]
FloatArray = NDArray[np.float64]
TAIL_ERROR = 1e-7
SHORTEST_TAIL = 2**8
SLOW = 4
"""How many times as long as the median of a batch the slow rows ring."""
OWN_NUMBERS, NUMBERS = 5, 7
"""Of a section, and with the two of what it still plays from where it is cut on."""
CHERNOFF = (1.0 - 1e-9, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)


@dataclass(frozen=True)
class Section:
    """One section's analog prototype for each of R rows, in float64 on the host. ``tan_R``: tan(w_centre / 2)."""

    tan_R: FloatArray
    gain_R: FloatArray
    numerator_R3: FloatArray
    denominator_R3: FloatArray

    @classmethod
    def one(cls, sections: "Sequence[Section]") -> "Section":
        """Return sections as one, of all their rows, one after the other."""
        return cls(*map(np.concatenate, zip(*(vars(each).values() for each in sections))))

    def split(self, count: int) -> "list[Section]":
        """Return that many sections, each of as many of its rows."""
        parts = (values.reshape(count, -1, *values.shape[1:]) for values in vars(self).values())
        return [Section(*part) for part in zip(*parts)]

    def spread(self, rows: NDArray[np.int64], count: int) -> "Section":
        """Return the section for ``count`` rows, of which it filters those, and does nothing to the others."""
        one_R, nothing_R3 = np.ones(count), np.tile([1.0, 2.0, 1.0], (count, 1))
        found = Section(one_R, one_R.copy(), nothing_R3, nothing_R3.copy())
        for name, values in vars(self).items():
            getattr(found, name)[rows] = values
        return found

    def amplified(self, factor_R: FloatArray) -> "Section":
        """Return the section with another gain."""
        return replace(self, gain_R=self.gain_R * factor_R)

    def digital(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return b and a as scipy has them, (R, 3) each, and what a[0] was before they were divided by it."""
        t = self.tan_R
        b, a = (
            np.stack([p0 * t**2 + p1 * t + p2, 2 * (p0 * t**2 - p2), p0 * t**2 - p1 * t + p2], axis=1)
            for p0, p1, p2 in (self.numerator_R3.T, self.denominator_R3.T)
        )
        return b * (self.gain_R / a[:, 0])[:, None], a / a[:, :1], a[:, 0]

    def rings_R(self) -> FloatArray:
        """Return how many samples each row rings: to 1e-7 of its start."""
        d0, d1, d2 = self.denominator_R3.T.astype(np.complex128)
        root = np.sqrt(d1**2 - 4 * d2 * d0)
        poles = np.stack([-2 * d0 / (d1 + root), -(d1 + root) / (2 * d2)]) * self.tan_R
        slowest_R = np.abs((1 + poles) / (1 - poles)).max(axis=0)
        return math.log(TAIL_ERROR) / np.log(slowest_R.clip(1e-9, 1 - 1e-12))

    def numbers_RK(self) -> FloatArray:
        """Return g, k, low, band and high of H = (low + band p + high p^2) / (1 + k p + p^2), p = j tan(w/2) / g."""
        (n0, n1, n2), (d0, d1, d2) = self.numerator_R3.T, self.denominator_R3.T
        g, root, gain = self.tan_R * np.sqrt(d0 / d2), np.sqrt(d0 * d2), self.gain_R
        return np.asarray([g, d1 / root, gain * n0 / d0, gain * n1 / root, gain * n2 / d2]).T

    def cut_R2(self, at: int) -> FloatArray:
        """Return what the filter still plays from sample ``at`` on, as the factors of cos(w/2) and j sin(w/2)."""
        b, a, scale = self.digital()
        step_R22 = np.zeros((len(b), 2, 2))
        step_R22[:, :, 0], step_R22[:, 0, 1] = -a[:, 1:], 1.0
        state_R2 = np.linalg.matrix_power(step_R22, at - 1) @ (b[:, 1:] - a[:, 1:] * b[:, :1])[:, :, None]
        c0, c1 = state_R2[:, 0, 0], state_R2[:, 1, 0]
        return np.stack([c0 + c1, c0 - c1], axis=1) * (scale / 4 / self.denominator_R3[:, 2])[:, None]


def section(kind: Kind, centre_hz: FloatArray, gain_db: FloatArray, q: FloatArray, sample_rate: int) -> Section:
    """Return a section of the Audio EQ Cookbook. Its centre must lie below half the sample rate."""
    one, a = np.ones_like(q), 10 ** (gain_db / 40)
    if kind == "peaking":
        above, below, outer = np.asarray([one, a / q, one]).T, np.asarray([one, 1 / (a * q), one]).T, one
    else:
        shelf = np.asarray([a, np.sqrt(a) / q, one]).T
        above, below, outer = (shelf, shelf[:, ::-1], a) if kind == "low_shelf" else (shelf[:, ::-1], shelf, a)
    return Section(np.tan(np.pi * centre_hz / sample_rate), outer, above, below)


def below_nyquist(centre_hz: float | FloatArray, sample_rate: int) -> FloatArray:
    """Return frequencies as audiomentations keeps them, where it does: those above half the rate just below it."""
    nyquist_hz = sample_rate // 2
    return np.where(centre_hz > nyquist_hz, nyquist_hz * 0.9999, centre_hz)


@dataclass(frozen=True)
class Cascade:
    """A cascade for each of some rows as plain numbers: what ``plan`` decides on the host, and ``run`` needs.

    ``rows`` is which (R,), ``numbers`` flat (R * S * K), ``missing_R`` what is missing of H(0) since sections are cut,
    ``cuts`` where each of them is (0: nowhere), ``tail`` how long the slowest row rings.
    """

    rows: Any
    numbers: Any
    missing_R: Any
    cuts: tuple[int, ...]
    tail: int


def plan(sections: Sequence[Section], longest: int) -> list[Cascade]:
    """Decide on the host, for clips of at most that many samples, what ``run`` does on the device.

    Rows that ring far longer than most are a cascade of their own, so that these need not be filtered as if they did.
    """
    whole = fast_length(max(1, longest))
    every, shape = Section.one(sections), (len(sections), -1)
    rings_RS = every.rings_R().reshape(shape).T
    numbers_SRK = every.numbers_RK().reshape(*shape, OWN_NUMBERS)
    rings_R = cascade_rings_R(rings_RS)
    slow_R = rings_R > SLOW * max(SHORTEST_TAIL, float(np.sort(rings_R)[len(rings_R) // 2]))
    found = list[Cascade]()
    for rows in (np.flatnonzero(~slow_R), np.flatnonzero(slow_R)):
        if len(rows):
            cuts, tail = _cuts_and_tail(rings_RS[rows], rings_R[rows], whole)
            numbers_RSK = np.zeros((len(rows), len(sections), NUMBERS))
            numbers_RSK[..., :OWN_NUMBERS] = numbers_SRK[:, rows].swapaxes(0, 1)
            for place, cut in enumerate(cuts):
                if cut:
                    numbers_RSK[:, place, OWN_NUMBERS:] = sections[place].cut_R2(cut)[rows]
            found.append(Cascade(rows, numbers_RSK.reshape(-1), _missing_R(numbers_RSK), cuts, tail))
    return found


def _missing_R(numbers_RSK: FloatArray) -> FloatArray:
    """Return how much less the response at 0 Hz is, of sections of which some are cut."""
    g, _, low, _, _, even, _ = np.moveaxis(numbers_RSK, -1, 0)
    return np.asarray(low.prod(axis=1) - (low - even / g**2).prod(axis=1))


def _cuts_and_tail(rings_RS: FloatArray, rings_R: FloatArray, whole: int) -> tuple[tuple[int, ...], int]:
    """Decide which sections are cut, since some row rings longer than the clips; return how long the cascade rings."""
    cut_S = _rounded_up(rings_RS.max(axis=0)) > whole
    if cut_S.all():
        return (whole,) * len(cut_S), whole * len(cut_S)
    kept_R = cascade_rings_R(rings_RS[:, ~cut_S]) if cut_S.any() else rings_R
    return tuple(np.where(cut_S, whole, 0).tolist()), int(_rounded_up(kept_R.max())) + whole * int(cut_S.sum())


def cascade_rings_R(rings_RS: FloatArray) -> FloatArray:
    """Return how many samples a cascade rings, to 1e-7, of sections that alone ring that long.

    That is far less than their sum. A section whose envelope is exp(-t / c) rings for -c ln(1e-7). Chernoff: what a sum
    of such delays leaves after t is at most exp(-s t) times the product of 1 / (1 - s c), for any s below 1 / max(c).
    """
    slowest_R1 = rings_RS.max(axis=1, keepdims=True)
    share_RS = np.sort(rings_RS / slowest_R1, axis=1)[:, :-1]
    s_G1 = np.asarray(CHERNOFF)[:, None]
    bound_GR = (1 + np.log1p(-s_G1[..., None] * share_RS).sum(axis=2) / math.log(TAIL_ERROR)) / s_G1
    return np.asarray(slowest_R1[:, 0] * bound_GR.min(axis=0))


def _rounded_up(samples: FloatArray) -> NDArray[np.int64]:
    """Return the next power of two, so that sizes repeat."""
    return np.maximum(SHORTEST_TAIL, 2 ** np.ceil(np.log2(samples)).astype(np.int64))
