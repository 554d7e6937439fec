"""Comparing resampled audio: equal at all frequencies but those next to the lower Nyquist frequency.

Two excellent resamplers differ where their band limits fall, and nowhere else. What is judged is the difference of the
two results, sample for sample, so that times, signs, levels and rows all count. Nothing here is random.

Shapes: a batch is a sequence of B clips, each (C, T) with its own T.
"""

import math
from collections.abc import Iterator

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from audioaug.core import Contract
from audioaug.verify.noise import Clips, Finding

START_SAMPLES, START_LIMIT = 12, 0.1
"""soxr, between its stages, forgets what lies before time 0: up to 0.07 of a jump there, gone after this
many samples of the lower rate."""

FADE_SAMPLES = 64
"""The difference is faded in and out, so that its edges do not spread what lies next to the Nyquist frequency over all
frequencies."""


def compare(contract: Contract, dry: Clips, reference: Clips, built: Clips) -> Finding:
    """Test the difference of each clip: its first samples, outside the band, and all of it.

    Returns the test that comes closest to its limit, or fails by the most.
    """
    found = [
        finding for row, clips in enumerate(zip(dry, reference, built)) for finding in _clip(contract, row, *clips)
    ]
    return max(found, key=lambda finding: finding.strain, default=Finding("", 0.0, contract.tolerance, "of peak"))


def _clip(
    contract: Contract, row: int, dry: NDArray[np.float32], expected: NDArray[np.float32], got: NDArray[np.float32]
) -> Iterator[Finding]:
    difference_CT = got.astype(np.float64) - expected
    peak = float(max(np.abs(expected).max(initial=0.0), np.abs(dry).max(initial=0.0)))
    ratio = expected.shape[1] / max(1, dry.shape[1])
    start, fade = (math.ceil(samples * max(1.0, ratio)) for samples in (START_SAMPLES, FADE_SAMPLES))
    later_CT = difference_CT[:, start:]
    inside_T = np.arange(later_CT.shape[1])
    ramp_T = np.minimum(np.minimum(inside_T, inside_T[::-1]) / fade, 1.0)
    faded_CT = later_CT * np.sin(ramp_T * (np.pi / 2)) ** 2
    lower = min(1.0, 1.0 / ratio) if ratio else 1.0  # over the Nyquist frequency afterwards
    edges = (contract.band * lower, (2 - contract.band) * lower)
    for what, part_CT, limit in (
        ("at its start", difference_CT[:, :start], START_LIMIT),
        ("away from the lower Nyquist frequency", _without(faded_CT, *edges), contract.tolerance),
        ("next to the lower Nyquist frequency", later_CT, contract.band_tolerance),
    ):
        error = float(np.abs(part_CT).max(initial=0.0))
        share = 0.0 if error == 0 else error / peak if peak else math.inf
        yield Finding(f"clip {row} is off {what}", share, limit, "of peak")


def _without(x_CT: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Return what lies outside a band, whose edges are shares of the Nyquist frequency; around the clip is silence."""
    n = 2 * int(scipy.fft.next_fast_len(max(1, x_CT.shape[1]), real=True))
    spectrum_CF = scipy.fft.rfft(x_CT, n)
    spectrum_CF[:, int(low * n / 2) + 1 : math.ceil(high * n / 2)] = 0.0
    return np.asarray(scipy.fft.irfft(spectrum_CF, n)[:, : x_CT.shape[1]])
