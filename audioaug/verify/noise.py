"""Comparing noise: two results of which each is the dry clip plus noise of its own.

What is compared are the residuals, result minus dry clip. Everything is judged in standard deviations of what honest
white Gaussian noise would give, so short clips get wider limits and no clip gets a free pass. The limits of single
tests lie at 5 to 7 standard deviations; all of them together raise a false alarm in less than one batch of a thousand
(levels are the most probable to: 0.3 dB are 4.4 standard deviations in one second at 16 kHz).

Coloured noise is judged here by its level and its independence alone, which need no knowledge of its colour. Its
spectrum cannot be judged so: where a reference filters with random phases, each clip has a spectrum of its own. That
is compared sample for sample (``contracts.check``, ``fed``).

Shapes: a batch is a sequence of B clips, each (C, T) with its own T; S residuals, one for each clip and channel.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.fft
import scipy.signal
import scipy.special
from numpy.typing import NDArray

Clips: TypeAlias = Sequence[NDArray[np.float32]]
Floats: TypeAlias = NDArray[np.float64]

LEVEL_SAMPLES = 16000
"""The clip length that a contract's level tolerance is meant for."""

BAND_DB = 1.0
FEWEST_BINS = 32
SMALL_LAGS = 32
LEVEL_SIGMA, BAND_SIGMA, SHAPE_SIGMA, LAG_SIGMA = 5.0, 6.0, 6.0, 7.0
PHASE_SIGMA = 10.0
"""Limit for tapered and padded signals: their correlation varies by 1.5 times its average near lag 0 (seen: 7.1)."""

KOLMOGOROV = 2.7
"""Limit of sqrt(n) D: exceeded once in a million."""

LONGEST_COMPARED = 2**14
"""How many samples of each residual are compared with all others, at all lags."""

DB_OF_POWER = 10 / math.log(10)


@dataclass(frozen=True)
class Finding:
    """The outcome of one test."""

    what: str
    error: float
    limit: float
    unit: str

    @property
    def passed(self) -> bool:
        """Whether the error is a number within the limit."""
        return self.error <= self.limit

    @property
    def strain(self) -> float:
        """The error as a share of the limit."""
        if self.error == 0:
            return 0.0
        return self.error / self.limit if self.limit and not math.isnan(self.error) else math.inf


def compare(
    dry: Clips,
    reference: Clips,
    built: Clips,
    tolerance_db: float,
    intended: Sequence[float | None] | None = None,
    again: Clips | None = None,
    coloured: bool = False,
) -> Finding:
    """Test the noise of a build against the reference's. See ``contracts.check`` for the arguments.

    Returns the level test that comes closest to its limit if all passes, else the failure that is farthest beyond.
    """
    expected, got = ([b.astype(np.float64) - a for a, b in zip(dry, after)] for after in (reference, built))
    parts = [[_joined(clip) for clip in clips] if coloured else clips for clips in (expected, got)]
    levels = list(_levels(parts[0], parts[1], tolerance_db, intended))
    noisy = [row for row, clip in enumerate(expected) if clip.any() and got[row].any()]
    others = list[Finding]()
    if noisy and coloured:
        others = list(_unrelated(got, dry, again, noisy))
    elif noisy:
        white = [_unit(channel) for row in noisy for channel in got[row]]
        others += [*_bands(white, [_unit(channel) for row in noisy for channel in expected[row]])]
        others += [*_whiteness(white), *_gaussian(white), *_independence(white)]
        others += [_apart("the signal", white, [channel for row in noisy for channel in dry[row]])]
        if again is not None:
            fresh = [channel for row in noisy for channel in again[row].astype(np.float64) - dry[row]]
            others += [_apart("the noise of other draws", white, fresh)]
    failed = [finding for finding in levels + others if not finding.passed]
    return max(failed or levels, key=lambda finding: finding.strain, default=Finding("", 0.0, tolerance_db, "dB"))


def _joined(x_CT: Floats) -> Floats:
    """Return all channels as one: coloured noise is scaled as a whole, and each channel's share is left to chance."""
    return x_CT.reshape(1, -1)


def _unit(x_T: Floats) -> Floats:
    """Scale to a root mean square of 1; silence stays."""
    rms = math.sqrt(float(np.mean(np.square(x_T))))
    return x_T / rms if rms else x_T


def _levels(
    expected: list[Floats], got: list[Floats], tolerance_db: float, intended: Sequence[float | None] | None
) -> Iterator[Finding]:
    """Test each clip's and channel's level against the reference's, measured and asked for; then all together."""
    power, count = 0.0, 0
    for row, (before, after) in enumerate(zip(expected, got)):
        if not before.any():
            loudest = float(np.abs(after).max(initial=0.0))
            if loudest:
                yield Finding(f"clip {row} has noise where the reference adds none", math.inf, 0.0, "dB")
            continue
        wanted = None if intended is None else intended[row]
        limit = tolerance_db + _level_margin(before.shape[1])
        for channel in range(len(before)):
            name = f"the noise level of clip {row}" + f" channel {channel}" * (len(before) > 1)
            level, measured = (float(np.mean(np.square(part[channel]))) for part in (after, before))
            yield Finding(f"{name} is off the reference's", _db_apart(level, measured), limit, "dB")
            if wanted is not None:
                yield Finding(f"{name} is off what was drawn", _db_apart(level, wanted**2), limit, "dB")
                yield Finding(f"{name} of the reference is off", _db_apart(measured, wanted**2), limit, "dB")
        scale = wanted**2 if wanted else float(np.mean(np.square(before)))
        power, count = power + float(np.square(after).sum()) / scale, count + after.size
    if count:
        limit = tolerance_db + _level_margin(count)
        yield Finding("the noise level of all clips together is off", _db_apart(power, count), limit, "dB")


def _level_margin(samples: int) -> float:
    """Return the statistical error, in dB, that fewer samples than the tolerance is meant for add to it.

    A mean square of n normal numbers has a relative standard deviation of sqrt(2 / n); two of them are compared.
    """
    return LEVEL_SIGMA * DB_OF_POWER * 2 * max(0.0, 1 / math.sqrt(samples) - 1 / math.sqrt(LEVEL_SAMPLES))


def _db_apart(power: float, other: float) -> float:
    if power > 0 and other > 0:
        return abs(10 * math.log10(power / other))
    return 0.0 if power == other else math.inf


def _bands(white: list[Floats], expected: list[Floats]) -> Iterator[Finding]:
    """Test octave bands, clip by clip against a flat spectrum, and all clips together against the reference's.

    A band of m bins has a standard deviation of 4.34 / sqrt(m) dB; only bands of at least 32 bins are tested.
    """
    ours, theirs = [_octaves(x_T) for x_T in white], [_octaves(x_T) for x_T in expected]
    for place, octaves in enumerate(ours):
        for octave, (mean, bins) in enumerate(octaves):
            limit = BAND_DB + BAND_SIGMA * DB_OF_POWER * bins**-0.5
            yield Finding(f"octave {octave} of residual {place} is not flat", _db_apart(mean, 1.0), limit, "dB")
    for octave in range(max(len(octaves) for octaves in ours)):
        pairs = [(a[octave], b[octave][0]) for a, b in zip(ours, theirs) if octave < len(a)]
        bins = sum(size for (_, size), _ in pairs)
        mine, other = (sum(power) / bins for power in zip(*((mean * m, ref * m) for (mean, m), ref in pairs)))
        limit = BAND_DB + BAND_SIGMA * DB_OF_POWER * (2 / bins) ** 0.5
        yield Finding(f"octave {octave} of all clips is off the reference's", _db_apart(mine, other), limit, "dB")


def _octaves(x_T: Floats) -> list[tuple[float, int]]:
    """Return the mean power (1 if white) and the number of bins of each octave, from the top down."""
    power = np.square(np.abs(scipy.fft.rfft(x_T))) / max(1, len(x_T))
    octaves, top = [], len(power)
    while top - top // 2 >= FEWEST_BINS:
        octaves.append((float(power[top // 2 : top].mean()), top - top // 2))
        top //= 2
    return octaves


def _whiteness(white: list[Floats]) -> Iterator[Finding]:
    """Test autocorrelation: at every lag of each residual, and at lags 1 to 32 of all together.

    Standardised by the square root of the length, a lag is normal with standard deviation 1 at most.
    """
    small, count = np.zeros(SMALL_LAGS), 0
    for place, x_T in enumerate(white):
        spectrum = scipy.fft.rfft(x_T.astype(np.float32), _even_length(2 * len(x_T)))
        lags = scipy.fft.irfft(np.square(np.abs(spectrum)))[1 : len(x_T)]
        error = float(np.abs(lags).max(initial=0.0)) / len(x_T) ** 0.5
        yield Finding(f"residual {place} resembles itself at a later time", error, LAG_SIGMA, "sigma")
        if len(lags) >= SMALL_LAGS:
            small, count = small + lags[:SMALL_LAGS], count + len(x_T)
    if count:
        yield Finding("the noise is not white", float(np.abs(small).max()) / count**0.5, SHAPE_SIGMA, "sigma")


def _gaussian(white: list[Floats]) -> Iterator[Finding]:
    """Test the distribution of all samples: skewness, kurtosis, and the largest distance to the normal one."""
    every = np.sort(np.concatenate(white))
    n = len(every)
    yield Finding("the noise is skewed", abs(float(np.mean(every**3))) / (6 / n) ** 0.5, SHAPE_SIGMA, "sigma")
    kurtosis = abs(float(np.mean(every**4)) - 3) / (24 / n) ** 0.5
    yield Finding("the noise has another kurtosis than normal noise", kurtosis, SHAPE_SIGMA, "sigma")
    normal, steps = scipy.special.ndtr(every), np.arange(n + 1) / n
    distance = float(max(np.abs(normal - steps[1:]).max(), np.abs(normal - steps[:-1]).max())) * n**0.5
    yield Finding("the noise is not normally distributed", distance, KOLMOGOROV, "sqrt(n) D")


def _independence(white: list[Floats]) -> Iterator[Finding]:
    """Test each residual against all others (channels of one clip and other clips) at all lags.

    Two hundred pairs at 32767 lags each: a false alarm at 7 standard deviations is expected once in 50,000 batches.
    """
    spectra = _spectra(white)
    for place in range(1, len(white)):
        error = _largest_correlation(
            spectra[place], spectra[:place], len(white[place]), [len(x) for x in white[:place]]
        )
        yield Finding(f"residual {place} resembles an earlier one", error, LAG_SIGMA, "sigma")


def _apart(what: str, white: list[Floats], others: list[Floats]) -> Finding:
    """Test each residual against its own partner at all lags; ``others`` may be silent."""
    ours = _spectra(white)
    theirs = _spectra([_unit(x_T[:LONGEST_COMPARED].astype(np.float64)) for x_T in others])
    error = max(_largest_correlation(a, b[None], len(x), [len(x)]) for a, b, x in zip(ours, theirs, white))
    return Finding(f"the noise resembles {what}", error, LAG_SIGMA, "sigma")


def _unrelated(got: list[Floats], dry: Clips, again: Clips | None, noisy: list[int]) -> Iterator[Finding]:
    """Test residuals of any colour for likeness at any lag: to others, to themselves, to the signal, to other draws."""
    ours = [channel for row in noisy for channel in got[row]]
    for place, x_T in enumerate(ours):
        error = max((_phase_correlation(x_T, other) for other in ours[:place]), default=0.0)
        yield Finding(f"residual {place} resembles an earlier one", error, PHASE_SIGMA, "sigma")
        error = _phase_correlation(x_T[: len(x_T) // 2], x_T[len(x_T) // 2 :])
        yield Finding(f"residual {place} resembles itself at a later time", error, PHASE_SIGMA, "sigma")
    fresh = None if again is None else [after.astype(np.float64) - before for before, after in zip(dry, again)]
    for what, clips in (("the signal", dry), ("the noise of other draws", fresh)):
        if clips is not None:
            theirs = [channel for row in noisy for channel in clips[row]]
            error = max(_phase_correlation(a, b) for a, b in zip(ours, theirs))
            yield Finding(f"the noise resembles {what}", error, PHASE_SIGMA, "sigma")


def _phase_correlation(one_T: NDArray[np.floating[Any]], other_T: NDArray[np.floating[Any]]) -> float:
    """Return the largest correlation of the phases alone, in standard deviations: those of any noise are unrelated.

    Reference: the generalised cross-correlation with phase transform (Knapp and Carter, 1976).
    """
    n = min(LONGEST_COMPARED, len(one_T), len(other_T))
    if n < SMALL_LAGS:
        return 0.0
    taper_T = scipy.signal.windows.tukey(n, 0.2)  # or both would resemble each other in how abruptly they end
    one_F, other_F = (scipy.fft.rfft(taper_T * x_T[:n], _even_length(2 * n)) for x_T in (one_T, other_T))
    product_F = one_F * other_F.conj()
    magnitude_F = np.abs(product_F)
    lags = scipy.fft.irfft(np.divide(product_F, magnitude_F, out=np.zeros_like(product_F), where=magnitude_F > 0))
    scale = math.sqrt(float(np.mean(np.square(lags))))
    return float(np.abs(lags).max()) / scale if scale else 0.0


def _spectra(signals: list[Floats]) -> NDArray[np.complex64]:
    """Return the zero-padded spectra of the starts of all signals, (S, F)."""
    n = _even_length(2 * min(LONGEST_COMPARED, max(len(x_T) for x_T in signals)))
    return np.stack([scipy.fft.rfft(x_T[:LONGEST_COMPARED].astype(np.float32), n) for x_T in signals])


def _even_length(at_least: int) -> int:
    return 2 * int(scipy.fft.next_fast_len(-(-at_least // 2), real=True))


def _largest_correlation(
    one_F: NDArray[np.complex64], others_SF: NDArray[np.complex64], length: int, lengths: list[int]
) -> float:
    """Return the largest cross-correlation at any lag, in standard deviations of what independent noise gives."""
    lags = np.abs(scipy.fft.irfft(one_F * others_SF.conj(), axis=-1)).max(axis=-1)
    terms = np.minimum(LONGEST_COMPARED, np.minimum(length, lengths))
    return float((lags / np.sqrt(terms)).max())
