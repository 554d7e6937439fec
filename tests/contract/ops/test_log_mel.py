"""LogMel: what librosa makes of each clip, wherever it is made; always last, always applied; what comes after it."""

from collections.abc import Callable
from typing import Any

import librosa
import numpy as np
import pytest
import torch

from audioaug import Chain, Frames, Loader, Plan, build_cpu, build_device, ops, prefetch, split
from audioaug.core import Contract, follow
from audioaug.errors import ChainError, DataError
from audioaug.integrations.ray import Augment
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay, verify_op

RATE = 16000
SMALL = {"n_fft": 512, "hop_length": 160, "n_mels": 40}
OPTIONS = [{}, {**SMALL, "win_length": 400, "htk": True, "norm": "none", "fmin": 60.0}]
CHAIN = Chain(
    [ops.Gain(p=0.5), ops.AdjustDuration(duration_samples=6000, p=0.5), ops.Reverse(p=0.5), ops.LogMel(**SMALL)], RATE
)
PLACEMENTS = [
    Plan(cut=0),
    Plan(cut=2),
    Plan(cut=3),
    Plan(cut=4),
    Plan(cut=3, worker_engine="batched", num_workers=1),
    Plan(cut=4, worker_engine="batched", num_workers=2),
    Plan(cut=4, num_workers=2),
]


def clips(channels: int = 1) -> list[np.ndarray]:
    """Return eight clips of unequal lengths, (T,) or (C, T)."""
    return [x_CT[0] if channels == 1 else x_CT for x_CT in material.signals(RATE, channels)]


def assert_equal_by_contract(features: list[np.ndarray], others: list[np.ndarray]) -> None:
    three = [[each.reshape(-1, *each.shape[-2:]) for each in part] for part in (features, others)]
    verdict = check(Contract.log_spectrum(db=0.05, down_to_db=60.0), three[0], *three)
    assert verdict.status == "passed", verdict.reason


def batches(dataset: Any, plan: Plan, **options: Any) -> list[Any]:
    return list(Loader(dataset, CHAIN, plan, batch_size=3, pad=True, device="cpu", **options))


# What it makes


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_are_those_of_librosa(options: dict[str, Any]) -> None:
    named = {"n_fft": 2048, "hop_length": 512, "n_mels": 128, **options}
    named["norm"] = None if named.get("norm") == "none" else "slaney"
    worker, module = (build(Chain([ops.LogMel(**options)], RATE)) for build in (build_cpu, build_device))
    for wave in clips()[:3]:
        power = librosa.feature.melspectrogram(y=wave, sr=RATE, pad_mode="constant", **named)
        expected = librosa.power_to_db(power, top_db=None)
        assert np.abs(worker(wave) - expected).max() < 1e-3
        assert_equal_by_contract([expected], [module(torch.from_numpy(wave)[None])[0].numpy()])


def test_gradients_are_those_of_differences() -> None:
    module = build_device(Chain([ops.LogMel(**SMALL)], RATE))
    x = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)) * 0.1
    weights = torch.randn(2, 40, 7, generator=torch.Generator().manual_seed(1))

    def total(x_BT: torch.Tensor) -> torch.Tensor:
        return (module(x_BT) * weights).sum()

    leaf = x.clone().requires_grad_()
    total(leaf).backward()  # type: ignore[no-untyped-call]
    towards = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    difference = (total(x + 1e-4 * towards) - total(x - 1e-4 * towards)) / 2e-4
    assert leaf.grad is not None
    assert float((leaf.grad * towards).sum()) == pytest.approx(float(difference), rel=0.02)


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one frame late": lambda y: y.roll(1, -1),
    "0.02 dB louder": lambda y: y + 0.02,
    "one band up": lambda y: y.roll(1, -2),
    "natural logarithms": lambda y: y * 0.2302585,
    "the other row's": lambda y: y.roll(1, 0),
    "noise in pauses": lambda y: y.clamp(min=float(y.max()) - 70.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ops.LogMel.batched
    monkeypatch.setattr(ops.LogMel, "batched", lambda *arguments: FAULTS[fault](right(*arguments)))
    assert verify_op(ops.LogMel, sample_rates=(RATE,)).status == "failed"


def test_what_is_far_below_the_loudest_is_not_compared() -> None:
    contract, loud = Contract.log_spectrum(db=0.01, down_to_db=80.0), np.zeros((1, 4, 5), np.float32)
    for level, passes in ((-81.0, True), (-79.0, False)):
        quiet, other = loud.copy(), loud.copy()
        quiet[0, 2, 3], other[0, 2, 3] = -100.0, level
        for pair in ((quiet, other), (other, quiet)):
            assert (check(contract, [loud], *([each] for each in pair)).status == "passed") is passes
    assert check(contract, [loud], [np.zeros((1, 4, 0))], [np.zeros((1, 4, 0))]).status == "passed"


# Where it is made


@pytest.mark.parametrize("channels", [1, 2])
def test_a_loader_gives_the_same_features_for_every_placement(channels: int) -> None:
    dataset = [(torch.from_numpy(wave), row) for row, wave in enumerate(clips(channels))]
    found = {plan: batches(dataset, plan) for plan in PLACEMENTS}
    for plan, epoch in found.items():
        for (features, _, frames), (others, _, other_frames) in zip(epoch, found[PLACEMENTS[0]], strict=True):
            assert features.shape == others.shape and features.shape[1:-1] == ((2, 40) if channels == 2 else (40,))
            assert frames.tolist() == other_frames.tolist() and features.shape[-1] == max(frames.tolist()), plan
            for row, other, count in zip(features.numpy(), others.numpy(), frames.tolist()):
                assert_equal_by_contract([row[..., :count]], [other[..., :count]])
                assert (row[..., count:] == CHAIN.silence).all() and (other[..., count:] == CHAIN.silence).all()


def test_labels_follow_the_audio_as_without_features() -> None:
    dataset = [{"audio": wave, "active": np.arange(len(wave) // 160)} for wave in clips()]
    targets = {"active": Frames(hop_seconds=0.01)}
    bare = list(Loader(dataset, Chain(CHAIN.ops[:-1], RATE), pad=True, batch_size=8, device="cpu", targets=targets))
    for plan in PLACEMENTS:
        [batch] = Loader(dataset, CHAIN, plan, pad=True, batch_size=8, device="cpu", targets=targets)
        for found, expected in zip(batch["active"], bare[0]["active"]):
            assert torch.equal(found, expected)
        assert batch["lengths"].tolist() == [1 + samples // 160 for samples in bare[0]["lengths"].tolist()]


def test_features_of_parts_and_of_ray_are_those_of_the_loader() -> None:
    waves = [wave[:4000] for wave in clips() if len(wave) >= 4000]
    chain = Chain([ops.Gain(p=0.5), ops.LogMel(**SMALL)], RATE)
    [expected] = Loader(waves, chain, Plan(cut=2), batch_size=len(waves), device="cpu")
    augmented = Augment(chain)({"audio": np.stack(waves), "key": np.arange(len(waves))})
    assert np.array_equal(augmented["audio"], expected.numpy())
    for cut in (0, 2):
        worker, module = split(chain, Plan(cut=cut))
        made = [(torch.from_numpy(worker(wave, key=key)), key) for key, wave in enumerate(waves)]
        [(features, _)] = prefetch(torch.utils.data.DataLoader(made, batch_size=len(waves)), "cpu", module, key=1)
        assert_equal_by_contract([*features.numpy()], [*expected.numpy()])


def test_a_collate_fn_gets_features() -> None:
    def collate(examples: list[Any]) -> Any:
        assert all(wave.ndim == 2 for wave, _ in examples)
        width = max(wave.shape[-1] for wave, _ in examples)
        return torch.stack([torch.nn.functional.pad(wave, (0, width - wave.shape[-1])) for wave, _ in examples]), "text"

    dataset = list(zip(clips(), range(8)))
    for batch, _ in Loader(dataset, CHAIN, batch_size=4, device="cpu", collate_fn=collate):
        assert batch.shape[:2] == (4, 40)
    with pytest.raises(DataError, match=r"to stack 4 clips to one tensor, \(B, F, N\) or \(B, C, F, N\), got"):
        next(iter(Loader(dataset, CHAIN, batch_size=4, device="cpu", collate_fn=lambda them: [torch.zeros(4, 9)])))


@pytest.mark.parametrize("plan", PLACEMENTS)
def test_validation_gets_features_without_augmentation(plan: Plan) -> None:
    dry = build_cpu(Chain([ops.LogMel(**SMALL)], RATE))
    assert all(batch.shape[1] == 40 for batch, _ in batches(clips(), plan, augment=False))
    [(batch, frames)] = Loader(clips(), CHAIN, plan, batch_size=8, pad=True, device="cpu", augment=False)
    for row, wave, count in zip(batch.numpy(), clips(), frames.tolist()):
        assert_equal_by_contract([row[:, :count]], [dry(wave)])


def test_a_module_in_eval_makes_features_and_draws_nothing() -> None:
    module, x = build_device(CHAIN).eval(), torch.from_numpy(np.stack([clips()[0][:4000]] * 3))
    y, frames = module(x, lengths=[4000, 2000, 0], return_lengths=True)
    assert frames.tolist() == [26, 13, 0] and module.stream.drawn == 0
    assert torch.equal(y[0], build_device(CHAIN.without_augmentation())(x)[0])
    assert (y[2] == CHAIN.silence).all() and torch.equal(module(x, lengths=[4000, 2000, 0]), y)
    after = split(CHAIN, Plan(cut=4))[1]
    assert after(y) is y and after.eval()(y) is y


def test_clips_without_samples_have_no_frames() -> None:
    assert build_cpu(CHAIN)(np.zeros(0, np.float32)).shape == (40, 0)
    assert build_cpu(CHAIN)(np.zeros((2, 0), np.float32)).shape == (2, 40, 0)
    assert build_cpu(CHAIN)(np.zeros((1, 400), np.float32)).shape[:2] == (1, 40)


def test_time_is_followed_as_samples() -> None:
    wave = clips()[0]
    for key in range(8):
        _, timeline = build_cpu(CHAIN).follow(wave, key=key)
        draws = CHAIN.draw([key])
        [[expected]] = follow(CHAIN, draws, [timeline.identity(len(wave))], stop=3)
        assert timeline.length_out == expected.timeline.length_out


# What is refused

REFUSED = {
    "LogMel must be the last op of a chain": lambda: Chain([ops.LogMel(), ops.Gain()], RATE),
    "OneOf: LogMel cannot be inside it. Put it last": lambda: ops.OneOf([ops.Gain(), ops.LogMel()]),
    "p is 0.5, but every example needs its features": lambda: ops.LogMel(p=0.5),
    "win_length is 4096, but a frame .* has 2048": lambda: ops.LogMel(win_length=4096),
    "fmax is 50, but it must be greater than fmin": lambda: ops.LogMel(fmin=60.0, fmax=50.0),
    "fmax is 9000 Hz, but audio at 16 kHz ends at 8000": lambda: build_device(Chain([ops.LogMel(fmax=9000.0)], RATE))(
        torch.zeros(1, 9)
    ),
    "13 of 128 mel bands .* stay empty": lambda: build_device(Chain([ops.LogMel(n_fft=256)], RATE))(torch.zeros(1, 9)),
    "no LogMel, which is a transform of librosa": lambda: CHAIN.to_audiomentations(),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_sentence_says_what_is_wrong(sentence: str) -> None:
    with pytest.raises(ChainError, match=sentence):
        REFUSED[sentence]()


def test_replay_pads_features_with_their_silence() -> None:
    replayed = replay(CHAIN, material.signals(RATE), RATE, cut=4)
    assert all(np.array_equal(one, other) for one, other in zip(replayed.reference, replayed.built))
