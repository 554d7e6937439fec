"""Every checker must reject planted faults, and accept what is honest: a check that cannot fail proves nothing."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
from numpy.typing import NDArray

from audioaug import ops
from audioaug.core import Chain, Contract, Params
from audioaug.dsp import dispatch
from audioaug.verify import material
from audioaug.verify.contracts import Verdict, check, check_fresh, worst
from audioaug.verify.replay import Case, judge, padded, replay, trimmed, verify_op

RATE = 16000
EXACT = Contract.exact(rtol=1e-4)
NOISE = Contract.statistical(level_db=0.3)
Clips = list[NDArray[np.float32]]
Batched = Callable[..., Any]


@pytest.fixture(scope="module")
def filtered() -> tuple[Clips, Clips]:
    """Stereo clips of unequal lengths, silence and clicks among them, and what the reference makes of them."""
    dry, reference, _ = replay(ops.LowPassFilter(max_rolloff=12, p=1.0), material.signals(RATE, 2), RATE, seed=3)
    return list(dry), list(reference)


def one_changed(row: int, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Callable[[Clips], Clips]:
    return lambda clips: [change(clip) if place == row else clip for place, clip in enumerate(clips)]


def with_nan(clip: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.arange(clip.shape[1]) == 100, np.float32("nan"), clip)


EXACT_FAULTS: dict[str, Callable[[Clips], Clips]] = {
    "gain off by 0.5 dB": one_changed(1, lambda clip: clip * np.float32(10 ** (0.5 / 20))),
    "gain off by 0.01 dB": one_changed(1, lambda clip: clip * np.float32(10 ** (0.01 / 20))),
    "rows swapped": lambda clips: [clips[1][:, :5000], clips[0][:, :5000]],
    "time reversed": one_changed(0, lambda clip: clip[:, ::-1]),
    "one sample late": one_changed(0, lambda clip: np.roll(clip, 1, axis=1)),
    "tail cut": one_changed(2, lambda clip: clip[:, :-1]),
    "tail silent": one_changed(2, lambda clip: np.pad(clip[:, :-500], ((0, 0), (0, 500)))),
    "polarity flipped on the quiet channel": one_changed(1, lambda clip: clip * np.float32([[1], [-1]])),
    "channels swapped": one_changed(1, lambda clip: clip[::-1]),
    "one channel lost": one_changed(1, lambda clip: clip[:1]),
    "NaN in one clip": one_changed(6, with_nan),
    "infinite in one clip": one_changed(6, lambda clip: np.where(clip == clip.max(), np.float32("inf"), clip)),
    "sound in silence": one_changed(3, lambda clip: clip + np.float32(1e-30)),
    "a clip missing": lambda clips: clips[:-1],
    "twice the first clip": lambda clips: [clips[0], *clips[:-1]],
}


@pytest.mark.parametrize("fault", EXACT_FAULTS)
def test_exact_rejects(filtered: tuple[Clips, Clips], fault: str) -> None:
    dry, reference = filtered
    if fault == "rows swapped":  # of one length, so that the shapes cannot give it away
        dry, reference = ([clip[:, :5000] for clip in clips[:2]] for clips in filtered)
    verdict = check(EXACT, dry, reference, EXACT_FAULTS[fault](reference))
    assert verdict.status == "failed", fault
    assert verdict.reason and verdict.strain > 1


def test_exact_accepts_rounding(filtered: tuple[Clips, Clips]) -> None:
    dry, reference = filtered
    verdict = check(EXACT, dry, reference, [clip * np.float32(1 + 5e-5) for clip in reference])
    assert (verdict.status, verdict.reason) == ("passed", "")
    assert verdict.error == pytest.approx(5e-5, rel=0.1)


def test_exact_error_is_a_share_of_the_larger_peak() -> None:
    loud, quiet = (np.full((1, 9), level, np.float32) for level in (1.0, 1e-3))
    for dry, reference in ((loud, quiet), (quiet, loud)):
        verdict = check(EXACT, [dry], [reference], [reference + np.float32(5e-5)])
        assert verdict.status == "passed" and verdict.error == pytest.approx(5e-5, rel=0.01)


def test_values_that_are_no_numbers_fail_even_on_both_sides(filtered: tuple[Clips, Clips]) -> None:
    dry, reference = filtered
    broken = one_changed(1, with_nan)(reference)
    assert check(EXACT, dry, broken, broken).status == "failed"


def test_exact_rejects_a_filter_of_another_order() -> None:
    clips = material.signals(RATE, 2)
    low, high = (
        replay(ops.LowPassFilter(min_rolloff=order * 6, max_rolloff=order * 6, p=1.0), clips, RATE) for order in (2, 4)
    )
    assert check(EXACT, clips, low.reference, high.built).status == "failed"
    assert check(EXACT, clips, low.reference, low.built).status == "passed"


def test_sound_after_the_end_of_a_clip_fails() -> None:
    clip = np.ones((1, 50), np.float32)
    assert trimmed(np.pad(clip, ((0, 0), (0, 9))), 50).shape == clip.shape
    loud = trimmed(np.pad(clip, ((0, 0), (0, 9)), constant_values=1e-9), 50)
    assert check(EXACT, [clip], [clip], [loud]).status == "failed"


def test_skipped_is_not_passed(filtered: tuple[Clips, Clips]) -> None:
    verdict = check(Contract.cpu_only("no GPU encodes it."), filtered[0], filtered[1], filtered[1])
    assert (verdict.status, verdict.reason) == ("skipped", "no GPU encodes it.")


SNR_DB = np.asarray([10.0, 20.0, 15.0, 25.0])


def noise_like(dry: Clips, rng: np.random.Generator) -> Clips:
    return [rng.standard_normal(clip.shape) for clip in dry]


def honest_noise(dry: Clips) -> list[float]:
    return [float(np.sqrt(np.square(clip).mean(1)).mean() / 10 ** (snr / 20)) for clip, snr in zip(dry, SNR_DB)]


class Scene:
    """Stereo clips with unequal channel levels, the level of noise each is to get, and the reference's result."""

    def __init__(self, seed: int = 0, seconds: float = 1.5) -> None:
        self.rng = np.random.default_rng(seed)
        shift = self.rng.standard_normal((4, 2, int(seconds * RATE))) * [[1.0], [0.2]]
        self.dry: Clips = [
            clip[:, : len(clip[0]) - 700 * row] for row, clip in enumerate(shift.astype(np.float32) * 0.1)
        ]
        self.std = honest_noise(self.dry)
        self.reference = self.add(noise_like(self.dry, self.rng))

    def add(self, noise: Clips) -> Clips:
        return [(clip + part * std).astype(np.float32) for clip, part, std in zip(self.dry, noise, self.std)]

    def check(self, built: Clips, again: Clips | None = None) -> Verdict:
        return check(NOISE, self.dry, self.reference, built, intended=self.std, again=again)


def same_on_every_row(scene: Scene, noise: Clips) -> Clips:
    return [noise[0][:, : part.shape[1]] for part in noise]


def late_copy(scene: Scene, noise: Clips) -> Clips:
    return [noise[0], np.roll(noise[0], 5, axis=1)[:, : noise[1].shape[1]], *noise[2:]]


def repeated_second(scene: Scene, noise: Clips) -> Clips:
    return [np.concatenate([part[:, :RATE], part[:, : part.shape[1] - RATE]], axis=1) for part in noise]


def coloured(scene: Scene, noise: Clips) -> Clips:
    mixed = [part + 0.3 * np.roll(part, 1, axis=1) for part in noise]
    return [part / part.std(axis=1, keepdims=True) for part in mixed]


def level_of_each_channel(scene: Scene, noise: Clips) -> Clips:
    ratio = [np.sqrt(np.square(clip).mean(1, keepdims=True)) for clip in scene.dry]
    return [part * rms / rms.mean() for part, rms in zip(noise, ratio)]


NOISE_FAULTS: dict[str, Callable[[Scene, Clips], Clips]] = {
    "same noise on every row": same_on_every_row,
    "another row's noise, 5 samples late": late_copy,
    "same noise on both channels": lambda scene, noise: [np.stack([part[0], part[0]]) for part in noise],
    "inverted noise on the second channel": lambda scene, noise: [np.stack([part[0], -part[0]]) for part in noise],
    "one clip's noise 1 dB too loud": lambda scene, noise: [noise[0] * 10**0.05, *noise[1:]],
    "one channel's noise 1 dB too soft": lambda scene, noise: [noise[0] * [[1], [10**-0.05]], *noise[1:]],
    "all noise 0.5 dB too loud": lambda scene, noise: [part * 10**0.025 for part in noise],
    "level set for each channel alone": level_of_each_channel,
    "coloured": coloured,
    "one clip coloured": lambda scene, noise: [*noise[:3], coloured(scene, noise)[3]],
    "high octave missing": lambda scene, noise: [
        np.repeat(part[:, ::2], 2, axis=1)[:, : part.shape[1]] for part in noise
    ],
    "one second repeated": repeated_second,
    "uniform": lambda scene, noise: [scene.rng.uniform(-(3**0.5), 3**0.5, part.shape) for part in noise],
    "skewed": lambda scene, noise: [scene.rng.exponential(1.0, part.shape) - 1 for part in noise],
    "two-sided exponential": lambda scene, noise: [scene.rng.laplace(0, 0.5**0.5, part.shape) for part in noise],
    "no noise on one row": lambda scene, noise: [noise[0] * 0, *noise[1:]],
    "no noise on one channel": lambda scene, noise: [noise[0] * [[1], [0]], *noise[1:]],
    "the signal instead of noise": lambda scene, noise: [noise[0], scene.dry[1] / scene.dry[1].std(), *noise[2:]],
    "NaN": lambda scene, noise: [with_nan(noise[0]), *noise[1:]],
    "constant offset": lambda scene, noise: [part + 0.2 for part in noise],
}


@pytest.mark.parametrize("fault", NOISE_FAULTS)
def test_statistical_rejects(fault: str) -> None:
    scene = Scene()
    built = scene.add(NOISE_FAULTS[fault](scene, noise_like(scene.dry, scene.rng)))
    verdict = scene.check(built)
    assert verdict.status == "failed", fault
    assert verdict.reason and verdict.strain > 1


@pytest.mark.parametrize(
    "fault", ["gain off by 0.5 dB", "time reversed", "one sample late", "tail cut", "channels swapped"]
)
def test_statistical_rejects_a_changed_signal(fault: str) -> None:
    scene = Scene()
    built = scene.add(noise_like(scene.dry, scene.rng))
    assert scene.check(built).status == "passed"
    assert scene.check(EXACT_FAULTS[fault](built)).status == "failed"


def test_statistical_rejects_noise_that_other_draws_repeat() -> None:
    scene = Scene()
    built, again = (scene.add(noise_like(scene.dry, scene.rng)) for _ in range(2))
    assert scene.check(built, again).status == "passed"
    assert scene.check(built, [*again[:2], built[2], again[3]]).status == "failed"


def test_statistical_rejects_equal_noise_on_two_clips() -> None:
    rng = np.random.default_rng(0)
    one, other, *noise = (rng.normal(0.0, 0.1, (1, RATE)).astype(np.float32) for _ in range(6))
    dry, reference = [one, other], [one + noise[0], other + noise[1]]
    for second, status in ((noise[3], "passed"), (noise[2], "failed")):
        assert check(NOISE, dry, reference, [one + noise[2], other + second]).status == status


def test_statistical_rejects_noise_on_silence() -> None:
    scene = Scene()
    silence = np.zeros((2, 8000), np.float32)
    dry, reference = [*scene.dry, silence], [*scene.reference, silence]
    built = scene.add(noise_like(scene.dry, scene.rng))
    assert check(NOISE, dry, reference, [*built, silence]).status == "passed"
    assert check(NOISE, dry, reference, [*built, silence + np.float32(1e-9)]).status == "failed"


def test_statistical_rejects_levels_that_are_right_only_for_the_reference() -> None:
    scene = Scene()
    scene.reference = [clip + (wet - clip) * np.float32(1.2) for clip, wet in zip(scene.dry, scene.reference)]
    built = [
        clip + (wet - clip) * np.float32(1.2)
        for clip, wet in zip(scene.dry, scene.add(noise_like(scene.dry, scene.rng)))
    ]
    assert scene.check(built).status == "failed"


@pytest.mark.parametrize("seconds", [0.15, 1.5])
def test_statistical_accepts_honest_noise(seconds: float) -> None:
    """20 scenes of 8 channels; the stated false-alarm rate is below one in a thousand."""
    for seed in range(20):
        scene = Scene(seed, seconds)
        verdict = scene.check(*(scene.add(noise_like(scene.dry, scene.rng)) for _ in range(2)))
        assert verdict.status == "passed", (seed, verdict.reason)
        assert verdict.unit == "dB"


def test_draws_that_repeat_every_epoch_are_rejected() -> None:
    chain = Chain([ops.Gain(), ops.Reverse(p=1.0), ops.AddGaussianSNR(p=0.3)], RATE)
    first, second = (chain.draw(np.arange(256), epoch).table for epoch in (0, 1))
    assert check_fresh(chain.columns, first, second).status == "passed"
    assert check_fresh(chain.columns, first, first).status == "failed"
    for column, name in enumerate(chain.columns):
        stale = second.copy()
        stale[:, column] = first[:, column]
        verdict = check_fresh(chain.columns, first, stale)
        assert (verdict.status == "failed") is (name != "1:apply"), name
        assert name == "1:apply" or name in verdict.reason


def test_the_worst_verdict_is_the_failed_one() -> None:
    passed, close = Verdict("A", "", "exact", 0.0, 1.0), Verdict("B", "", "exact", 0.9, 1.0)
    failed = Verdict("C", "", "exact", 0.1, 0.05, "failed")
    assert worst([passed, close]) is close
    assert worst([passed, failed, close]) is failed


def with_params(change: Callable[[Params], Params]) -> Callable[[Batched], Batched]:
    """A fault in what the op makes of its parameters."""
    return lambda honest: lambda self, x, params, clips: honest(self, x, {**params, **change(params)}, clips)


def with_noise(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Batched], Batched]:
    """A fault in the noise that is added: a function of the noise and the clips."""
    return lambda honest: lambda self, x, params, clips: x + change(honest(self, x, params, clips) - x, x)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(dim=-1, keepdim=True).sqrt()


def one_level_for_each_channel(noise: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return noise / rms(noise).clamp(min=1e-9) * rms(noise).square().mean(dim=1, keepdim=True).sqrt()


COLOUR_FAULTS: dict[str, Callable[[Batched], Batched]] = {
    "one dB an octave steeper": with_params(lambda params: {"f_decay": params["f_decay"] - 1.0}),
    "a tenth of a dB an octave steeper": with_params(lambda params: {"f_decay": params["f_decay"] - 0.1}),
    "the slope the other way round": with_params(lambda params: {"f_decay": -params["f_decay"]}),
    "white": with_params(lambda params: {"f_decay": 0 * params["f_decay"], "weighted": 0 * params["weighted"]}),
    "no A-weighting where it was drawn": with_params(lambda params: {"weighted": 0 * params["weighted"]}),
    "A-weighting where none was drawn": with_params(lambda params: {"weighted": 0 * params["weighted"] + 1}),
    "one dB too loud": with_params(lambda params: {"ratio": params["ratio"] * 10 ** (1 / 20)}),
    "same noise on every row": with_params(lambda params: {"noise_key": 0 * params["noise_key"] + 7}),
    "same noise on both channels": with_noise(lambda noise, x: noise[:, :1].expand_as(noise)),
    "inverted noise on the second channel": with_noise(lambda noise, x: torch.cat([noise[:, :1], -noise[:, :1]], 1)),
    "noise scaled for each channel alone": with_noise(one_level_for_each_channel),
    "each channel's own signal level": with_noise(lambda noise, x: noise * rms(x) / rms(x).mean(1, True).clamp(1e-9)),
    "one sample late": with_noise(lambda noise, x: noise.roll(1, -1)),
    "the last rows' noise for the first": with_noise(lambda noise, x: noise.flip(0)),
    "a tenth of a second repeated": with_noise(
        lambda noise, x: noise[..., : RATE // 10].repeat(1, 1, 20)[..., : noise.shape[-1]]
    ),
}


@pytest.mark.parametrize("fault", COLOUR_FAULTS)
def test_faults_in_coloured_noise_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(ops.AddColorNoise(p_apply_a_weighting=0.5, p=1.0), RATE, channels=2, ragged=False, seed=0)
    assert judge(case, "batched", "cpu").status == "passed"
    monkeypatch.setattr(ops.AddColorNoise, "batched", COLOUR_FAULTS[fault](ops.AddColorNoise.batched))
    verdict = judge(case, "batched", "cpu")
    assert verdict.status == "failed" and verdict.reason, fault


BAD_NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "uniform": lambda noise: (torch.special.ndtr(noise) - 0.5) * 12**0.5,
    "too loud": lambda noise: noise * 1.1,
    "not white": lambda noise: (noise + 0.1 * noise.roll(1, -1)) / 1.01**0.5,
    "the same for all rows": lambda noise: noise[:1].expand_as(noise),
    "the same for both channels": lambda noise: noise[:, :1].expand_as(noise),
}


@pytest.mark.parametrize("fault", BAD_NUMBERS)
def test_coloured_noise_of_bad_random_numbers_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The op and what it gives the reference share this fault, so that their outcomes are equal."""
    module = importlib.import_module("audioaug.ops.add_color_noise")
    honest = module.gaussian

    def bad(key: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
        if fault == "the same for all rows":
            key = torch.zeros_like(key)
        return BAD_NUMBERS[fault](honest(key, channels, samples))

    monkeypatch.setattr(module, "gaussian", bad)
    case = Case(ops.AddColorNoise(p=1.0), RATE, channels=2, ragged=False, seed=0)
    assert judge(case, "batched", "cpu").status == "failed"


COLOURED = Contract.statistical(level_db=0.3, noise_rtol=1e-4)
UNRELATED_FAULTS = (
    "same noise on every row",
    "another row's noise, 5 samples late",
    "same noise on both channels",
    "inverted noise on the second channel",
    "one clip's noise 1 dB too loud",
    "all noise 0.5 dB too loud",
    "one second repeated",
    "no noise on one row",
    "the signal instead of noise",
    "NaN",
)


def brown(noise: Clips) -> Clips:
    parts = [scipy.signal.lfilter([1.0], [1.0, -0.95], part) for part in noise]
    return [part / part.std() for part in parts]


@pytest.mark.parametrize("fault", UNRELATED_FAULTS)
def test_level_and_independence_are_judged_whatever_the_colour(fault: str) -> None:
    scene = Scene()
    reference = scene.add(brown(noise_like(scene.dry, scene.rng)))
    noise = NOISE_FAULTS[fault](scene, brown(noise_like(scene.dry, scene.rng)))
    verdict = check(COLOURED, scene.dry, reference, scene.add(noise), intended=scene.std)
    assert verdict.status == "failed" and verdict.strain > 1, fault


@pytest.mark.parametrize("seconds", [0.15, 1.5])
def test_honest_coloured_noise_is_accepted(seconds: float) -> None:
    for seed in range(10):
        scene = Scene(seed, seconds)
        scene.reference, built, again = (scene.add(brown(noise_like(scene.dry, scene.rng))) for _ in range(3))
        verdict = check(COLOURED, scene.dry, scene.reference, built, intended=scene.std, again=again)
        assert verdict.status == "passed", (seed, verdict.reason)
        repeated = check(COLOURED, scene.dry, scene.reference, built, again=[*again[:2], built[2], again[3]])
        assert "the noise of other draws" in repeated.reason


class TestVerifyOp:
    """The whole way: a fault planted in an op's batched face must come out as a failed verdict."""

    def test_a_wrong_gain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = ops.Gain.batched
        monkeypatch.setattr(ops.Gain, "batched", lambda self, *args: honest(self, *args) * 1.001)
        verdict = verify_op(ops.Gain, sample_rates=(RATE,))
        assert (verdict.op, verdict.status) == ("Gain", "failed")

    def test_reverse_that_forgets_lengths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ops.Reverse, "batched", lambda self, x, params, clips: x.flip(-1))
        assert verify_op(ops.Reverse, sample_rates=(RATE,)).status == "failed"

    @pytest.mark.parametrize("fault", ["the envelope falls too fast", "linked channels", "a sample late"])
    def test_a_limiter_that_is_not_quite_the_reference(self, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from audioaug.dsp import limiter as recursions
        from audioaug.ops import limiter

        honest, envelope = limiter.Limiter.batched, recursions.decaying_max
        if fault == "linked channels":  # which there is no place for in the loop
            monkeypatch.setitem(dispatch.FASTEST, "cpu", "torch")
        faults: dict[str, tuple[object, str, Callable[..., object]]] = {
            "the envelope falls too fast": (
                limiter.Limiter,
                "batched",
                lambda self, x, params, clips: honest(
                    self, x, {**params, "log_release": params["log_release"] * 1.001}, clips
                ),
            ),
            "linked channels": (
                recursions,
                "decaying_max",
                lambda x, log_r: envelope(x.amax(dim=1, keepdim=True), log_r).expand(x.shape),
            ),
            "a sample late": (
                limiter.Limiter,
                "batched",
                lambda self, x, params, clips: honest(self, x, {**params, "delay": params["delay"] - 1}, clips),
            ),
        }
        monkeypatch.setattr(*faults[fault])
        assert verify_op(limiter.Limiter, sample_rates=(RATE,)).status == "failed"

    def test_one_key_for_all_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = ops.AddGaussianNoise.batched
        monkeypatch.setattr(
            ops.AddGaussianNoise,
            "batched",
            lambda self, x, params, clips: honest(
                self, x, {**params, "noise_key": params["noise_key"][:1].expand(len(x))}, clips
            ),
        )
        assert verify_op(ops.AddGaussianNoise, sample_rates=(8000,)).status == "failed"

    def test_one_that_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ops.Gain, "batched", lambda *args: 1 / 0)
        assert "ZeroDivisionError" in verify_op(ops.Gain, sample_rates=(RATE,)).reason

    def test_one_that_works_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ops.PolarityInversion, "batched", lambda self, x, params, clips: x.neg_())
        assert verify_op(ops.PolarityInversion, sample_rates=(RATE,)).status == "failed"


def test_padding_is_silence() -> None:
    batch = padded([np.ones((1, 3), np.float32), np.ones((1, 5), np.float32)])
    assert batch.tolist() == [[[1, 1, 1, 0, 0]], [[1, 1, 1, 1, 1]]]
