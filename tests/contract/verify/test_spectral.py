"""The spectral checker must reject planted faults of a resampler, and accept another excellent one."""

from collections.abc import Callable

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from audioaug import ops
from audioaug.core import Contract
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay, verify_op

RATE = 16000
CONTRACT = ops.Resample.contract
Clip = NDArray[np.float32]
Clips = list[Clip]
TARGETS = (9000, 12345, 16001, 37000)


def resampled(clips: Clips, rate: float, quality: str = "HQ") -> Clips:
    return [soxr.resample(clip.T, RATE, rate, quality=quality).T.astype(np.float32) for clip in clips]


def one_changed(row: int, change: Callable[[Clip], Clip]) -> Callable[[Clips, Clips, int], Clips]:
    return lambda dry, wet, rate: [change(clip) if place == row else clip for place, clip in enumerate(wet)]


def moved(clip: Clip, samples: float) -> Clip:
    """Delay by a fraction of a sample, in the frequency domain."""
    spectrum = np.fft.rfft(clip, 2 * clip.shape[1])
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * clip.shape[1]) * samples)
    return np.fft.irfft(spectrum * turn)[:, : clip.shape[1]].astype(np.float32)


def decimated(dry: Clips, wet: Clips, rate: int) -> Clips:
    """Read by straight lines, without a filter: aliases on the way down, images on the way up."""
    return [
        np.stack([np.interp(np.arange(new.shape[1]) * RATE / rate, np.arange(len(x)), x) for x in old]).astype(
            np.float32
        )
        for old, new in zip(dry, wet)
    ]


def another_ratio(dry: Clips, wet: Clips, rate: int) -> Clips:
    return [np.pad(new, ((0, 0), (0, 100)))[:, : old.shape[1]] for old, new in zip(wet, resampled(dry, rate * 1.001))]


def images(dry: Clips, wet: Clips, rate: int) -> Clips:
    """Add a hundredth of a tone next to the highest frequency there is."""
    tone = 0.01 * np.sin(np.pi * 0.85 * np.arange(wet[0].shape[1]))
    return [wet[0] + (tone * np.abs(wet[0]).max()).astype(np.float32), *wet[1:]]


FAULTS: dict[str, Callable[[Clips, Clips, int], Clips]] = {
    "gain off by 0.1 dB": one_changed(1, lambda clip: clip * np.float32(10 ** (0.1 / 20))),
    "gain off by 0.01 dB": one_changed(1, lambda clip: clip * np.float32(10 ** (0.01 / 20))),
    "half a sample late": one_changed(0, lambda clip: moved(clip, 0.5)),
    "a hundredth of a sample late": one_changed(0, lambda clip: moved(clip, 0.01)),
    "polarity of the quiet channel": one_changed(1, lambda clip: clip * np.float32([[1], [-1]])),
    "channels swapped": one_changed(1, lambda clip: clip[::-1]),
    "rows swapped": lambda dry, wet, rate: [wet[1], wet[0], *wet[2:]],
    "time reversed": one_changed(0, lambda clip: clip[:, ::-1]),
    "tail cut": one_changed(2, lambda clip: clip[:, :-1]),
    "tail silent": one_changed(2, lambda clip: np.pad(clip[:, :-500], ((0, 0), (0, 500)))),
    "a sample longer": one_changed(2, lambda clip: np.pad(clip, ((0, 0), (0, 1)))),
    "no filter": decimated,
    "ratio off by 0.1 %": another_ratio,
    "low quality": lambda dry, wet, rate: resampled(dry, rate, "LQ"),
    "images": images,
    "not resampled": lambda dry, wet, rate: [
        np.pad(old, ((0, 0), (0, new.shape[1])))[:, : new.shape[1]] for old, new in zip(dry, wet)
    ],
    "NaN": one_changed(0, lambda clip: np.where(np.arange(clip.shape[1]) == 100, np.float32("nan"), clip)),
    "sound in silence": one_changed(3, lambda clip: clip + np.float32(1e-30)),
    "a click in the first samples": one_changed(
        1, lambda clip: clip + (np.arange(clip.shape[1]) == 3) * np.float32(0.5)
    ),
    "noise next to the Nyquist frequency": one_changed(
        0, lambda clip: clip + np.float32(0.06 * np.abs(clip).max()) * (-1) ** np.arange(clip.shape[1])
    ),
    "a clip missing": lambda dry, wet, rate: wet[:-1],
}


def scene() -> Clips:
    """Stereo speech, louder speech, noise and silence of one length: the shapes give nothing away."""
    signals = material.signals(RATE, 2)
    return [signals[place][:, :9000] for place in (0, 2, 7)] + [np.zeros((2, 9000), np.float32)]


@pytest.mark.parametrize("rate", TARGETS)
@pytest.mark.parametrize("fault", FAULTS)
def test_spectral_rejects(fault: str, rate: int) -> None:
    dry = scene()
    reference = resampled(dry, rate)
    verdict = check(CONTRACT, dry, reference, [np.asarray(x, np.float32) for x in FAULTS[fault](dry, reference, rate)])
    assert verdict.status == "failed", (verdict.error, verdict.limit)
    assert verdict.reason and verdict.strain > 1


@pytest.mark.parametrize("rate", TARGETS)
def test_spectral_accepts_another_excellent_resampler_and_rounding(rate: int) -> None:
    dry = scene()
    reference, better = resampled(dry, rate), resampled(dry, rate, "VHQ")
    for built in (reference, [clip * np.float32(1 + 1e-4) for clip in reference], better):
        verdict = check(CONTRACT, dry, reference, built)
        assert (verdict.status, verdict.unit) == ("passed", "of peak"), verdict.reason


def test_the_band_next_to_the_nyquist_frequency_is_where_results_may_differ() -> None:
    dry = scene()
    reference = resampled(dry, 9000)
    time = np.arange(reference[0].shape[1])
    for share, passes in ((0.5, False), (0.85, False), (0.95, True)):
        tone = (0.02 * np.abs(dry[0]).max() * np.sin(np.pi * share * time)).astype(np.float32)
        built = [reference[0] + tone * (time >= 12), *reference[1:]]
        assert (check(CONTRACT, dry, reference, built).status == "passed") is passes, share
    strict = Contract.spectral(rtol=5e-4, band=0.9, band_rtol=1e-2)
    assert check(strict, dry, reference, built).status == "failed"


@pytest.mark.parametrize("fault", ["none", "gain", "late", "rows", "no filter", "length"])
def test_a_fault_planted_in_the_op_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ops.Resample.batched
    faults = {
        "none": lambda self, x, params, clips: honest(self, x, params, clips),
        "gain": lambda self, x, params, clips: honest(self, x, params, clips) * 1.002,
        "late": lambda self, x, params, clips: honest(self, x, params, clips).roll(1, -1),
        "rows": lambda self, x, params, clips: honest(self, x, {**params, "ratio": params["ratio"].roll(1)}, clips),
        "no filter": lambda self, x, params, clips: honest(self, x.abs().sqrt() * x.sign(), params, clips),
        "length": lambda self, x, params, clips: honest(self, x, {**params, "sounding": params["sounding"] + 1}, clips),
    }
    monkeypatch.setattr(ops.Resample, "batched", faults[fault])
    verdict = verify_op(ops.Resample, sample_rates=(RATE,))
    assert (verdict.status == "passed") is (fault == "none"), verdict


def test_the_length_is_librosas_and_soxrs_missing_sample_is_silent() -> None:
    clips = [np.ones((1, samples), np.float32) for samples in range(1, 60)]
    for rate in (8000, 8001, 12345, 22050, 44100):
        op = ops.Resample(min_sample_rate=rate, max_sample_rate=rate, p=1.0)
        dry, reference, built = replay(op, clips, RATE)
        assert [clip.shape for clip in reference] == [clip.shape for clip in built]
        assert check(op.contract, dry, reference, built).status == "passed"
        assert [clip[0, -1] == 0 for clip in reference] == [clip[0, -1] == 0 for clip in built]
