"""What review 2 found, by its numbers: each finding has a test that failed before its fix."""

import io
import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import audioaug
from audioaug import Chain, Loader, Plan, build_cpu, build_device, ops, split
from audioaug.core import Op
from audioaug.engine import DeviceChain
from audioaug.errors import DataError, UsageError

CHAIN = Chain([ops.Gain(p=1.0)], sample_rate=16000)


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"on_error": "replace"}])
def test_r2_04_a_bug_in_the_dataset_is_raised_not_skipped(options):
    class Buggy(list):  # type: ignore[type-arg]
        def __getitem__(self, index):
            if index % 2:
                raise ValueError("a bug of the user's")
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="a bug of the user's"):
        list(Loader(Buggy([torch.ones(100)] * 4), CHAIN, device="cpu", **options))


def test_r2_13_loader_has_the_attributes_of_dataloader():
    dataset = [torch.ones(100)] * 7
    loader = Loader(dataset, CHAIN, device="cpu", batch_size=2)
    assert loader.dataset is dataset and len(loader.sampler) == 7  # type: ignore[arg-type]
    assert (len(loader), loader.batch_size, loader.num_workers, loader.drop_last) == (4, 2, 0, False)


RATE = 16000
GAIN = Chain([ops.Gain(p=1.0)], RATE)
CLIP = np.ones(16, np.float32)
RNG = np.random.default_rng(0)
DEMO = "datasets/demo"


def gain_of(wave: torch.Tensor) -> list[float]:
    """Return what each clip of ones was multiplied by."""
    return wave[..., 0].flatten().tolist()


class Augmenting:
    """A collate_fn that holds the module."""

    def __init__(self) -> None:
        self.module = build_device(GAIN)

    def __call__(self, waves: list[torch.Tensor]) -> torch.Tensor:
        return self.module(torch.stack(waves))


@pytest.mark.parametrize(("start", "persistent"), [("fork", False), ("fork", True), ("spawn", False)])
def test_r2_01_a_module_in_workers_draws_anew_in_each_worker_and_epoch(start: str, persistent: bool) -> None:
    def two_epochs() -> list[float]:
        loader = DataLoader(
            [torch.ones(4)] * 8,  # type: ignore[arg-type]
            batch_size=2,
            num_workers=2,
            collate_fn=collate,
            multiprocessing_context=start,
            persistent_workers=persistent,
            generator=torch.Generator().manual_seed(0),
        )
        return [gain for _ in range(2) for wave in loader for gain in gain_of(wave)]

    collate = Augmenting()
    gains = two_epochs()
    assert len(set(gains)) == len(gains) == 16
    if start == "fork":
        assert two_epochs() == gains  # the loader's generator decides


def test_r2_02_both_builds_draw_the_same_by_index_whatever_torchs_seed_is() -> None:
    chain = Chain([ops.Gain(p=1.0), ops.Shift(p=1.0), ops.PolarityInversion()], RATE)
    clip = RNG.standard_normal(400).astype(np.float32)
    expected = build_cpu(chain)(clip, key=7, epoch=2)
    for seed, cut in itertools.product((1, 2), range(4)):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            worker, module = build_cpu(chain, cut), build_device(chain, cut)
            wave, timeline = worker.follow(clip, key=7, epoch=2)
            result = module(torch.from_numpy(wave)[None], key=[7], epoch=2)
        np.testing.assert_allclose(result[0], expected, atol=1e-5)
        assert (
            timeline.stamps([200.0])[0].tolist()
            == build_cpu(chain).follow(clip, key=7, epoch=2)[1].stamps([200.0])[0].tolist()
        )


def test_r2_02_labels_need_an_index_to_follow_device_ops() -> None:
    chain = Chain([ops.Reverse(p=1.0), ops.Shift(fade_duration=0.0, p=1.0), ops.Gain(p=1.0)], RATE)
    with pytest.raises(UsageError, match=r"^Labels cannot follow Shift, which runs on the device, .*the same key="):
        build_cpu(chain, 1).follow(CLIP)
    assert build_cpu(chain, 1).follow(CLIP, key=3)[1].length_out == len(CLIP)
    assert build_cpu(chain, 1).follow(CLIP, stop=1)[1].stamps([0.0])[0].tolist() == [16.0]
    wave, timeline = build_cpu(chain, 2).follow(np.arange(16, dtype=np.float32))
    assert np.argmin(wave) == timeline.stamps([0.5])[0] - 0.5


def test_r2_03_a_worker_draws_anew_at_every_call() -> None:
    worker = build_cpu(GAIN)
    gains = [worker(CLIP, RATE)[0].item() for _ in range(20)]
    assert len(set(gains)) == 20
    assert worker(CLIP, key=0)[0] == worker(CLIP, key=0)[0]


def test_r2_03_two_views_differ() -> None:
    x, (first, second) = torch.ones(4, 1, 8), (build_device(GAIN) for _ in range(2))
    assert len({*gain_of(first(x)), *gain_of(second(x)), *gain_of(first(x)), *gain_of(second(x))}) == 16
    one, other = build_cpu(GAIN), build_cpu(GAIN)
    assert one(CLIP)[0] != other(CLIP)[0]


def test_r2_03_torchs_seed_counts_at_every_call() -> None:
    module, worker, results = build_device(GAIN), build_cpu(GAIN), []
    with torch.random.fork_rng([]):
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            results.append((gain_of(module(torch.ones(2, 8))), worker(CLIP)[0]))
    assert results[0] == results[2] and results[0][0] != results[1][0] and results[0][1] != results[1][1]


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_r2_03_ranks_differ_in_workers_that_do_not_know_theirs(start: str, monkeypatch) -> None:
    def gains_of_rank(rank: int) -> list[float]:
        monkeypatch.setattr("audioaug.engine.stream._rank", lambda: str(rank))  # in this process, not in its workers
        loader = DataLoader(
            [torch.ones(4)] * 4,  # type: ignore[arg-type]
            batch_size=2,
            num_workers=1,
            collate_fn=collate,
            multiprocessing_context=start,
            generator=torch.Generator().manual_seed(0),
        )
        return [gain for wave in loader for gain in gain_of(wave)]

    collate = Augmenting()
    assert len({*gains_of_rank(0), *gains_of_rank(1)}) == 8


BAD_LENGTHS = {
    "relative": (
        [1.0, 0.5],
        r"^Expected lengths in samples, as integers from 0 to 100, got torch.float32: \[1.0, 0.5\]",
    ),
    "relative, as a tensor": (torch.tensor([1.0, 0.5]), r"\(lengths \* x.shape\[-1\]\).round\(\).long\(\)\.$"),
    "whole, as floats": (torch.tensor([100.0, 50.0]), "got torch.float32"),
    "half precision": (torch.tensor([1.0, 0.5]).bfloat16(), "got torch.bfloat16"),
    "a mask": (torch.tensor([True, False]), "got torch.bool"),
    "not a number": ([float("nan"), 3.0], "got torch.float32"),
    "negative": ([-1, 50], "2 numbers from 0 to 100"),
    "too long": ([101, 50], "2 numbers from 0 to 100"),
    "too few": ([50], "2 numbers from 0 to 100"),
}


@pytest.mark.parametrize("length", [1.0, 0.5, True, np.float32(1.0), torch.tensor(1.0), float("nan"), 101, -1, "100"])
def test_r2_05_loader_rejects_lengths_that_are_not_sample_counts(length):
    """SpeechBrain's relative length 1.0 was taken for one sample, and the rest of the clip dropped."""
    dataset = [{"audio": torch.ones(100), "lengths": length}] * 2
    loader = Loader(dataset, [], sample_rate=16000, batch_size=2, device="cpu", lengths="lengths")
    told = r"^Example 0: Expected an example's length at 'lengths' in samples, an integer from 0 to"
    with pytest.raises(DataError, match=told):
        next(iter(loader))


@pytest.mark.parametrize("length", [60, np.int64(60), torch.tensor(60), torch.tensor([60])])
def test_r2_05_the_loader_takes_a_length_in_samples(length):
    dataset = [{"audio": torch.ones(100), "lengths": length}] * 2
    [batch] = Loader(dataset, [], sample_rate=16000, batch_size=2, device="cpu", lengths="lengths")
    assert batch["lengths"].tolist() == [60, 60] and batch["audio"].shape[-1] == 60


@pytest.mark.parametrize("name", BAD_LENGTHS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_r2_05_lengths_that_are_not_whole_numbers_of_samples_are_refused(name: str, training: bool) -> None:
    lengths, sentence = BAD_LENGTHS[name]
    module = build_device(GAIN).train(training)
    with pytest.raises(DataError, match=sentence):
        module(torch.ones(2, 100), lengths=lengths, return_lengths=True)
    with pytest.raises(DataError, match=sentence):
        list(audioaug.prefetch([(torch.ones(2, 100), lengths)], "cpu", module, lengths=1))


class Model(torch.nn.Module):
    """A model that holds the augmentation."""

    def __init__(self) -> None:
        super().__init__()
        filters = ops.LowPassFilter(p=0.5), ops.TimeMask(p=0.5)
        self.augment: DeviceChain = build_device(Chain([ops.Gain(), *filters, ops.AddGaussianNoise()], RATE), seed=1)
        self.layer = torch.nn.Linear(400, 3)
        torch.nn.init.constant_(self.layer.weight, 0.01)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.augment(x * 1.5)).relu()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")  # of torch's compiler
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_r2_06_a_compiled_model_that_holds_the_module_gives_the_same(backend: str) -> None:
    x = torch.ones(4, 1, 400).cumsum(-1).sin()
    model, compiled = Model(), torch.compile(Model(), backend=backend)
    for training in (True, True, False, False, True):
        model.train(training)
        compiled.train(training)
        y = compiled(x)
        torch.testing.assert_close(y, model(x))
        y.sum().backward()
    one, other = (build_device(GAIN, seed=3) for _ in range(2))
    alone = torch.compile(other, backend=backend)
    assert torch.equal(one(x), alone(x)) and torch.equal(one(x), alone(x))
    assert torch.equal(one(x, key=[1, 2, 3, 4], epoch=2), alone(x, key=[1, 2, 3, 4], epoch=2))
    for given in ({"lengths": [400, 300, 2, 1]}, {"lengths": torch.tensor([400, 300, 2, 1])}):
        assert torch.equal(*(each(x, return_lengths=True, **given)[0] for each in (one, alone)))
    assert torch.compile(other.eval(), backend=backend)(x).equal(x)


def test_r2_07_the_gradient_of_loudness_normalization_is_finite_for_silence() -> None:
    x = torch.randn(3, 1, RATE, generator=torch.Generator().manual_seed(0)) * 0.1
    x[1], x[2, :, 4000:] = 0.0, 0.0
    y = build_device(Chain([ops.LoudnessNormalization(p=1.0)], RATE), seed=0)(x.requires_grad_())
    y.square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and x.grad[0].any()


@pytest.mark.parametrize("fade", [0.0, 0.005])
@pytest.mark.parametrize("rollover", [True, False])
@pytest.mark.parametrize("places", [-250, -130, -100, -99, 99, 100, 130, 250])
def test_r2_08_a_shift_of_at_least_the_clip_is_the_same_at_every_cut(places: int, rollover: bool, fade: float) -> None:
    shift = ops.Shift(
        min_shift=places, max_shift=places, shift_unit="samples", rollover=rollover, fade_duration=fade, p=1.0
    )
    chain, clip = Chain([shift], RATE), RNG.standard_normal((2, 100)).astype(np.float32)
    worker, module = build_cpu(chain), build_device(chain)
    found = worker(clip, key=0)
    np.testing.assert_allclose(found, module(torch.from_numpy(clip)[None], key=[0])[0], atol=1e-6)
    assert worker(clip[0], key=0).shape == (100,)


FILTERS = [ops.LowPassFilter, ops.HighPassFilter, ops.BandPassFilter, ops.BandStopFilter]


@pytest.mark.parametrize("kind", FILTERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("samples", [1, 2, 5, 15, 16, 40])
def test_r2_09_a_short_clip_is_filtered_the_same_in_any_batch_and_at_any_cut(kind: type, samples: int) -> None:
    chain = Chain([kind(zero_phase=True, p=1.0)], RATE)
    clip, module = RNG.standard_normal(samples).astype(np.float32), build_device(chain)
    alone = module(torch.from_numpy(clip)[None], key=[3])[0]
    padded = torch.full((2, 4000), 9.0)
    padded[0, :samples] = torch.from_numpy(clip)
    wide = module(padded, lengths=[samples, 4000], key=[3, 4])[0]
    torch.testing.assert_close(wide[:samples], alone, atol=1e-6, rtol=0)
    assert not wide[samples:].any()
    np.testing.assert_allclose(build_cpu(chain)(clip, key=3), alone, atol=1e-6)


GROWING = [
    ops.AdjustDuration(duration_samples=500, p=1.0),
    ops.ApplyImpulseResponse(ir_path=f"{DEMO}/rooms", leave_length_unchanged=False, p=1.0),
    ops.TimeStretch(min_rate=0.5, max_rate=0.6, leave_length_unchanged=False, p=1.0),
    ops.Mix(p=1.0),
    ops.SomeOf(1, [ops.AdjustDuration(duration_samples=500, p=1.0)]),
]


@pytest.mark.parametrize("op", GROWING, ids=lambda op: op.name)
def test_r2_10_an_empty_clip_in_a_padded_batch_stays_empty(op: Op) -> None:
    chain = Chain([op], RATE)
    y_BCT, lengths = build_device(chain)(torch.ones(3, 1, 400), lengths=[400, 0, 300], return_lengths=True)
    assert lengths[1] == 0 and not y_BCT[1].any() and y_BCT[2].any()
    if not chain.why_not_cut(1):
        assert build_cpu(chain)(np.zeros(0, np.float32)).shape == (0,)


def test_r2_10_labels_know_that_an_empty_clip_stays_empty() -> None:
    chain = Chain([ops.AdjustDuration(duration_samples=500, p=1.0)], RATE)
    wave, timeline = build_cpu(chain, 0).follow(np.zeros(0, np.float32), key=0)
    assert len(wave) == timeline.length_out == 0


@pytest.mark.parametrize("x", [np.ones((2, 100), np.float32), [[0.5, 0.5]], None], ids=["numpy", "a list", "nothing"])
def test_r2_11_non_tensor_raises(x: object) -> None:
    with pytest.raises(
        DataError, match=r"^Expected a batch as a tensor of shape \(B, T\) or \(B, C, T\), got .*as_tens"
    ):
        build_device(GAIN)(x)


@pytest.mark.parametrize("rate", [0, -5, 16000.5, float("nan"), True, "16000"])
def test_r2_11_invalid_sample_rate_raises_in_both_builds(rate: object) -> None:
    sentences = []
    for build in (build_cpu(GAIN), build_cpu(GAIN).follow, lambda x, rate: build_device(GAIN)(torch.ones(1, 8), rate)):
        with pytest.raises(DataError) as caught:
            build(CLIP, rate)  # type: ignore[operator]
        sentences.append(str(caught.value))
    assert sentences == [f"sample_rate is {rate!r}, but it must be a whole number of hertz, at least 1."] * 3


def test_r2_11_a_clip_that_is_trimmed_to_nothing_stays_so() -> None:
    chain = Chain([ops.Trim(top_db=0.0, p=1.0), ops.Gain(p=1.0), ops.Compose([ops.LowPassFilter(p=1.0)])], RATE)
    assert build_cpu(chain)(CLIP).shape == (0,) and build_cpu(chain)(np.ones((2, 16), np.float32)).shape == (2, 0)


@pytest.mark.parametrize("epoch", [1.5, 1.0, True, None, "1"])
def test_r2_11_non_integer_epoch_raises(epoch: object) -> None:
    sentence = rf"^epoch is {epoch!r}, but it must be an integer\.$"
    for build in (
        lambda **key: build_cpu(GAIN)(CLIP, key=1, **key),
        lambda **key: build_device(GAIN)(torch.ones(1, 8), key=[1], **key),
        lambda **key: GAIN.draw([1], **key),
    ):
        with pytest.raises(UsageError, match=sentence):
            build(epoch=epoch)
        build(epoch=np.int64(1))


def test_r2_11_what_is_no_key_or_no_seed_raises() -> None:
    for key in (1.5, True, [1], ("a", 1)):
        with pytest.raises(DataError, match=r"^A key must be a string, bytes or an integer, but it is "):
            build_cpu(GAIN)(CLIP, key=key)  # type: ignore[arg-type]
    for build in (build_cpu, build_device):
        with pytest.raises(UsageError, match=r"^seed is 1\.5, but it must be an integer\.$"):
            build(GAIN, seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="seed is 1"):
        split(GAIN, Plan(), seed=1.5)  # type: ignore[arg-type]


def test_r2_11_samples_before_channels_raise_equally_in_both_builds() -> None:
    with pytest.raises(DataError, match=r"^A clip has shape \(400, 2\): channels come first, \(C, T\)\. Transpose it"):
        build_cpu(GAIN)(np.ones((400, 2), np.float32))
    with pytest.raises(DataError, match=r"^A batch has shape \(3, 400, 2\): channels come first, \(B, C, T\)\. Transp"):
        build_device(GAIN)(torch.ones(3, 400, 2))


def test_r2_12_a_plain_checkpoint_loads_strictly_into_a_model_that_holds_the_module() -> None:
    plain, model = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.append(build_device(GAIN, seed=3))
    model[1](torch.ones(1, 4))
    keys = model.load_state_dict(plain.state_dict())
    assert not keys.missing_keys and torch.equal(plain[0].weight, model[0].weight) and model[1].stream.drawn == 1
    saved, expected = io.BytesIO(), None
    torch.save(model.state_dict(), saved)
    expected = model[1](torch.ones(1, 4))
    saved.seek(0)
    model.load_state_dict(torch.load(saved, weights_only=True))
    assert torch.equal(model[1](torch.ones(1, 4)), expected)


def test_r2_12_other_missing_keys_still_raise() -> None:
    class Stateful(torch.nn.Module):
        def get_extra_state(self) -> int:
            return 1

        def set_extra_state(self, state: int) -> None: ...

    model = torch.nn.Sequential(Stateful(), build_device(GAIN), Stateful(), torch.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state", "2._extra_state", "3.w'):
        model.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state", "2._extra_state", "3.w'):
        model.load_state_dict({"1._extra_state": build_device(GAIN).get_extra_state()})
    assert model.load_state_dict({}, strict=False).missing_keys[:2] == ["0._extra_state", "2._extra_state"]


@pytest.mark.parametrize("weights", [[1, 3], [0.1, 0.2, 0.7], [1, 1, 1], [0, 5, 2], [3, 7, 11]])
def test_r2_14_weights_that_audiomentations_normalises_keep_the_chains_hash(weights: list[float]) -> None:
    picked = [ops.Gain(), ops.Clip(), ops.Reverse()][: len(weights)]
    chain = Chain([ops.Compose([ops.OneOf(picked, weights=weights)], shuffle=True)], RATE)
    again = Chain.from_audiomentations(chain.to_audiomentations(), RATE)
    assert again.hash == chain.hash and again.draw(range(999)) == chain.draw(range(999))
    assert Chain.from_dict(chain.to_dict()).hash == chain.hash
    other = Chain([ops.Compose([ops.OneOf(picked, weights=[*weights[1:], 17])], shuffle=True)], RATE)
    assert other.hash != chain.hash


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32])
def test_r2_05_lengths_may_be_any_integers(kind: type) -> None:
    y_BT, length_B = build_device(GAIN)(torch.ones(2, 8), lengths=np.array([3, 8], kind), return_lengths=True)
    assert length_B.tolist() == [3, 8] and not y_BT[0, 3:].any()


@pytest.mark.parametrize("lengths", [[None, 3], ["a", "b"]])
def test_r2_05_non_numeric_lengths_are_one_clear_error(lengths: list[object]) -> None:
    with pytest.raises(DataError, match="lengths must be 2 numbers from 0 to 8"):
        build_device(GAIN)(torch.ones(2, 8), lengths=lengths)


def test_r2_12_a_state_of_an_earlier_version_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="a tensor of two integers, got dict"):
        build_device(GAIN).set_extra_state({"seed": 0, "drawn": 3})
