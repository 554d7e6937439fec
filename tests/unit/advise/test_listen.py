"""Examples to listen to: the right ones, both builds on the same draws, and a verdict that detects a fault."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import ops
from audioaug.advise import listen as listening
from audioaug.advise.listen import (
    AUDIO_BYTES,
    apart,
    by_new_transforms,
    listen,
    named,
    on_device_where_possible,
    own_draws,
    size_that_fits,
)
from audioaug.advise.model_file import load_training_job
from audioaug.advise.training_job import TrainingJob
from audioaug.core import Chain, Op
from audioaug.verify.noise import Clips
from audioaug.verify.replay import on_cpu

RATE = 16000


@pytest.fixture(scope="module")
def loaded() -> TrainingJob:
    return load_training_job(str(Path("scripts/models/keyword_cnn.py")), torch.device("cpu"))


def target_of(loaded: TrainingJob, *chain: Op, dataset: Any = None) -> TrainingJob:
    return replace(loaded, chain=Chain(chain, RATE), dataset=loaded.dataset if dataset is None else dataset)


def verdicts(found: listening.Listening) -> dict[str, str]:
    assert found.verdicts is not None, found.lines
    return {row.values[0]: row.values[-1] for row in found.verdicts.rows}


def test_both_builds_are_rendered_and_keep_their_contracts(loaded: TrainingJob) -> None:
    found = listen(target_of(loaded, ops.Gain(p=1.0), ops.AddGaussianNoise(p=1.0), ops.LowPassFilter(p=0.5)))
    assert verdicts(found) == {"Gain": "kept", "AddGaussianNoise": "kept", "LowPassFilter": "kept"}
    assert len(found.examples) == 4 and "Gain, AddGaussianNoise, LowPassFilter." in found.examples[0].words
    assert found.examples[0].words.endswith("Not promised sample for sample: AddGaussianNoise.")
    assert [sound.label for sound in found.examples[0].sounds] == ["dry", "reference build", "device build"]
    assert found.examples[0].name.endswith(".flac") and found.examples[0].name.count("/") == 1
    assert sum(len(sound.audio) for example in found.examples for sound in example.sounds) < AUDIO_BYTES


def test_a_planted_fault_is_reported(loaded: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    right = listening.on_device
    wrong = lambda *given, **more: [x_CT * 1.01 for x_CT in right(*given, **more)]  # noqa: E731
    monkeypatch.setattr(listening, "on_device", wrong)
    found = listen(target_of(loaded, ops.Gain(p=1.0)))
    assert verdicts(found)["Gain"].startswith("broken: clip ") and "40 dB below the peak" in found.examples[0].words


def test_containers_and_ops_that_were_not_applied(loaded: TrainingJob) -> None:
    exact = ops.OneOf([ops.Gain(p=1.0), ops.PolarityInversion(p=1.0)])
    mixed = ops.SomeOf(1, [ops.Gain(p=1.0), ops.AddGaussianNoise(p=1.0)])
    found = verdicts(listen(target_of(loaded, exact, mixed, ops.Reverse(p=0.0))))
    assert found["OneOf"] == "kept" and found["SomeOf"].startswith("not compared")
    assert found["Reverse"] == "not applied in these examples"


def test_transforms_around_one_that_only_runs_in_workers_are_compared(loaded: TrainingJob) -> None:
    found = listen(target_of(loaded, ops.Gain(p=1.0), ops.Mp3Compression(p=1.0), ops.PolarityInversion(p=1.0)))
    assert verdicts(found) == {"Gain": "kept", "Mp3Compression": "runs only in workers", "PolarityInversion": "kept"}
    assert "Gain, Mp3Compression, PolarityInversion" in found.examples[0].words
    alone = listen(target_of(loaded, ops.Mp3Compression(p=1.0)))
    assert "nothing to compare" in alone.lines[0].text and not alone.examples


def test_single_transforms_in_order_equal_the_chain() -> None:
    inner = ops.OneOf([ops.Gain(p=0.9), ops.SomeOf(1, [ops.LowPassFilter(p=1.0), ops.AddGaussianNoise(p=1.0)])])
    chain = Chain([ops.Gain(), inner, ops.AddGaussianNoise(), *[ops.PolarityInversion()] * 8, ops.Shift()], RATE)
    clips: Clips = [np.random.default_rng(row).normal(0, 0.1, (1, 900)).astype(np.float32) for row in range(5)]
    draws, found = chain.draw(range(5), seed=3), clips
    for place, op in enumerate(chain.ops):
        found = on_cpu(Chain([op], RATE), found, RATE, own_draws(draws, place, place + 1))
    for one_by_one, together in zip(found, on_cpu(chain, clips, RATE, draws)):
        np.testing.assert_array_equal(one_by_one, together)


def test_as_much_as_possible_runs_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain([ops.Gain(), ops.LowPassFilter(), ops.Mp3Compression(), *[ops.PolarityInversion()] * 9], RATE)
    clips: Clips = [np.random.default_rng(row).normal(0, 0.1, (1, 9000)).astype(np.float32) for row in range(3)]
    draws, parts, right = chain.draw(range(3), seed=3), list[int](), listening.on_device

    def counted(part: Chain, *given: Any, **more: Any) -> Clips:
        parts.append(len(part))
        return right(part, *given, **more)

    monkeypatch.setattr(listening, "on_device", counted)
    found = on_device_where_possible(chain, clips, draws, "cpu")
    for built, reference in zip(found, on_cpu(chain, clips, RATE, draws)):
        np.testing.assert_allclose(built, reference, atol=1e-3)
    assert parts == [2, 9]


def test_a_sound_that_equals_the_one_before_is_left_out() -> None:
    dry, other = np.full((1, 8), 0.5, np.float32), np.full((1, 8), 0.4, np.float32)
    assert list(named(dry, other, other + 2e-5)) == ["dry", "reference build = device build"]
    assert list(named(dry, dry, other)) == ["dry = reference build", "device build"]
    assert list(named(dry, dry, dry)) == ["dry = reference build = device build"]
    assert list(named(dry, other, other + 1e-4)) == ["dry", "reference build", "device build"]
    assert list(named(dry, other, other[:, :7])) == ["dry", "reference build", "device build"]


class Partly:
    """A dataset in which one example of eight is readable."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index % 8:
            raise OSError("broken")
        return np.full((1, 800), 0.1, np.float32)


def test_broken_examples_are_skipped(loaded: TrainingJob) -> None:
    found = listen(target_of(loaded, ops.Gain(p=1.0), dataset=Partly()))
    assert {int(example.name.removeprefix("example ")) % 8 for example in found.examples} == {0}


def test_a_failure_is_one_sentence(loaded: TrainingJob) -> None:
    nothing = listen(target_of(loaded, ops.Gain(p=1.0), dataset=[None] * 5))
    assert nothing.lines[0].text == "No examples to listen to: none of the sampled examples could be read."
    unlike = [np.zeros((channels, 800), np.float32) for channels in (1, 2, 3)]
    assert (
        listen(target_of(loaded, ops.Gain(p=1.0), dataset=unlike))
        .lines[0]
        .text.startswith("No examples to listen to: ")
    )


def test_each_example_adds_transforms_not_shown_before() -> None:
    sets = [frozenset(names) for names in ("a", "ab", "c", "abd")]
    assert by_new_transforms(sets) == [3, 2, 1, 0]


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 96000])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_played_audio_fits_on_the_page(rate: int, channels: int) -> None:
    clips = [np.zeros((channels, 10 * rate), np.float32)] * 4
    count, samples = size_that_fits(clips, rate)
    assert 1 <= count <= 4 and 0.7 * rate <= samples <= 4 * rate
    assert count * 3 * min(2, channels) * samples * 2 * 0.7 * 4 / 3 <= AUDIO_BYTES
    assert size_that_fits([clip[:, :100] for clip in clips], rate)[0] == 4


def test_difference_of_two_results_in_words() -> None:
    one = np.asarray([[0.5, -1.0]], np.float32)
    assert apart(one, one) == "The two results are bit-identical."
    assert "20 dB below the peak" in apart(one, one * np.float32(1.1))
    assert apart(one, one[:, :1]) == "The two results differ in length."
    assert apart(0 * one, one) == "The reference is silent, the device build is not."
