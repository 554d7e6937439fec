"""Pipelines as audiomentations' own README and documentation show them, taken over and given back unchanged."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import audiomentations as am
import numpy as np
import pytest

from audioaug import build_cpu, ops
from audioaug.core import CUSTOM_OPS, REGISTRY, Chain
from audioaug.errors import ChainError
from audioaug.verify import material
from tests.helpers.op_examples import DEMO, OPS, example, library

NOISE, ROOMS = str(DEMO / "noise"), str(DEMO / "rooms")
RATE = 16000

EXAMPLES: dict[str, Callable[[], Any]] = {
    "several in a row": lambda: am.Compose(
        [
            am.AddGaussianNoise(min_amplitude=0.001, max_amplitude=0.015, p=0.5),
            am.TimeStretch(min_rate=0.8, max_rate=1.25, p=0.5),
            am.PitchShift(min_semitones=-4, max_semitones=4, p=0.5),
            am.Shift(min_shift=-0.5, max_shift=0.5, p=0.5),
        ]
    ),
    "pitch": lambda: am.PitchShift(min_semitones=-5.0, max_semitones=5.0, method="librosa_phase_vocoder", p=1.0),
    "tempo": lambda: am.TimeStretch(min_rate=0.8, max_rate=1.25, leave_length_unchanged=True, p=1.0),
    "shuffled": lambda: am.Compose([am.AddGaussianSNR(), am.Reverse()], p=0.9, shuffle=True),
    "one of": lambda: am.OneOf([am.LowPassFilter(p=1.0), am.HighPassFilter(p=1.0), am.BandPassFilter(p=1.0)]),
    "one of, weighted": lambda: am.OneOf([am.Gain(p=1.0), am.Reverse(p=1.0)], weights=[0.75, 0.25]),
    "exactly two of": lambda: am.SomeOf(2, [am.Gain(), am.PolarityInversion(), am.Normalize()]),
    "one to three of": lambda: am.SomeOf((1, 3), [am.Gain(), am.PolarityInversion(), am.Normalize()]),
    "two to all of": lambda: am.SomeOf((2, None), [am.Gain(), am.PolarityInversion(), am.Normalize(), am.Clip()]),
    "one of in a row": lambda: am.Compose(
        [
            am.OneOf([am.AddGaussianSNR(p=1.0), am.AddBackgroundNoise(sounds_path=NOISE, p=1.0)], p=0.7),
            am.SomeOf((0, 2), [am.Mp3Compression(), am.TanhDistortion()]),
            am.Normalize(p=1.0),
        ]
    ),
    "noise relative to the input": lambda: am.AddBackgroundNoise(
        sounds_path=NOISE, min_snr_db=3.0, max_snr_db=30.0, p=1.0
    ),
    "noise of absolute level": lambda: am.AddBackgroundNoise(
        sounds_path=NOISE, noise_rms="absolute", min_absolute_rms_db=-45.0, max_absolute_rms_db=-15.0, p=1.0
    ),
    "short noises relative to the input": lambda: am.AddShortNoises(
        sounds_path=NOISE,
        min_snr_db=3.0,
        max_snr_db=30.0,
        noise_rms="relative_to_whole_input",
        min_time_between_sounds=2.0,
        max_time_between_sounds=8.0,
        p=1.0,
    ),
    "short noises of absolute level": lambda: am.AddShortNoises(
        sounds_path=NOISE,
        min_absolute_noise_rms_db=-50.0,
        max_absolute_noise_rms_db=-20.0,
        noise_rms="absolute",
        min_time_between_sounds=2.0,
        max_time_between_sounds=8.0,
        p=1.0,
    ),
    "pink noise": lambda: am.AddColorNoise(min_f_decay=-3.01, max_f_decay=-3.01, p=1.0),
    "noise with a ratio": lambda: am.AddGaussianSNR(min_snr_db=5.0, max_snr_db=40.0, p=1.0),
    "60000 samples": lambda: am.AdjustDuration(duration_samples=60000, p=1.0),
    "3.75 seconds": lambda: am.AdjustDuration(duration_seconds=3.75, p=1.0),
    "air": lambda: am.AirAbsorption(min_distance=10.0, max_distance=50.0, p=1.0),
    "aliasing": lambda: am.Aliasing(min_sample_rate=8000, max_sample_rate=30000, p=1.0),
    "rooms": lambda: am.ApplyImpulseResponse(ir_path=ROOMS, p=1.0),
    "band pass": lambda: am.BandPassFilter(min_center_freq=100.0, max_center_freq=6000, p=1.0),
    "band stop": lambda: am.BandStopFilter(min_center_freq=100.0, max_center_freq=6000, p=1.0),
    "five to fourteen bits": lambda: am.BitCrush(min_bit_depth=5, max_bit_depth=14, p=1.0),
    "clip": lambda: am.Clip(a_min=-1.0, a_max=1.0, p=1.0),
    "clipping": lambda: am.ClippingDistortion(min_percentile_threshold=0, max_percentile_threshold=40, p=1.0),
    "gain": lambda: am.Gain(min_gain_db=-12.0, max_gain_db=12.0, p=1.0),
    "gain, in samples": lambda: am.GainTransition(
        min_duration=100, max_duration=9000, duration_unit="samples", min_gain_db=-24, max_gain_db=6
    ),
    "high shelf": lambda: am.HighShelfFilter(p=1.0),
    "low shelf": lambda: am.LowShelfFilter(min_gain_db=-18.0, max_gain_db=18.0),
    "your function": lambda: am.Lambda(transform=np.multiply, p=1.0),
    "limiter": lambda: am.Limiter(min_threshold_db=-16.0, max_threshold_db=-6.0, threshold_mode="absolute", p=1.0),
    "loudness": lambda: am.LoudnessNormalization(min_lufs=-31.0, max_lufs=-13.0, p=1.0),
    "MP3": lambda: am.Mp3Compression(min_bitrate=16, max_bitrate=96, preserve_delay=False, p=1.0),
    "only the too loud": lambda: am.Normalize(apply_to="only_too_loud_sounds", p=1.0),
    "padding": lambda: am.Padding(mode="reflect", min_fraction=0.02, max_fraction=0.5, pad_section="start"),
    "peak": lambda: am.PeakingFilter(min_center_freq=50.0, max_center_freq=7500.0, min_q=0.5, max_q=5.0),
    "repeats": lambda: am.RepeatPart(mode="insert", p=1.0),
    "repeats that replace": lambda: am.RepeatPart(mode="replace", p=1.0),
    "resampled": lambda: am.Resample(min_sample_rate=8000, max_sample_rate=44100, p=1.0),
    "room": lambda: am.RoomSimulator(calculation_mode="rt60", max_order=3, leave_length_unchanged=True),
    "equalizer": lambda: am.SevenBandParametricEQ(min_gain_db=-12.0, max_gain_db=12.0, p=1.0),
    "shift, in seconds": lambda: am.Shift(
        min_shift=-0.2, max_shift=0.2, shift_unit="seconds", rollover=False, fade_duration=0.01
    ),
    "tanh": lambda: am.TanhDistortion(min_distortion=0.01, max_distortion=0.7, p=1.0),
    "mask": lambda: am.TimeMask(min_band_part=0.1, max_band_part=0.15, fade_duration=0.005, mask_location="end", p=1.0),
    "trim": lambda: am.Trim(top_db=30.0, p=1.0),
}


NOTHING = {
    "alone": (lambda: am.Compose([]), ()),
    "nested": (lambda: am.Compose([am.Compose([am.Compose([])])]), ()),
    "beside others": (lambda: am.Compose([am.Compose([]), am.Reverse(p=0.5)]), (ops.Reverse(),)),
    "in a list": (lambda: [am.Compose([], p=0.5), am.Reverse(p=0.5)], (ops.Reverse(),)),
    "one of": (
        lambda: am.OneOf([am.Compose([]), am.Reverse(p=0.5)]),
        (ops.OneOf([ops.Identity(p=1.0), ops.Reverse()]),),
    ),
    "cache": (
        lambda: am.ApplyImpulseResponse(ir_path=ROOMS, lru_cache_size=None, p=0.5),
        (ops.ApplyImpulseResponse(ir_path=ROOMS),),
    ),
    "truth of numpy": (
        lambda: am.LowPassFilter(zero_phase=np.bool_(True), p=0.5),
        (ops.LowPassFilter(zero_phase=True),),
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing_is_taken_over(name: str) -> None:
    transform, expected = NOTHING[name]
    assert Chain.from_audiomentations(transform(), RATE).ops == expected


def told(transform: Any) -> Any:
    """Return all that a transform of audiomentations remembers of how it was declared, children included."""
    if isinstance(transform, list):
        return [told(item) for item in transform]
    if type(transform).__module__.startswith("audiomentations."):
        state = {name: told(value) for name, value in vars(transform).items() if name != "parameters"}
        return type(transform).__name__, state
    if isinstance(transform, MethodType) or hasattr(transform, "cache_info"):  # its own, so never equal to another's
        return transform.__name__
    return transform.tolist() if isinstance(transform, np.ndarray) else transform


@pytest.mark.filterwarnings("ignore:The .* backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_convert_to_audiomentations_and_back(name: str) -> None:
    original = EXAMPLES[name]()
    back = Chain.from_audiomentations(original, RATE).to_audiomentations()
    single = back if type(original) is am.Compose and not original.shuffle else back.transforms[0]
    assert told(single) == told(EXAMPLES[name]()) == told(original)
    assert Chain.from_audiomentations(back, RATE) == Chain.from_audiomentations(original, RATE)


def test_the_comparison_would_see_any_of_it() -> None:
    one = am.Compose([am.OneOf([am.Gain(min_gain_db=-3.0), am.Clip()], weights=[1, 2]), am.SomeOf(1, [am.Reverse()])])
    for other in (
        am.Compose([am.OneOf([am.Gain(min_gain_db=-4.0), am.Clip()], weights=[1, 2]), am.SomeOf(1, [am.Reverse()])]),
        am.Compose([am.OneOf([am.Gain(min_gain_db=-3.0), am.Clip()], weights=[2, 1]), am.SomeOf(1, [am.Reverse()])]),
        am.Compose([am.OneOf([am.Gain(min_gain_db=-3.0), am.Clip()], weights=[1, 2]), am.SomeOf(0, [am.Reverse()])]),
        am.Compose([am.OneOf([am.Gain(min_gain_db=-3.0), am.Clip()], weights=[1, 2])]),
    ):
        assert told(one) != told(other)


@pytest.mark.filterwarnings("ignore:The .* backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "kind", [kind for kind in OPS if library(kind) == "audiomentations"], ids=lambda kind: kind.__name__
)
def test_every_op_comes_back_from_its_reference(kind: Any) -> None:
    op = example(kind, p=0.25)
    assert Chain.from_audiomentations([op.reference()], RATE).ops == (op,)


def test_every_op_is_in_exactly_one_registry() -> None:
    """Nothing hides from the tests of all ops: what is not in the registry is for code of yours, and named here."""
    assert set(CUSTOM_OPS) == {"Custom"} and not set(CUSTOM_OPS) & set(REGISTRY)


WITH_CODE = {
    "background": lambda: am.AddBackgroundNoise(sounds_path=NOISE, noise_transform=am.Compose([am.Reverse()]), p=1.0),
    "short": lambda: am.AddShortNoises(
        NOISE, min_time_between_sounds=0.01, max_time_between_sounds=0.1, noise_transform=am.PolarityInversion(), p=1.0
    ),
    "repeat": lambda: am.RepeatPart(min_part_duration=0.1, max_part_duration=0.2, part_transform=am.Gain(), p=1.0),
}


@pytest.mark.parametrize("name", WITH_CODE)
def test_transforms_that_hold_code_are_taken_as_they_are_and_stay_in_the_workers(name: str) -> None:
    chain = Chain.from_audiomentations(am.Compose([WITH_CODE[name](), am.Gain(p=1.0)]), RATE)
    assert chain.device_from == 1
    assert "your own code runs only in the workers" in chain.why_not_cut(0)
    x_T = material.signals(RATE)[0][0]
    first, again, other = (build_cpu(chain, 1)(x_T, key=index) for index in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, x_T)
    assert first.shape != other.shape or not np.array_equal(first, other)
    with pytest.raises(ChainError, match="which a file cannot hold"):
        chain.to_dict()


def test_declaring_them_directly_raises_with_the_way_to_do_it() -> None:
    with pytest.raises(ChainError, match=r"noise_transform is not supported here.*Chain\.from_audiomentations"):
        ops.AddBackgroundNoise(sounds_path=NOISE, noise_transform=am.Reverse())  # type: ignore[arg-type]
