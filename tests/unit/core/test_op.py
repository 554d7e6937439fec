"""Declaring an op: what is accepted, and the sentence that refuses the rest."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from audioaug import ops
from audioaug.core import CUSTOM_OPS, REGISTRY, Chain, Contract, Op, why_not_on_device
from audioaug.core.op import plain
from audioaug.errors import ChainError
from tests.helpers.op_examples import DEMO, OPS, example, library, variants

REFUSED = [
    (lambda: ops.Gain(p=1.5), "Gain: p is 1.5, but it must be between 0 and 1."),
    (lambda: ops.Gain(p=-0.1), "Gain: p is -0.1, but it must be between 0 and 1."),
    (lambda: ops.Gain(p="often"), "Gain: p is 'often', but it must be a number."),
    (lambda: ops.Gain(p=True), "Gain: p is True, but it must be a number."),
    (lambda: ops.Gain(p=None), "Gain: p is None, but it must be a number."),
    (lambda: ops.Gain(min_gain_db=float("nan")), "Gain: min_gain_db is nan, but it must be a number."),
    (lambda: ops.Gain(min_gain_db=-np.inf), "Gain: min_gain_db is -inf, but it must be a finite number."),
    (
        lambda: ops.AddGaussianSNR(max_snr_db=np.inf),
        "AddGaussianSNR: max_snr_db is inf, but it must be a finite number.",
    ),
    (
        lambda: ops.LowPassFilter(max_rolloff=np.inf),
        "LowPassFilter: max_rolloff is inf, but it must be a whole number.",
    ),
    (
        lambda: ops.RoomSimulator(ray_tracing_options={"n_rays": np.float64(5)}),
        "RoomSimulator: n_rays is 5.0, but it must be a whole number.",
    ),
    (lambda: ops.Gain(min_gain_db=1 + 1j), "Gain: min_gain_db is (1+1j), but it must be a number."),
    (
        lambda: ops.Gain(min_gain_db=3.0, max_gain_db=-3.0),
        "Gain: min_gain_db is 3.0, but it must not be greater than max_gain_db (-3.0).",
    ),
    (
        lambda: ops.LowPassFilter(min_cutoff_freq=0.0),
        "LowPassFilter: min_cutoff_freq is 0, but it must be at least 0.001.",
    ),
    (
        lambda: ops.LowPassFilter(max_rolloff=24.5),
        "LowPassFilter: max_rolloff is 24.5, but it must be a whole number.",
    ),
    (
        lambda: ops.LowPassFilter(min_rolloff=14),
        "LowPassFilter: min_rolloff is 14, but it must be a multiple of 6.",
    ),
    (
        lambda: ops.LowPassFilter(min_rolloff=18, zero_phase=True),
        "LowPassFilter: min_rolloff is 18, but it must be a multiple of 12 with zero_phase.",
    ),
    (lambda: ops.LowPassFilter(zero_phase=1), "LowPassFilter: zero_phase is 1, but it must be true or false."),
    (lambda: ops.Shift(shift_unit="fractions"), "Shift: shift_unit is 'fractions'. Did you mean fraction?"),
    (
        lambda: ops.Normalize(apply_to="x"),
        "Normalize: apply_to is 'x'. Known: all, only_too_loud_sounds.",
    ),
    (
        lambda: ops.AddBackgroundNoise(sounds_path=DEMO / "noise", max_absolute_rms_db=3.0),
        "AddBackgroundNoise: max_absolute_rms_db is 3, but it must be at most 0.",
    ),
    (lambda: ops.Mp3Compression(quality=10), "Mp3Compression: quality is 10, but it must be between 0 and 9."),
    (
        lambda: ops.Mp3Compression(backend="lameenc"),
        "Mp3Compression: backend 'lameenc' does not support preserve_delay=False. Use 'fast-mp3-augment'.",
    ),
    *(
        (
            lambda given=given: ops.AdjustDuration(**given),
            "AdjustDuration takes exactly one of duration_samples and duration_seconds.",
        )
        for given in ({}, {"duration_samples": 1, "duration_seconds": 1.0})
    ),
    (
        lambda: ops.AdjustDuration(duration_samples=0),
        "AdjustDuration: duration_samples is 0, but it must be greater than 0.",
    ),
    (
        lambda: ops.AdjustDuration(duration_seconds=-1.0),
        "AdjustDuration: duration_seconds is -1.0, but it must be greater than 0.",
    ),
    (
        lambda: ops.BandPassFilter(max_bandwidth_fraction=2.0),
        "BandPassFilter: max_bandwidth_fraction is 2, but it must be between 1e-06 and 1.999999.",
    ),
    (lambda: ops.BitCrush(max_bit_depth=33), "BitCrush: max_bit_depth is 33, but it must be between 1 and 32."),
    (
        lambda: ops.GainTransition(min_duration=0.0),
        "GainTransition: min_duration is 0, but it must be greater than 0.",
    ),
    (
        lambda: ops.GainTransition(min_duration=2, max_duration=2.5, duration_unit="samples"),
        "GainTransition: max_duration is 2.5, but it must be a whole number of samples.",
    ),
    (lambda: ops.Limiter(min_attack=0.0), "Limiter: min_attack is 0, but it must be greater than 0."),
    (lambda: ops.Limiter(min_release=-1), "Limiter: min_release is -1, but it must be greater than 0."),
    (
        lambda: ops.Lambda(transform="json"),
        "Lambda: there is no function 'json': module 'json' has no attribute ''. Write it as module:name.",
    ),
    (
        lambda: ops.Lambda(transform="nowhere.at_all:f"),
        "Lambda: there is no function 'nowhere.at_all:f': No module named 'nowhere'. Write it as module:name.",
    ),
    (lambda: ops.Lambda(transform=3), "Lambda: transform is 3, but it must be a function or 'module:name'."),
    (
        lambda: ops.Lambda(transform=abs, kwargs={"p": 1.0}),
        "Lambda: kwargs is {'p': 1.0}, but it must be a mapping of names, other than transform and p.",
    ),
    (
        lambda: ops.Custom(transform=abs),
        "Custom: transform is <built-in function abs>, but it must be an instance of "
        "audiomentations.core.transforms_interface.BaseWaveformTransform.",
    ),
    (lambda: ops.Aliasing(min_sample_rate=1), "Aliasing: min_sample_rate is 1, but it must be at least 2."),
    (lambda: ops.Speed(max_rate=11.0), "Speed: max_rate is 11, but it must be at most 10."),
    *(
        (
            lambda rates=rates: ops.Speed(rates=rates),
            f"Speed: rates is {rates!r}, but it must be a list of numbers between 0.1 and 10. For example (0.9, 1.0, "
            "1.1).",
        )
        for rates in ([], 1.1, "1.1", [1.0, 0.0], [90, 100, 110], [1.0, None], [float("nan")])
    ),
    (
        lambda: ops.Speed(min_rate=0.8, rates=[0.9, 1.1]),
        "Speed: both rates and a range, 0.8 to 1.1, are given. Leave out rates, or min_rate and max_rate.",
    ),
    (lambda: ops.OneOf([]), "OneOf: transforms is empty. Give it at least one transform."),
    (lambda: ops.OneOf([3]), "OneOf: 3 is not an audioaug op."),
    (lambda: ops.OneOf(3), "OneOf: transforms is 3, but it must be a list of ops."),
    (
        lambda: ops.SomeOf((1, 3), [ops.Gain(), ops.Clip()]),
        "SomeOf: num_transforms is (1, 3), but it must lie within 0 .. 2.",
    ),
    (
        lambda: ops.SomeOf((2, 1), [ops.Gain(), ops.Clip()]),
        "SomeOf: num_transforms is (2, 1), but the least must not be greater than the most.",
    ),
    (
        lambda: ops.SomeOf(1.5, [ops.Gain()]),
        "SomeOf: num_transforms is 1.5, but it must be a whole number or (least, most).",
    ),
    (
        lambda: ops.OneOf([ops.Gain(), ops.Clip()], weights=[1.0]),
        "OneOf: weights is [1.0], but there must be a number for each of the 2 transforms, none "
        "negative, and not all zero.",
    ),
]


@pytest.mark.parametrize(("declare", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_a_wrong_value_is_refused_with_the_limit(declare, sentence):
    with pytest.raises(ChainError) as caught:
        declare()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "weights", [[1.0, -1.0], [0, 0], [float("nan"), 1.0], ["a", "b"], "ab", 3, [], [float("inf"), 1]]
)
def test_weights_that_are_no_weights_are_refused(weights):
    with pytest.raises(ChainError, match="OneOf: weights is"):
        ops.OneOf([ops.Gain(), ops.Clip()], weights=weights)


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_every_range_accepts_low_equal_to_high(kind):
    op = example(kind)
    lows = [field.name for field in dataclasses.fields(op) if field.name.startswith("min_")]
    tops = {name: name.replace("min_", "max_", 1) for name in lows}
    unbounded = (-np.inf, np.inf)  # where the low one must stay below a limit, both meet there
    same = {name: min(getattr(op, top), op.limits.get(name, unbounded)[1]) for name, top in tops.items()}
    narrow = dataclasses.replace(op, **same, **{top: same[name] for name, top in tops.items()})
    assert all(getattr(narrow, name) == value for name, value in same.items())
    for distribution in narrow.distributions().values():
        assert np.isfinite(distribution.from_uniform(np.asarray([0.0, 0.5]))).all()


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_every_op_is_a_frozen_declaration_with_a_contract(kind):
    op = example(kind)
    assert op == example(kind) and op.name == kind.__name__ and isinstance(op.contract, Contract)
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.p = 0.1
    if op.contract.kind == "cpu_only":
        assert op.contract.reason and op.contract.reason in why_not_on_device(op)
    for name, other in variants(kind).items():
        assert other != op, name


@pytest.mark.parametrize(
    "kind", [kind for kind in OPS if library(kind) == "audiomentations"], ids=lambda kind: kind.__name__
)
def test_fields_are_the_references_arguments_with_its_defaults(kind):
    import inspect

    import audiomentations

    theirs = inspect.signature(getattr(audiomentations, kind.__name__).__init__).parameters
    fields = {field.name: field for field in dataclasses.fields(kind)}
    keywords = {name for name, parameter in theirs.items() if parameter.kind is parameter.VAR_KEYWORD}
    assert set(fields) - keywords == set(theirs) - keywords - {"self"}
    assert all(fields[name].default is None for name in keywords & set(fields))  # a mapping of them, or none
    for name, field in fields.items():
        if name in keywords:
            continue
        ours = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        assert ours == theirs[name].default or (theirs[name].annotation, ours) == (None, None), name


def test_numbers_are_kept_as_plain_numbers():
    op = ops.LowPassFilter(min_cutoff_freq=np.float32(200), max_rolloff=24.0, min_rolloff=np.int64(12))
    assert [type(value) for value in (op.min_cutoff_freq, op.max_rolloff, op.min_rolloff)] == [float, int, int]
    assert op.to_dict() == {"LowPassFilter": {"min_cutoff_freq": 200}}


def half(samples, sample_rate, g=1.0):
    return samples * g


TWO = [ops.Gain(), ops.Clip()]
OF_NUMPY = {
    "text": (lambda: ops.Padding(mode=np.str_("wrap")), {"mode": "wrap"}),
    "truth": (lambda: ops.LowPassFilter(zero_phase=np.bool_(True)), {"zero_phase": True}),
    "long double": (lambda: ops.Gain(min_gain_db=np.longdouble(-3.5)), {"min_gain_db": -3.5}),
    "texts": (lambda: ops.Codec(codecs=[np.str_("mulaw")]), {"codecs": ["mulaw"]}),
    "array of text": (lambda: ops.Codec(codecs=np.array(["mulaw", "gsm"])), {"codecs": ["mulaw", "gsm"]}),
    "weights": (lambda: ops.OneOf(TWO, weights=np.array([0.3, 0.7])), {"weights": [0.3, 0.7]}),
    "weights of codecs": (
        lambda: ops.Codec(codecs=["mulaw", "gsm"], weights=np.array([1, 2])),
        {"codecs": ["mulaw", "gsm"], "weights": [1, 2]},
    ),
    "count": (lambda: ops.SomeOf(np.int64(1), TWO), {"num_transforms": 1}),
    "counts": (lambda: ops.SomeOf((np.int64(1), None), TWO), {"num_transforms": [1, None]}),
    "mapping": (
        lambda: ops.RoomSimulator(ray_tracing_options={"n_rays": np.int64(5), "energy_thres": np.float64(0.01)}),
        {"ray_tracing_options": {"n_rays": 5, "energy_thres": 0.01}},
    ),
    "arguments": (
        lambda: ops.Lambda(transform=half, kwargs={"g": np.float64(0.5), "n": [np.int64(3), np.float32(0.25)]}),
        {"transform": f"{__name__}:half", "kwargs": {"g": 0.5, "n": [3, 0.25]}},
    ),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_values_of_numpy_are_written_as_plain_values(name, tmp_path):
    declare, expected = OF_NUMPY[name]
    chain = Chain([declare()], 16000)
    [(_, declared)] = chain.to_dict()["transforms"][0].items()
    declared.pop("transforms", None)
    assert declared == expected
    chain.to_yaml(tmp_path / "chain.yaml")  # refuses what is not plain
    assert Chain.from_yaml(tmp_path / "chain.yaml", code=True).hash == chain.hash


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "described"),
    [(Opaque(), "Opaque"), (Opaque, "Opaque"), (half, "half"), (b"ab", "b'ab'")],
    ids=["object", "class", "function", "bytes"],
)
def test_objects_that_a_file_cannot_hold_are_refused(value, described):
    with pytest.raises(ChainError, match=r"^Mine: what contains .*, which a file cannot hold\. Use numbers, text"):
        plain({"what": [value]}, owner="Mine: what")
    assert plain([value, Path("a/b")], for_file=False) == [described, "a/b"]
    assert plain(Path("a/b")) == "a/b"


def test_registry_equals_the_names_in_ops():
    assert dir(ops) == sorted([*REGISTRY, *CUSTOM_OPS]) and all(issubclass(kind, Op) for kind in OPS)
    assert ops.Gain is REGISTRY["Gain"] and ops.Custom is CUSTOM_OPS["Custom"]
    with pytest.raises(AttributeError, match=r"no transform 'Gian'\. Did you mean Gain\?"):
        _ = ops.Gian
