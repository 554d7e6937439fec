"""Contract and capabilities: how equal an op's builds are, and what an op does and needs besides changing samples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from audioaug.core.params import Params

NumpyDraws = Callable[[Any, Params, tuple[int, ...]], dict[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class Contract:
    """How equal the batched face is to the reference, as a promise that ``audioaug.verify`` can check.

    ``kind`` is ``"exact"`` (sample for sample after replay, error at most ``tolerance`` times the larger peak of input
    and reference), ``"statistical"`` (the added noise differs; level within ``tolerance`` dB, spectrum, whiteness and
    independence are checked) or ``"cpu_only"`` (there is no device build, for ``reason``). Noise that is not white is
    compared sample for sample too, up to ``noise_tolerance`` times the peak, with a reference that draws the same
    random numbers (``numpy_draws``): that settles spectrum and level. ``"spectral"`` is exact except next to the
    Nyquist frequency of the lower rate, before and after (from ``band`` to ``2 - band`` times it), and there within
    ``band_tolerance``. ``"log_spectrum"``, for features in dB, is equal within ``tolerance`` dB down to ``down_to_db``
    below the loudest of a frame. ``"perceptual"`` is equal to the ear only: spectrum within ``tolerance`` dB, and
    level, timing, attacks, pitch and stereo image within what ``perceptual`` says.
    """

    kind: Literal["exact", "spectral", "log_spectrum", "perceptual", "statistical", "cpu_only"]
    tolerance: float = 0.0
    reason: str = ""
    noise_tolerance: float = 0.0
    numpy_draws: "NumpyDraws | None" = None
    band: float = 1.0
    band_tolerance: float = 0.0
    down_to_db: float = 0.0

    @classmethod
    def exact(cls, rtol: float) -> "Contract":
        """Promise equality sample for sample, up to ``rtol`` times the peak."""
        return cls("exact", rtol)

    @classmethod
    def spectral(cls, rtol: float, band: float, band_rtol: float) -> "Contract":
        """Promise for resampled audio: equal sample for sample up to ``rtol`` times the peak, except for a band.

        It reaches from ``band`` to ``2 - band`` times the lower Nyquist frequency; with it, up to ``band_rtol`` times
        the peak.
        """
        return cls("spectral", rtol, band=band, band_tolerance=band_rtol)

    @classmethod
    def log_spectrum(cls, db: float, down_to_db: float) -> "Contract":
        """Promise for features in dB: equal within ``db``, down to ``down_to_db`` below the loudest of their frame.

        What is below that is mostly rounding: it may have any value, but none above.
        """
        return cls("log_spectrum", db, down_to_db=down_to_db)

    @classmethod
    def perceptual(cls, spectrum_db: float) -> "Contract":
        """Promise for stretched or shifted audio: every sample may differ, but what is heard may not.

        Promised for rates from 0.7 to 1.4 and shifts up to 5 semitones: beyond, references differ from themselves.

        * The duration is exact, to the sample, and silence stays silence.
        * Level: within 0.75 dB, each clip and channel.
        * Spectrum: 24 bands, evenly spaced in mels, over 50 ms, differ by up to ``spectrum_db`` (root mean square over
          all that lie within 40 dB of the loudest).
        * Timing: each clip is in place within 10 ms (an envelope without edges allows no better), half of
          them within 2 ms, and half of their second halves within 7 ms.
        * Attacks: where most energy lies within 5 ms of attacks, no more than 0.4 of it is smeared away.
        * Pitch: within 5 cents, where most of the sound has one.
        * Image: correlations between channels, band by band, within 0.15.

        Clips under a quarter of a second, which are a few frames, and clicks, which overlap in one, have 4 dB, twice
        ``spectrum_db``, an image within 0.3 and no pitch. For an inaudible signal (a constant) only the level is
        promised, within 6 dB. For noise, only level and spectrum are: it has neither edges nor pitch.
        """
        return cls("perceptual", spectrum_db)

    @classmethod
    def statistical(
        cls, level_db: float, noise_rtol: float = 0.0, numpy_draws: "NumpyDraws | None" = None
    ) -> "Contract":
        """Promise noise of the same level (within ``level_db`` for a second at 16 kHz), spectrum and independence.

        With ``numpy_draws``, which returns what numpy's random functions must return, by name, for the reference to
        add the same noise: equality sample for sample, too, up to ``noise_rtol`` times the peak. Its arguments are the
        op, one clip's parameters, and the clip's shape, (T,) or (C, T).
        """
        return cls("statistical", level_db, noise_tolerance=noise_rtol, numpy_draws=numpy_draws)

    @classmethod
    def cpu_only(cls, reason: str) -> "Contract":
        """Promise nothing on the device, for a reason."""
        return cls("cpu_only", reason=reason)


@dataclass(frozen=True)
class Capabilities:
    """What an op needs and does, for everything that decides by it: builds, cuts, labels, checks.

    Args:
        multichannel: takes clips of several channels.
        keeps_silence: what is 0 stays 0, so that nothing past the ends of clips has to be silenced afterwards.
        needs_length: ``resolve`` needs the clips' lengths, not only an upper bound of them.
        changes_length: clips may come out longer or shorter; then ``param_types`` declares ``LENGTHS``.
        length_depends_on_audio: the new lengths depend on the audio itself, which are never longer than before;
            then ``measure`` returns the lengths, and ``param_types`` declares ``MEASURED_LENGTHS``.
        changes_timing: moves, time-stretches, cuts, repeats or lengthens a clip; then ``timeline`` says where.
        mixes_examples: mixes examples of a batch, so that no worker can run it; then ``mixing`` says which.
        linear: may be fused with neighbours that are linear too; then ``linear`` returns its factor and filters.
        library: where the reference comes from.
    """

    multichannel: bool = True
    keeps_silence: bool = False
    needs_length: bool = False
    changes_length: bool = False
    length_depends_on_audio: bool = False
    changes_timing: bool = False
    mixes_examples: bool = False
    linear: bool = False
    library: str = "audiomentations"

    @classmethod
    def of_all(cls, some: "Iterable[Capabilities]") -> "Capabilities":
        """Return the capabilities of ops that run one after the other, or one of which runs."""
        every = list(some)
        return cls(
            multichannel=all(each.multichannel for each in every),
            keeps_silence=all(each.keeps_silence for each in every),
            needs_length=any(each.needs_length for each in every),
            changes_length=any(each.changes_length for each in every),
            length_depends_on_audio=any(each.length_depends_on_audio for each in every),
            changes_timing=any(each.changes_timing for each in every),
            mixes_examples=any(each.mixes_examples for each in every),
        )
