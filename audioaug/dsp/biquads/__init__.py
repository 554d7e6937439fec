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
from numpy.typing import ArrayLike, NDArray

from audioaug.dsp.fft import fast_length
from audioaug.dsp.host_function import HostFunction
from audioaug.dsp.loops import loop_as_written

Kind = Literal["low_shelf", "high_shelf", "peaking"]
FloatArray = NDArray[np.float64]
TAIL_ERROR = 1e-7
LOG_ERROR = math.log(TAIL_ERROR)
SHORTEST_TAIL = 2**8
SLOW = 4
"""How many times as long as the median of a batch the slow rows ring."""
OWN_NUMBERS, NUMBERS = 5, 7
"""Of a section, and with the two of what it still plays from where it is cut on."""
NOTHING: tuple[ArrayLike, ...] = 1.0, 1.0, [[[1.0]], [[2.0]], [[1.0]]], [[[1.0]], [[2.0]], [[1.0]]]
"""The numbers of a section that changes nothing."""
CHERNOFF = (1.0 - 1e-9, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)


@dataclass(frozen=True)
class Sections:
    """Analog prototypes of S sections for each of R rows, float64 on the host. ``tan_SR``: tan(w_centre / 2)."""

    tan_SR: FloatArray
    gain_SR: FloatArray
    numerator_3SR: FloatArray
    denominator_3SR: FloatArray

    @classmethod
    def of_all(cls, parts: "Sequence[Sections]") -> "Sections":
        """Return the sections of all parts, in order, for the same rows."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(each, axis=-2) for each in zip(*(vars(part).values() for part in parts))))

    def spread(self, rows: NDArray[np.int64], count: int) -> "Sections":
        """Return the sections for ``count`` rows, of which they filter those, and do nothing to the others."""
        found = nothing(len(self.tan_SR), count)
        for name, values in vars(self).items():
            getattr(found, name)[..., rows] = values
        return found

    def some(self, kept_S: NDArray[np.bool_], rows: NDArray[np.bool_] | slice) -> "Sections":
        """Return some of the sections for some of the rows."""
        return Sections(*(values[..., kept_S, :][..., rows] for values in vars(self).values()))

    def without(self, none_SR: NDArray[np.bool_]) -> "Sections":
        """Return them with those that change nothing in some places."""
        if not none_SR.any():
            return self
        return Sections(*(np.where(none_SR, *both) for both in zip(NOTHING, vars(self).values())))

    def amplified(self, factor_R: FloatArray) -> "Sections":
        """Return them with another gain."""
        return replace(self, gain_SR=np.concatenate([self.gain_SR[:1] * factor_R, self.gain_SR[1:]]))

    def digital(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return b and a as scipy has them, (3, S, R) each, and what a[0] was before they were divided by it."""
        t = self.tan_SR
        b, a = (
            np.asarray([p0 * t**2 + p1 * t + p2, 2 * (p0 * t**2 - p2), p0 * t**2 - p1 * t + p2])
            for p0, p1, p2 in (self.numerator_3SR, self.denominator_3SR)
        )
        return b * (self.gain_SR / a[0]), a / a[0], a[0]

    def rings_SR(self) -> FloatArray:
        """Return how many samples each rings: to 1e-7 of its start."""
        t, (d0, d1, d2) = self.tan_SR, self.denominator_3SR
        under_root = d1**2 - 4 * d0 * d2
        middle, outer = d1 * t, d0 * t**2 + d2
        of_pair = np.sqrt(np.abs(outer - middle) / (outer + middle))  # of two conjugate poles
        larger = d1 + np.sqrt(under_root.clip(0.0))  # of two real ones, -2 times what the other is divided by
        of_real = np.maximum(*(np.abs((1 - p) / (1 + p)) for p in (2 * d0 * t / larger, larger * t / (2 * d2))))
        slowest = np.where(under_root < 0, of_pair, of_real)
        return np.asarray(LOG_ERROR / np.log(slowest.clip(1e-9, 1 - 1e-12)))

    def numbers_KSR(self) -> FloatArray:
        """Return g, k, low, band and high of H = (low + band p + high p^2) / (1 + k p + p^2), p = j tan(w/2) / g."""
        (n0, n1, n2), (d0, d1, d2), gain = self.numerator_3SR, self.denominator_3SR, self.gain_SR
        root = np.sqrt(d0 * d2)
        return np.asarray([self.tan_SR * np.sqrt(d0 / d2), d1 / root, gain * n0 / d0, gain * n1 / root, gain * n2 / d2])

    def cut_2SR(self, at: int) -> FloatArray:
        """Return what the filters still play from sample ``at`` on, as the factors of cos(w/2) and j sin(w/2)."""
        (b0, b1, b2), (_, a1, a2), scale = self.digital()
        c0, c1 = b1 - a1 * b0, b2 - a2 * b0
        p, q = _power_of_z(at - 1, a1, a2)
        c0, c1 = p * (c1 - a1 * c0) + q * c0, q * c1 - p * a2 * c0
        return np.asarray([c0 + c1, c0 - c1]) * (scale / 4 / self.denominator_3SR[2])


def _power_of_z(exponent: int, a1: FloatArray, a2: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return p and q of p z + q, which z ** exponent is modulo z^2 + a1 z + a2: by squaring."""
    p, q = np.zeros_like(a1), np.ones_like(a1)
    for bit in f"{exponent:b}":
        p, q = p * (2 * q - a1 * p), q**2 - a2 * p**2
        if bit == "1":
            p, q = q - a1 * p, -a2 * p
    return p, q


def nothing(count: int, rows: int) -> Sections:
    """Return that many sections that change nothing, for that many rows."""
    tan, gain, numerator_3, denominator_3 = (np.tile(number, (count, rows)) for number in NOTHING)
    return Sections(tan, gain, numerator_3, denominator_3)


def sections(kind: Kind, centre_hz: FloatArray, gain_db: FloatArray, q: FloatArray, sample_rate: int) -> Sections:
    """Return sections of the Audio EQ Cookbook. Their centres must lie below half the sample rate.

    Shape:
        centre_hz, gain_db, q: (S, R).
    """
    one, a = np.ones_like(q), 10 ** (gain_db / 40)
    if kind == "peaking":
        above, below, outer = [one, a / q, one], [one, 1 / (a * q), one], one
    else:
        shelf = [a, np.sqrt(a) / q, one]
        above, below, outer = (shelf, shelf[::-1], a) if kind == "low_shelf" else (shelf[::-1], shelf, a)
    return Sections(np.tan(np.pi * centre_hz / sample_rate), outer, np.asarray(above), np.asarray(below))


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


def plan(parts: Sequence[Sections], longest: int) -> list[Cascade]:
    """Decide on the host, for clips of at most that many samples, what ``run`` does on the device.

    Rows that ring far longer than most are a cascade of their own, so that these need not be filtered as if they did.
    """
    whole, sections = fast_length(max(1, longest)), Sections.of_all(parts)
    count, rows = sections.tan_SR.shape
    numbers_RSK, rings_SR, rings_R = np.empty((rows, count, NUMBERS)), np.empty((count, rows)), np.empty(rows)
    _fill(*vars(sections).values(), numbers_RSK, rings_SR, rings_R)
    slow_R = rings_R > SLOW * max(SHORTEST_TAIL, float(np.sort(rings_R)[rows // 2]))
    found: list[Cascade] = []
    for some in (~slow_R, slow_R) if slow_R.any() else (slice(None),):
        cut_S, tail = _cuts_and_tail(rings_SR[:, some], rings_R[some], whole)
        own_RSK = numbers_RSK[some]
        missing_R = np.zeros(len(own_RSK))
        if cut_S.any():
            own_RSK[:, cut_S, OWN_NUMBERS:] = sections.some(cut_S, some).cut_2SR(whole).T
            missing_R = _missing_R(own_RSK)
        cuts = tuple(np.where(cut_S, whole, 0).tolist())
        found.append(Cascade(np.arange(rows)[some], own_RSK.reshape(-1), missing_R, cuts, tail))
    return found


def _numbers_and_rings(
    tan_SR: FloatArray,
    gain_SR: FloatArray,
    numerator_3SR: FloatArray,
    denominator_3SR: FloatArray,
    numbers_RSK: FloatArray,
    rings_SR: FloatArray,
    rings_R: FloatArray,
) -> None:
    """Fill in the numbers of sections that are not cut, how long each rings, and how long each row's cascade does."""
    sections = Sections(tan_SR, gain_SR, numerator_3SR, denominator_3SR)
    numbers_RSK[..., :OWN_NUMBERS], numbers_RSK[..., OWN_NUMBERS:] = sections.numbers_KSR().T, 0.0
    rings_SR[:] = sections.rings_SR()
    rings_R[:] = cascade_rings_R(rings_SR)


@loop_as_written
def _numbers_and_rings_by_loop(
    tan_SR: FloatArray,
    gain_SR: FloatArray,
    numerator_3SR: FloatArray,
    denominator_3SR: FloatArray,
    numbers_RSK: FloatArray,
    rings_SR: FloatArray,
    rings_R: FloatArray,
) -> None:
    for row in range(len(rings_R)):
        for s in range(len(tan_SR)):
            t, gain, numbers_K = tan_SR[s, row], gain_SR[s, row], numbers_RSK[row, s]
            n0, n1, n2 = numerator_3SR[0, s, row], numerator_3SR[1, s, row], numerator_3SR[2, s, row]
            d0, d1, d2 = denominator_3SR[0, s, row], denominator_3SR[1, s, row], denominator_3SR[2, s, row]
            root = math.sqrt(d0 * d2)
            numbers_K[0], numbers_K[1] = t * math.sqrt(d0 / d2), d1 / root
            numbers_K[2], numbers_K[3], numbers_K[4] = gain * n0 / d0, gain * n1 / root, gain * n2 / d2
            numbers_K[OWN_NUMBERS:] = 0.0
            rings_SR[s, row] = LOG_ERROR / math.log(min(max(_slowest_pole(t, d0, d1, d2), 1e-9), 1 - 1e-12))
        rings_R[row] = _cascade_rings(rings_SR[:, row])


@loop_as_written
def _slowest_pole(t: float, d0: float, d1: float, d2: float) -> float:
    under_root = d1**2 - 4 * d0 * d2
    if under_root < 0:  # two conjugate poles
        middle, outer = d1 * t, d0 * t**2 + d2
        return math.sqrt(abs(outer - middle) / (outer + middle))
    larger = d1 + math.sqrt(under_root)
    p, q = 2 * d0 * t / larger, larger * t / (2 * d2)
    return max(abs((1 - p) / (1 + p)), abs((1 - q) / (1 + q)))


@loop_as_written
def _cascade_rings(rings_S: FloatArray) -> float:
    slowest, bound = rings_S.argmax(), math.inf
    for share in CHERNOFF:
        left = 1.0
        for s in range(len(rings_S)):
            if s != slowest:
                left *= 1 - share * rings_S[s] / rings_S[slowest]
        bound = min(bound, (1 + math.log(left) / LOG_ERROR) / share)
    return rings_S[slowest] * bound


def _some_sections() -> tuple[FloatArray, ...]:
    """Return arguments: two sections for each of three rows, with real and with conjugate poles."""
    tan_SR, gain_SR = np.asarray([[0.01, 0.5, 30.0], [0.3, 0.3, 2.0]]), np.asarray([[1.0, 2.0, 0.5], [1.0, 1.0, 3.0]])
    middle_SR = np.asarray([[0.2, 2.0, 5.0], [1.4, 0.5, 2.5]])
    above_3SR, below_3SR = np.stack([gain_SR, middle_SR, tan_SR]), np.stack([tan_SR + 1, middle_SR, gain_SR])
    return tan_SR, gain_SR, above_3SR, below_3SR, np.empty((3, 2, NUMBERS)), np.empty((2, 3)), np.empty(3)


_fill = HostFunction(_numbers_and_rings, _numbers_and_rings_by_loop, _some_sections, filled=3, rtol=1e-9)


def _missing_R(numbers_RSK: FloatArray) -> FloatArray:
    """Return how much less the response at 0 Hz is, of sections of which some are cut."""
    g, _, low, _, _, even, _ = np.moveaxis(numbers_RSK, -1, 0)
    return np.asarray(low.prod(axis=1) - (low - even / g**2).prod(axis=1))


def _cuts_and_tail(rings_SR: FloatArray, rings_R: FloatArray, whole: int) -> tuple[NDArray[np.bool_], int]:
    """Decide which sections are cut, since some row rings longer than the clips; return how long the cascade rings."""
    cut_S = np.asarray([_rounded_up(slowest) > whole for slowest in rings_SR.max(axis=1).tolist()])
    if cut_S.all():
        return cut_S, whole * len(cut_S)
    kept_R = cascade_rings_R(rings_SR[~cut_S]) if cut_S.any() else rings_R
    return cut_S, _rounded_up(float(kept_R.max())) + whole * int(cut_S.sum())


def cascade_rings_R(rings_SR: FloatArray) -> FloatArray:
    """Return how many samples a cascade rings, to 1e-7, of sections that alone ring that long.

    That is far less than their sum. A section whose envelope is exp(-t / c) rings for -c ln(1e-7). Chernoff: what a sum
    of such delays leaves after t is at most exp(-s t) times the product of 1 / (1 - s c), for any s below 1 / max(c).
    """
    slowest_R = rings_SR.max(axis=0)
    share_SR = np.sort(rings_SR / slowest_R, axis=0)[:-1]
    s_G = np.asarray(CHERNOFF)
    left_GR = (1 - s_G[:, None, None] * share_SR).prod(axis=1)
    bound_GR = (1 + np.log(left_GR) / LOG_ERROR) / s_G[:, None]
    return np.asarray(slowest_R * bound_GR.min(axis=0))


def _rounded_up(samples: float) -> int:
    """Return the next power of two, so that sizes repeat."""
    return int(max(SHORTEST_TAIL, 2 ** math.ceil(math.log2(samples))))
