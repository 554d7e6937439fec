"""AddShortNoises with sounds that are really short: bursts, fades of all lengths, silence, sounds of one sample."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import audiomentations
import numpy as np
import pytest
import soundfile
import torch

from audioaug import build_cpu, build_device, ops
from audioaug.audio.files import find_audio, read_audio
from audioaug.core import Chain
from audioaug.engine import WorkerChain
from audioaug.errors import ChainError, DataError
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay

RATE = 16000
OFTEN = {"min_time_between_sounds": 0.02, "max_time_between_sounds": 0.3}
RARE: list[dict[str, Any]] = [
    {},
    {"noise_rms": "relative"},
    {"noise_rms": "absolute"},
    {"add_all_noises_with_same_level": True},
    {"include_silence_in_noise_rms_estimation": False},
    {"include_silence_in_noise_rms_estimation": False, "noise_rms": "relative"},
    {"signal_gain_db_during_noise": -100.0},
    {"signal_gain_in_db_during_noise": 12.0, "noise_rms": "relative"},
    {"signal_gain_db_during_noise": 0.0},
    {"min_fade_in_time": 0.0, "max_fade_in_time": 0.0001},
    {"min_fade_out_time": 0.0001, "max_fade_out_time": 0.0002},
    {"min_fade_in_time": 2.0, "max_fade_in_time": 3.0, "min_fade_out_time": 2.0, "max_fade_out_time": 3.0},
    {"burst_probability": 0.9, "min_pause_factor_during_burst": 0.01},
    {"burst_probability": 1.0, "max_pause_factor_during_burst": 4.0},
    {"min_time_between_sounds": 0.0, "max_time_between_sounds": 0.0},
    {"min_snr_db": -40.0, "max_snr_db": -30.0},
    {"min_snr_db": 90.0, "max_snr_db": 100.0},
]


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of 2 to 400 ms, half of them with a pause, one of a single sample, one silent."""
    folder, rng = tmp_path_factory.mktemp("bits"), np.random.default_rng(0)
    for number, path in enumerate(find_audio((material.folder_at("noise", RATE),))):
        x_T = read_audio(path, RATE)[0]
        length = int(rng.uniform(0.002, 0.4) * RATE)
        x_T = x_T[rng.integers(0, len(x_T) - length) :][:length].copy()
        x_T[length // 3 : length // 2] *= number % 2
        soundfile.write(folder / f"{number}.wav", x_T, RATE, subtype="FLOAT")
    soundfile.write(folder / "one.wav", np.ones(1), RATE, subtype="FLOAT")
    soundfile.write(folder / "silence.wav", np.zeros(500), RATE, subtype="FLOAT")
    return str(folder)


@pytest.mark.filterwarnings("ignore:The signal_gain_in_db_during_noise parameter is deprecated:DeprecationWarning")
@pytest.mark.parametrize("arguments", RARE, ids=str)
def test_short_sounds_keep_the_contract(arguments: dict[str, Any], bits: str) -> None:
    op = ops.AddShortNoises(sounds_path=bits, p=1.0, **{**OFTEN, **arguments})
    for seed in range(3):
        clips = material.signals(RATE)
        clips = material.equal_lengths(clips, 9000) if seed else clips
        replayed = replay(op, clips, RATE, seed=seed)
        verdict = check(op.contract, *replayed)
        assert verdict.status == "passed", verdict.reason
        assert any((wet != dry).any() for dry, wet in zip(clips, replayed.built))


def test_a_clip_has_several_sounds_that_overlap(bits: str) -> None:
    """What the tests above rest on: the schedules hold bursts, sounds that stick out on both sides, and silence."""
    op = ops.AddShortNoises(sounds_path=bits, **OFTEN)
    chain = Chain([op], RATE)
    seen = set()
    for draw in chain.draw(np.arange(50)):
        sounds = op.replay({"schedule_key": draw["0:schedule_key"][0]}, np.zeros(RATE, np.float32), RATE)["sounds"]
        seen |= {"begun before"} if any(sound["start"] < 0 < sound["end"] for sound in sounds) else set()
        seen |= {"over before"} if any(sound["end"] < 0 for sound in sounds) else set()
        seen |= {"cut off"} if any(sound["end"] > 1 for sound in sounds) else set()
        seen |= {"overlap"} if any(a["end"] > b["start"] for a, b in pairwise(sounds)) else set()
        seen |= {"several"} if len(sounds) > 4 else set()
    assert seen == {"begun before", "over before", "cut off", "overlap", "several"}


def test_sounds_at_another_rate_differ_only_by_their_last_sample() -> None:
    for rate in (8000, 44100):
        op = ops.AddShortNoises(sounds_path=material.folder_at("noise", RATE), p=1.0, max_time_between_sounds=3.0)
        for dry, reference, built in zip(*replay(op, material.signals(rate), rate)):
            assert np.abs(reference - built).max() <= 1e-3 * np.abs(reference - dry).max()


def test_a_row_with_a_bad_number_spoils_no_other(bits: str) -> None:
    for noise_rms in ("relative", "relative_to_whole_input"):
        gain = {"noise_rms": noise_rms, "signal_gain_db_during_noise": -6.0}
        module = build_device(Chain([ops.AddShortNoises(sounds_path=bits, p=1.0, **OFTEN, **gain)], RATE))
        x = torch.randn(6, 1, RATE, generator=torch.Generator().manual_seed(0))
        draws = module.chain.draw(range(6))
        clean = module(x, draws=draws)
        x[2] = float("nan")
        spoilt = module(x, draws=draws)
        assert spoilt[2].isnan().all() and torch.equal(spoilt[[0, 1, 3, 4, 5]], clean[[0, 1, 3, 4, 5]])


def test_gradients_are_finite_where_sounds_fall_on_silence(bits: str) -> None:
    module = build_device(Chain([ops.AddShortNoises(sounds_path=bits, p=1.0, noise_rms="relative", **OFTEN)], RATE))
    x = torch.randn(4, 1, RATE, generator=torch.Generator().manual_seed(0))
    x[:, :, 2000:9000] = 0.0
    x[3] = 0.0
    x.requires_grad_()
    module(x).square().sum().backward()
    assert x.grad.isfinite().all()


REFUSED = {
    "burst_probability is 0, but it must be greater than 0": {"burst_probability": 0.0},
    "min_pause_factor_during_burst is 0, but": {"min_pause_factor_during_burst": 0.0},
    "min_pause_factor_during_burst is 1.05, but it must be between 0 and 1": {"min_pause_factor_during_burst": 1.05},
    "max_absolute_noise_rms_db is 0, but it must be less than 0": {"max_absolute_noise_rms_db": 0.0},
    "min_time_between_sounds is -1, but it must be at least 0": {"min_time_between_sounds": -1.0},
    "min_fade_in_time is 1.0, but it must not be greater than max_fade_in_time": {"min_fade_in_time": 1.0},
    "deprecated name": {"signal_gain_db_during_noise": -6.0, "signal_gain_in_db_during_noise": -6.0},
    "noise_transform is not supported": {"noise_transform": audiomentations.Gain()},
    "signal_gain_db_during_noise is 'loud', but it must be a number": {"signal_gain_db_during_noise": "loud"},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_impossible_arguments_raise(sentence: str, bits: str) -> None:
    with pytest.raises(ChainError, match=sentence):
        ops.AddShortNoises(sounds_path=bits, **REFUSED[sentence])


def test_folder_without_audio_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no audio"):
        Chain([ops.AddShortNoises(sounds_path=tmp_path)], RATE).draw([0])


def test_fades_out_of_less_than_a_sample_are_none_also_where_the_reference_refuses_them(bits: str) -> None:
    op = ops.AddShortNoises(sounds_path=bits, p=1.0, min_fade_out_time=0.0, max_fade_out_time=0.0, **OFTEN)
    chain, x_T = Chain([op], RATE), material.signals(RATE)[0][0]
    worker = build_cpu(chain)
    y_T, (expected_T,) = worker(x_T, key=0), build_device(chain)(torch.from_numpy(x_T)[None], key=[0])
    assert np.isfinite(y_T).all() and np.array_equal(y_T, expected_T)
    with pytest.raises(DataError, match="AddShortNoises: audiomentations refuses"):
        WorkerChain(chain, 1, fallback=False)(x_T, key=0)


def test_both_names_of_the_gain_come_back_from_audiomentations(bits: str) -> None:
    with pytest.warns(DeprecationWarning, match="signal_gain_in_db_during_noise"):
        old = audiomentations.AddShortNoises(bits, signal_gain_in_db_during_noise=-3.0)
    new = audiomentations.AddShortNoises(bits, signal_gain_db_during_noise=-3.0)
    none = audiomentations.AddShortNoises(bits)
    found = [Chain.from_audiomentations(reference, RATE).ops[0] for reference in (old, new, none)]
    assert [op.signal_gain_in_db_during_noise for op in found] == [-3.0, None, None]
    assert [op.signal_gain_db_during_noise for op in found] == [None, -3.0, None]
