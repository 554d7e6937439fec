"""Comparing sounds that need not agree in a single sample, only to the ear.

Time stretching and pitch shifting have no one right answer: two good methods differ in every sample and sound the same.
Here the reference and the build are compared clip by clip by what is heard: level, spectrum over time, timing, attacks,
pitch and stereo image. ``Contract.perceptual`` says in words what is promised; the limits are below. Nothing is random,
so there are no false alarms: a build that passes once passes always.

The limits lie above all that our builds show, and about at the median of what the two references that audiomentations
has show against each other. With default arguments, at 8, 16 and 44.1 kHz, mono and stereo, clicks,
brief and unheard clips apart:

================  =======  =============  ============  ======================
measure           limit    build: median  build: worst  references: median
================  =======  =============  ============  ======================
level             0.75 dB  0.07 dB        0.5 dB        1.4 dB (worst: 4.3)
spectrum          4.0 dB   1.0 dB         3.7 dB        3.7 dB (worst: 9.6)
timing, one clip  10 ms    0.6 ms         7 ms          7 ms (worst: 40)
timing, typical   2 ms     0.7 ms         1.1 ms        7 ms (worst: 32)
... second half   7 ms     0.7 ms         1.6 ms        14 ms (worst: 26)
attacks           0.4      0.07           0.32          0.37 (worst: 0.71)
pitch             5 cents  0.1 cents      1.4 cents     0.5 cents (worst: 31)
image             0.15     0.00           0.04          0.04 (worst: 0.19)
================  =======  =============  ============  ======================

Timing is known no better than that where envelopes have no edges: so the median of a batch is judged as well. After
random chains of other ops (``make test-slow``) five second halves were 5.9 ms off, and a clip of 0.1 s by 3.4 dB.
Two of 470 such chains exceed the level's limit, which is not explained yet: in one the reference loses 0.6 dB of its
input and the build gains 0.15 dB (seed 57); in the other a clip ends in an attack, of which the reference loses 6 dB
(seed 135), but with 10 ms of silence after it both agree within 0.4 dB.

Shapes: a batch is a sequence of B clips, each (C, T) with its own T; N frames, F frequencies or bands, M milliseconds.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.ndimage
import scipy.signal
from numpy.typing import NDArray

from audioaug.verify.noise import Clips, Finding, Floats

LEVEL_DB, LAG_MS, ATTACK_SHARE, PITCH_CENTS, IMAGE = 0.75, 10.0, 0.4, 5.0, 0.15
"""Limits for each clip; the spectrum's is the contract's."""

ROUGH_LEVEL_DB, ROUGH_SPECTRUM, ROUGH_IMAGE, UNHEARD_LEVEL_DB = 4.0, 2.0, 0.3, 6.0
"""Limits for clicks and for brief clips, the spectrum's as a multiple; and for inaudible signals."""

TYPICAL_LAG_MS, TYPICAL_LATER_LAG_MS = 2.0, 7.0
"""Limits for the median of all clips, and of all second halves: an envelope without edges says little about timing."""

BRIEF_SECONDS = 0.25
AUDIBLE_HZ = 30.0
BAND_FRAME_SECONDS, BANDS, FLOOR = 0.05, 24, 1e-4
ENVELOPE_MS, LARGEST_LAG_MS, FEWEST_SWING, FEWEST_ENERGY = 8.0, 40, 0.25, 0.1
ATTACK_PART, ATTACK_MS = 0.02, 5
"""A millisecond with more than this share of a clip's energy is an attack, which reaches so far."""

LOWEST_HZ, HIGHEST_HZ, STEP_CENTS, LARGEST_STEPS, FORMANT_CENTS = 80.0, 4000.0, 4.0, 20, 60.0
PITCH_FRAME_SECONDS, VOICE_FRAME_SECONDS, VOICED = 0.1, 0.06, 0.75


def compare(reference: Clips, built: Clips, spectrum_db: float, sample_rate: int) -> Finding:
    """Return what is closest to its limit if all is within limits, else what is farthest beyond."""
    pairs = [(before.astype(np.float64), after.astype(np.float64)) for before, after in zip(reference, built)]
    findings = [Finding("", 0.0, spectrum_db, "dB"), *_timing(pairs, sample_rate)]
    for row, (before, after) in enumerate(pairs):
        findings += judge_clip(f"clip {row}", before, after, spectrum_db, sample_rate)
    return max(findings, key=lambda finding: finding.strain)


def judge_clip(name: str, expected: Floats, got: Floats, spectrum_db: float, sample_rate: int) -> Iterator[Finding]:
    """Yield every finding on one clip but for its timing, (C, T) both."""
    if not expected.any():
        yield Finding(f"{name} should be silent", float(np.abs(got).max(initial=0.0)), 0.0, "of full scale")
        return
    if not is_heard(expected, sample_rate):
        yield from _levels(name, expected, got, UNHEARD_LEVEL_DB)
        return
    brief = expected.shape[1] < BRIEF_SECONDS * sample_rate
    struck, still_struck = attack_shares(expected, got, sample_rate)
    rough = brief or struck > 0.5
    yield from _levels(name, expected, got, ROUGH_LEVEL_DB if rough else LEVEL_DB)
    for channel in np.flatnonzero(expected.any(axis=1)):
        what = f"the spectrum of {name} channel {channel} is off the reference's"
        error = spectral_distance(expected[channel], got[channel], sample_rate)
        yield Finding(what, error, spectrum_db * (ROUGH_SPECTRUM if rough else 1.0), "dB")
    if rough and not brief:
        yield Finding(f"attacks of {name} are smeared", max(0.0, struck - still_struck), ATTACK_SHARE, "of energy")
    if not rough and voiced_share(expected, sample_rate) > 0.5:
        yield Finding(f"the pitch of {name} is off", abs(cents(expected, got, sample_rate)), PITCH_CENTS, "cents")
    if len(expected) > 1:
        error = image_distance(expected, got, sample_rate)
        yield Finding(f"the stereo image of {name} is off", error, ROUGH_IMAGE if rough else IMAGE, "of correlation")


def _levels(name: str, expected: Floats, got: Floats, limit: float) -> Iterator[Finding]:
    for channel, (before, after) in enumerate(zip(expected, got)):
        powers = float(np.square(before).sum()), float(np.square(after).sum())
        if min(powers) > 0:
            error = abs(10 * math.log10(powers[1] / powers[0]))
        else:
            error = 0.0 if powers[0] == powers[1] else math.inf
        yield Finding(f"the level of {name} channel {channel} is off the reference's", error, limit, "dB")


def is_heard(x_CT: Floats, sample_rate: int) -> bool:
    """Return whether most of the energy is at frequencies that can be heard."""
    power = np.square(np.abs(np.fft.rfft(x_CT))).sum(0)
    return bool(power[math.ceil(AUDIBLE_HZ * x_CT.shape[1] / sample_rate) :].sum() > 0.5 * power.sum())


def _framed(x_T: Floats, size: int, hop: int, n: int | None = None) -> NDArray[np.complex128]:
    """Return spectra under a Hann window, (N, F)."""
    padded = np.pad(x_T, (size // 2, size))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(x_T) + 1 : hop]
    return np.fft.rfft(windows * scipy.signal.windows.hann(size, sym=False), n)


def _in_bands(power_NF: NDArray[np.number], size: int, sample_rate: int) -> NDArray[np.number]:
    """Add up frequencies in bands that are evenly spaced on the mel scale, (N, bands)."""
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 1) / 2595) - 1)
    place = np.digitize(np.arange(power_NF.shape[1]) * sample_rate / size, edges[1:-1])
    return np.stack([power_NF[:, place == band].sum(1) for band in np.unique(place)], axis=1)


def spectral_distance(expected: Floats, got: Floats, sample_rate: int) -> float:
    """Return the root mean square difference, in dB, of band powers over time; of all within 40 dB of the loudest."""
    size = int(BAND_FRAME_SECONDS * sample_rate)
    before, after = (
        _in_bands(np.square(np.abs(_framed(x_T, size, size // 4))), size, sample_rate) for x_T in (expected, got)
    )
    floor = FLOOR * before.max()
    apart = 10 * np.log10((after + floor) / (before + floor))
    return float(np.sqrt(np.mean(np.square(apart[np.maximum(before, after) > floor]))))


def _energies(x_CT: Floats, sample_rate: int) -> Floats:
    """Return the energy of each millisecond, (M,)."""
    starts = np.arange(0, x_CT.shape[1], sample_rate / 1000).astype(np.int64)
    return np.add.reduceat(np.square(x_CT).sum(0), starts)


def _timing(pairs: Sequence[tuple[Floats, Floats]], sample_rate: int) -> Iterator[Finding]:
    """Yield how early or late each clip is, and all clips and all second halves typically."""
    lags, later = list[float](), list[float]()
    for row, (expected, got) in enumerate(pairs):
        if not expected.any() or not is_heard(expected, sample_rate):
            continue
        if (lag := lag_ms(expected, got, sample_rate)) is not None:
            yield Finding(f"clip {row} is early or late", abs(lag), LAG_MS, "ms")
            lags.append(abs(lag))
        half = slice(expected.shape[1] // 2, None)
        enough = np.square(expected[:, half]).sum() > FEWEST_ENERGY * np.square(expected).sum()
        if enough and (lag := lag_ms(expected[:, half], got[:, half], sample_rate)) is not None:
            later.append(abs(lag))
    for what, found, limit in (("clips", lags, TYPICAL_LAG_MS), ("second halves", later, TYPICAL_LATER_LAG_MS)):
        if found:
            yield Finding(f"most {what} are early or late", float(np.median(found)), limit, "ms")


def lag_ms(expected: Floats, got: Floats, sample_rate: int) -> float | None:
    """Return how much later the built clip's envelope is, in ms, by least squares; up to 40 ms.

    ``None`` where the reference's envelope hardly changes, or is too short to be shifted.
    """
    before, after = (
        np.sqrt(scipy.ndimage.gaussian_filter1d(_energies(x_CT, sample_rate), ENVELOPE_MS, mode="nearest"))
        for x_CT in (expected, got)
    )
    inner = len(before) - 2 * LARGEST_LAG_MS
    if before.std() <= FEWEST_SWING * before.mean() or inner < 2 * LARGEST_LAG_MS:
        return None
    before, after = before - before.mean(), after - after.mean()
    wanted = before[LARGEST_LAG_MS:][:inner]
    fit = [-np.square(after[lag:][:inner] - wanted).sum() for lag in range(2 * LARGEST_LAG_MS + 1)]
    return _peak(np.asarray(fit)) - LARGEST_LAG_MS


def _peak(values: Floats) -> float:
    """Return where the largest value is, between places by a parabola."""
    at = int(np.argmax(values))
    if not 0 < at < len(values) - 1:
        return float(at)
    before, here, after = values[at - 1 : at + 2]
    bend = before - 2 * here + after
    return float(at + (0.5 * (before - after) / bend if bend else 0.0))


def attack_shares(expected: Floats, got: Floats, sample_rate: int) -> tuple[float, float]:
    """Return which share of the energy of either is close to the reference's attacks."""
    before, after = (_energies(x_CT, sample_rate) for x_CT in (expected, got))
    near = scipy.ndimage.binary_dilation(before > ATTACK_PART * before.sum(), iterations=ATTACK_MS)
    if near.mean() > 0.25:  # a clip so short that all of it is near
        return 0.0, 0.0
    return float(before[near].sum() / before.sum()), float(after[near].sum() / max(after.sum(), 1e-300))


def voiced_share(x_CT: Floats, sample_rate: int) -> float:
    """Return in which share of the frames, weighted by energy, the sound repeats itself every 2.5 to 14 ms."""
    size = int(VOICE_FRAME_SECONDS * sample_rate)
    x_T = np.pad(x_CT[0], (0, size))
    frames = np.lib.stride_tricks.sliding_window_view(x_T, size)[: x_CT.shape[1] : size // 2]
    frames = frames - frames.mean(1, keepdims=True)
    lags = np.fft.irfft(np.square(np.abs(np.fft.rfft(frames, 2 * size))))[:, :size]
    lags = lags * (size / (size - np.arange(size)))
    best = lags[:, int(0.0025 * sample_rate) : int(0.014 * sample_rate)].max(1)
    power = lags[:, 0]
    return float(power[best > VOICED * power].sum() / max(power.sum(), 1e-300))


def cents(expected: Floats, got: Floats, sample_rate: int) -> float:
    """Return how much higher the built clip's partials are than the reference's, in cents.

    Spectra on a logarithmic axis, without their broad shape (formants), are shifted until they fit best, all frames
    and channels together. Up to 80 cents; more comes out as something else, but not as less than 5.
    """
    size = int(PITCH_FRAME_SECONDS * sample_rate)
    n = 8 * size
    octaves = math.log2(min(HIGHEST_HZ, 0.4 * sample_rate) / LOWEST_HZ)
    place = LOWEST_HZ * 2 ** np.arange(0, octaves, STEP_CENTS / 1200) * n / sample_rate
    low, part = place.astype(np.int64), place % 1
    tables = []
    for x_CT in (expected, got):
        size_NF = np.concatenate([np.sqrt(np.abs(_framed(x_T, size, size // 2, n))) for x_T in x_CT])
        table = size_NF[:, low] * (1 - part) + size_NF[:, low + 1] * part
        tables.append(table - scipy.ndimage.gaussian_filter1d(table, FORMANT_CENTS / STEP_CENTS, axis=1))
    before, after = tables[0][:, LARGEST_STEPS:-LARGEST_STEPS], tables[1]
    width = before.shape[1]
    fit = [float((before * after[:, step : step + width]).sum()) for step in range(2 * LARGEST_STEPS + 1)]
    return (_peak(np.asarray(fit)) - LARGEST_STEPS) * STEP_CENTS


def image_distance(expected: Floats, got: Floats, sample_rate: int) -> float:
    """Return how far the correlations of the first channel with the others are apart, over bands weighted by power."""
    size, errors = int(BAND_FRAME_SECONDS * sample_rate), [0.0]
    for channel in range(1, len(expected)):
        found, weight = [], np.zeros(1)
        for x_CT in (expected, got):
            one, other = (_framed(x_CT[c], size, size // 4) for c in (0, channel))
            cross, *power = (
                _in_bands(part, size, sample_rate).sum(0)
                for part in (one * other.conj(), np.square(np.abs(one)), np.square(np.abs(other)))
            )
            both = np.sqrt(power[0] * power[1])
            found.append(cross / np.maximum(both, 1e-300))
            weight = both if len(found) == 1 else weight
        errors.append(float((np.abs(found[1] - found[0]) * weight).sum() / max(weight.sum(), 1e-300)))
    return max(errors)
