"""The checker of sounds that are equal to the ear only: what it must reject, and what it must not."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import scipy.signal
from numpy.typing import NDArray

from audioaug import ops
from audioaug.core import Chain, Op
from audioaug.verify import material, perceptual
from audioaug.verify.contracts import Verdict, check
from audioaug.verify.replay import on_cpu, on_device, replay, verify_op

RATE = 16000
SPECTRUM_DB = 4.0
Clips = list[NDArray[np.float32]]
Fault = Callable[[NDArray[np.float32]], NDArray[np.float32]]

WORDS, CLICKS, CHORD, VOICE = (0, 1, 2), 4, 8, 9


def clips_of(channels: int) -> Clips:
    return [*material.signals(RATE, channels), *material.tones(RATE, channels)]


def both(op: Op, channels: int = 2) -> tuple[Clips, Clips]:
    _, reference, built = replay(op, clips_of(channels), RATE)
    return list(reference), list(built)


def judged(reference: Clips, built: Clips) -> Verdict:
    return check(ops.TimeStretch.contract, reference, reference, built, sample_rate=RATE)


SLOWER = ops.TimeStretch(min_rate=0.9, max_rate=0.9, p=1.0)
HIGHER = ops.PitchShift(min_semitones=2.0, max_semitones=2.0, p=1.0)


@pytest.fixture(scope="module", params=[SLOWER, HIGHER], ids=["stretched", "shifted"])
def heard(request: pytest.FixtureRequest) -> tuple[Clips, Clips]:
    return both(request.param)


def late(milliseconds: float) -> Fault:
    samples = int(RATE * milliseconds / 1000)
    return lambda clip: np.pad(clip, ((0, 0), (samples, 0)))[:, : clip.shape[1]]


def smeared(milliseconds: float) -> Fault:
    """Spread all energy over some time, and keep its spectrum."""
    rng = np.random.default_rng(0)
    taps = rng.standard_normal(int(RATE * milliseconds / 1000))
    taps /= np.sqrt(np.square(taps).sum())

    def smear(clip: NDArray[np.float32]) -> NDArray[np.float32]:
        wet = scipy.signal.fftconvolve(clip, taps[None], axes=1)[:, len(taps) // 2 :][:, : clip.shape[1]]
        power = np.square(clip).sum(1, keepdims=True) / np.maximum(np.square(wet).sum(1, keepdims=True), 1e-30)
        return (wet * np.sqrt(power)).astype(np.float32)

    return smear


def band_missing(low: float, high: float) -> Fault:
    def cut(clip: NDArray[np.float32]) -> NDArray[np.float32]:
        spectrum = np.fft.rfft(clip)
        place = np.linspace(0, 1, spectrum.shape[1])
        return np.fft.irfft(np.where((place >= low) & (place < high), 0, spectrum), clip.shape[1]).astype(np.float32)

    return cut


def with_nan(clip: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.arange(clip.shape[1]) == 100, np.float32("nan"), clip)


def scaled(*gains_db: float) -> Fault:
    return lambda clip: (clip * 10 ** (np.asarray(gains_db)[:, None] / 20)).astype(np.float32)


LEFT_ONLY, UPSIDE_DOWN = np.float32([[1], [0]]), np.float32([[1], [-1]])
IN_EVERY_CLIP: dict[str, Fault] = {
    "1 dB too loud": scaled(1.0, 1.0),
    "20 ms late": late(20),
    "4 ms late": late(4),
    "smeared by 40 ms": smeared(40),
    "time reversed": lambda clip: clip[:, ::-1],
    "upper half of the band missing": band_missing(0.5, 1.01),
    "upper quarter of the band missing": band_missing(0.75, 1.01),
    "lower half of the band missing": band_missing(0.0, 0.5),
    "one channel silent": lambda clip: clip * LEFT_ONLY,
    "one channel upside down": lambda clip: clip * UPSIDE_DOWN,
    "one channel 1 dB softer": scaled(0.0, -1.0),
    "channels swapped": lambda clip: clip[::-1],
    "both channels equal": lambda clip: clip[[0, 0]],
    "one channel 2 ms late": lambda clip: np.stack([clip[0], late(2)(clip)[1]]),
    "no sound": lambda clip: clip * 0,
    "NaN": with_nan,
    "one sample short": lambda clip: clip[:, :-1],
    "one channel lost": lambda clip: clip[:1],
    "noise at -20 dB": lambda clip: clip + np.float32(0.02) * np.random.default_rng(1).standard_normal(clip.shape),
}
UNHEARD_IN_A_WORD = ("4 ms late", "smeared", "upper")  # it has no edges, no attacks, and little in its upper half
IN_ONE_CLIP = {name: fault for name, fault in IN_EVERY_CLIP.items() if not name.startswith(UNHEARD_IN_A_WORD)}


@pytest.mark.parametrize("fault", IN_EVERY_CLIP)
def test_faults_in_every_clip_are_rejected(heard: tuple[Clips, Clips], fault: str) -> None:
    reference, built = heard
    verdict = judged(reference, [IN_EVERY_CLIP[fault](clip).astype(np.float32) for clip in built])
    assert verdict.status == "failed", fault
    assert verdict.reason and verdict.strain > 1


@pytest.mark.parametrize("fault", IN_ONE_CLIP)
def test_faults_in_one_clip_are_rejected(heard: tuple[Clips, Clips], fault: str) -> None:
    reference, built = heard
    built = [IN_ONE_CLIP[fault](clip).astype(np.float32) if row == 1 else clip for row, clip in enumerate(built)]
    assert judged(reference, built).status == "failed", fault


def test_honest_results_pass(heard: tuple[Clips, Clips]) -> None:
    reference, built = heard
    assert judged(reference, built).status == "passed"
    assert judged(reference, reference).strain < 0.01


def test_attacks_smeared_by_40_ms_are_rejected_for_that(heard: tuple[Clips, Clips]) -> None:
    """On clicks alone, and by the measure that is meant for it."""
    reference, built = ([clips[CLICKS]] for clips in heard)
    assert judged(reference, built).status == "passed"
    before, after = (clip.astype(np.float64) for clip in (reference[0], smeared(40)(built[0])))
    found = {finding.what: finding for finding in perceptual.judge_clip("it", before, after, SPECTRUM_DB, RATE)}
    assert not found["attacks of it are smeared"].passed


@pytest.mark.parametrize("cents", [-10.0, 10.0])
@pytest.mark.parametrize("row", [1, CHORD, VOICE])
def test_ten_cents_are_rejected_for_that(cents: float, row: int) -> None:
    off = dataclasses.replace(HIGHER, min_semitones=2.0 + cents / 100, max_semitones=2.0 + cents / 100)
    before, after = both(HIGHER)[0][row].astype(np.float64), both(off)[1][row].astype(np.float64)
    assert perceptual.cents(before, after, RATE) == pytest.approx(cents, abs=2.5)
    found = list(perceptual.judge_clip("it", before, after, SPECTRUM_DB, RATE))
    assert [finding.what for finding in found if not finding.passed] == ["the pitch of it is off"]


def tremolo(phase: float, late_ms: float = 0.0) -> NDArray[np.float32]:
    """A tone that swells three times a second: spectra hardly differ when it is late, only its envelope."""
    t_T = np.arange(RATE) / RATE - late_ms / 1000
    tone_T = sum(np.sin(2 * np.pi * 200 * k * t_T) / k for k in range(1, 8))
    return np.float32(0.1 * tone_T * (1 + 0.5 * np.sin(2 * np.pi * 3 * t_T + phase)))[None]


@pytest.mark.parametrize("late_ms", [-15.0, 15.0])
def test_one_clip_early_or_late_is_rejected_for_that(late_ms: float) -> None:
    reference = [tremolo(phase) for phase in (0.0, 1.0, 2.0)]
    assert judged(reference, reference).status == "passed"
    verdict = judged(reference, [reference[0], tremolo(1.0, late_ms), reference[2]])
    assert verdict.status == "failed" and verdict.reason.startswith("clip 1 is early or late"), verdict.reason


@pytest.mark.parametrize("rate", [0.9 * 0.99, 0.9 / 0.99])
def test_one_per_cent_of_duration_is_rejected(rate: float) -> None:
    """Where the clip is cropped to the same length, by its timing; else by its length."""
    for unchanged in (True, False):
        right = dataclasses.replace(SLOWER, leave_length_unchanged=unchanged)
        verdict = judged(both(right)[0], both(dataclasses.replace(right, min_rate=rate, max_rate=rate))[1])
        assert verdict.status == "failed"
        assert ("early or late" in verdict.reason) if unchanged else ("has shape" in verdict.reason)


def test_a_dry_signal_is_rejected() -> None:
    for op in (SLOWER, HIGHER, dataclasses.replace(HIGHER, min_semitones=0.1, max_semitones=0.1)):
        assert judged(both(op)[0], clips_of(2)).status == "failed"


def test_rows_swapped_are_rejected(heard: tuple[Clips, Clips]) -> None:
    reference, built = ([clip[:, :9000] for clip in clips[:3]] for clips in heard)
    assert judged(reference, built).status == "passed"
    assert judged(reference, [built[1], built[0], built[2]]).status == "failed"


def test_a_silent_channel_beside_a_sounding_one_passes_only_if_silent_in_both(heard: tuple[Clips, Clips]) -> None:
    reference, built = ([clip * np.float32([[1], [0]]) for clip in clips[:3]] for clips in heard)
    assert judged(reference, built).status == "passed"
    assert judged(reference, [*built[:2], built[2] + np.float32(1e-9)]).status == "failed"


def test_sound_in_silence_is_rejected(heard: tuple[Clips, Clips]) -> None:
    reference, built = heard
    assert judged(reference, [*built[:3], built[3] + np.float32(1e-9), *built[4:]]).status == "failed"


@pytest.mark.parametrize("kind", [ops.TimeStretch, ops.PitchShift])
def test_the_other_method_of_audiomentations_is_rejected_and_farther_off_by_every_measure(kind: type[Op]) -> None:
    """Our distance to the reference is smaller than that of its two methods to each other."""
    clips, good, other = clips_of(2), kind(p=1.0), kind(p=1.0, method="librosa_phase_vocoder")
    chain = Chain([good], RATE)
    draws = chain.draw(np.arange(len(clips)))
    reference, built = on_cpu(chain, clips, RATE, draws), on_device(chain, clips, RATE, draws)
    worse = Chain([other], RATE)
    rival = on_cpu(worse, clips, RATE, worse.draw(np.arange(len(clips))))
    assert judged(reference, rival).status == "failed" and judged(reference, built).strain < 1.2
    ours, theirs = (_medians(reference, results) for results in (built, rival))
    for measure in ("level", "spectrum", "attacks", "image", "typical lag"):
        assert ours[measure] < theirs[measure], measure


def _medians(reference: Clips, built: Clips) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    pairs = [(before.astype(np.float64), after.astype(np.float64)) for before, after in zip(reference, built)]
    for before, after in pairs:
        for finding in perceptual.judge_clip("it", before, after, SPECTRUM_DB, RATE):
            for measure in ("level", "spectrum", "attacks", "image"):
                if measure in finding.what:
                    found.setdefault(measure, []).append(finding.error)
    lags = [perceptual.lag_ms(*pair, RATE) for pair in pairs if pair[0].any()]
    found["typical lag"] = [abs(lag) for lag in lags if lag is not None]
    return {measure: float(np.median(errors)) for measure, errors in found.items()}


class TestMeasures:
    """Each measure finds what was planted, in its unit."""

    def test_lag(self) -> None:
        word = material.signals(RATE)[1].astype(np.float64)
        for milliseconds in (-30, -3, 3, 30):
            moved = np.roll(word, milliseconds * RATE // 1000, axis=1)
            assert perceptual.lag_ms(word, moved, RATE) == pytest.approx(milliseconds, abs=0.1)

    def test_lag_is_not_judged_without_edges(self) -> None:
        chord = material.tones(RATE)[0].astype(np.float64)
        assert perceptual.lag_ms(chord, chord, RATE) is None

    def test_cents(self) -> None:
        t = np.arange(RATE) / RATE
        for cents in (-40.0, -5.0, 5.0, 40.0):
            low, high = (
                sum(np.sin(2 * np.pi * f * k * t) / k for k in range(1, 8))[None]
                for f in (200, 200 * 2 ** (cents / 1200))
            )
            assert perceptual.cents(low, high, RATE) == pytest.approx(cents, abs=0.5)

    def test_spectral_distance_of_a_gain_is_the_gain(self) -> None:
        noise = np.random.default_rng(0).standard_normal(RATE)
        assert perceptual.spectral_distance(noise, 2 * noise, RATE) == pytest.approx(20 * np.log10(2), rel=0.02)

    def test_voiced_frames_are_detected(self) -> None:
        signals = [clip.astype(np.float64) for clip in clips_of(1)]
        voiced = [perceptual.voiced_share(clip, RATE) > 0.5 for clip in signals]
        assert voiced[VOICE] and voiced[CHORD] and any(voiced[row] for row in WORDS)
        assert not voiced[CLICKS] and not voiced[7]

    def test_image(self) -> None:
        noise = np.random.default_rng(0).standard_normal((2, RATE))
        equal = noise[[0, 0]]
        assert perceptual.image_distance(equal, equal, RATE) == 0.0
        assert perceptual.image_distance(equal, equal * UPSIDE_DOWN, RATE) == pytest.approx(2.0)
        assert perceptual.image_distance(equal, noise, RATE) == pytest.approx(1.0, abs=0.2)


class TestVerifyOp:
    """The whole way: a fault in an op's batched face comes out as a failed verdict."""

    def test_a_rate_for_all_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = ops.TimeStretch.batched

        def faulty(self, x, params, clips):  # type: ignore[no-untyped-def]
            return honest(self, x, {**params, "rate": params["rate"][:1].expand(len(x))}, clips)

        monkeypatch.setattr(ops.TimeStretch, "batched", faulty)
        assert verify_op(ops.TimeStretch, sample_rates=(8000,)).status == "failed"

    def test_no_resampling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("audioaug.ops.pitch_shift.resample", lambda x, ratio, samples, lengths: x[..., :samples])
        assert verify_op(ops.PitchShift, sample_rates=(8000,)).status == "failed"
