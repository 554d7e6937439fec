"""The field with the audio: named by the user or found by a rule, and the same in the batch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from audioaug import Chain, Label, Loader, Plan, Stamps, ops, prefetch, split
from audioaug.errors import DataError, UsageError
from audioaug.loader.examples import audio_field, get_wave, samples_of, with_wave

CHAIN = Chain([ops.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)], sample_rate=16000)
WAVE, LABELS, SPECTROGRAM = torch.ones(4000), torch.zeros(12), torch.zeros(80, 26)


def loader_of(dataset: Any, **options: Any) -> Loader:
    return Loader(dataset, CHAIN, device="cpu", **{"batch_size": 2, **options})


class Decoder:
    """Like the decoder that ``datasets`` 4 returns."""

    def get_all_samples(self) -> None: ...

    def __getitem__(self, name: str) -> Any:
        return {"array": np.ones(400, np.float32), "sampling_rate": 16000}[name]


@pytest.mark.parametrize(
    ("example", "field"),
    [
        (WAVE, None),
        (WAVE.numpy(), None),
        ((WAVE, 3), 0),
        ([WAVE, 3], 0),
        ({"targets": torch.zeros(90000), "audio": torch.ones(4)}, "audio"),
        ({"label": torch.arange(9000), "mask": torch.ones(9000, dtype=torch.bool), "wav": torch.ones(4)}, "wav"),
        ({"targets": LABELS, "mel": SPECTROGRAM, "share": 0.5, "path": "a.wav", "wav": WAVE}, "wav"),
        ({"wav": WAVE.numpy(), "targets": LABELS}, "wav"),
        ({"input_values": WAVE.tolist(), "labels": [1, 2, 3]}, "input_values"),
        ({"wav": torch.ones(4000, 2), "targets": LABELS}, "wav"),
        ({"wav": torch.ones(8, 2, 4000), "targets": torch.ones(8, 12)}, "wav"),
        ({"embedding": torch.ones(90000), "speech": {"array": np.ones(8), "sampling_rate": 16000}}, "speech"),
        ({"embedding": torch.ones(90000), "speech": Decoder()}, "speech"),
    ],
)
def test_audio_field_is_found(example, field):
    assert audio_field(example) == field
    wave = torch.zeros(5)
    changed = with_wave(example, wave, field)
    assert get_wave(changed, field) is wave and get_wave(example, field) is not wave
    assert type(changed) is type(example) or field is None


@pytest.mark.parametrize(
    ("example", "sentence"),
    [
        (
            {"noisy": WAVE, "clean": WAVE.numpy(), "id": 7},
            "An example is a dict with 'noisy' (float32, (4000,)), 'clean' (float32, (4000,)), 'id' (int): 'noisy' and "
            "'clean' can be the audio. Name one, for example audio_key='noisy'.",
        ),
        ({"wav": torch.ones(100), "targets": LABELS}, "'wav' and 'targets' can be the audio"),
        ({"a": Decoder(), "b": Decoder(), "c": WAVE}, "'a', 'b' and 'c' can be the audio"),
        (
            {"label": torch.arange(3), "path": "a.wav"},
            "An example is a dict with 'label' (int64, (3,)), 'path' (str): no field can be audio, that is, a "
            "floating-point array. Give audio_key the key of the audio.",
        ),
        ("a.wav", "An example is a str: expected a wave, a tuple that starts with one, or a dict"),
    ],
)
def test_ambiguous_examples_are_refused(example, sentence):
    with pytest.raises(DataError) as caught:
        audio_field(example)
    assert sentence in str(caught.value)
    with pytest.raises(DataError) as caught:
        next(iter(loader_of([example] * 2)))
    assert sentence.replace("An example", "Example 0") in str(caught.value)


def test_wave_is_more_than_10_times_longer_than_other_fields():
    assert audio_field({"wav": torch.ones(121), "targets": LABELS}) == "wav"
    with pytest.raises(DataError, match="can be the audio"):
        audio_field({"wav": torch.ones(120), "targets": LABELS})


def test_audio_key_names_the_field():
    assert audio_field({"noisy": WAVE, "clean": WAVE}, "clean") == "clean"
    assert audio_field((3, WAVE), 1) == audio_field((3, WAVE), -1) == 1
    assert samples_of((3, WAVE), 16000, 1).shape == (4000,)
    for example, key in (((3, WAVE), 2), (WAVE, "wav"), ({"audio": WAVE}, "wav"), ((WAVE, 3), "wav")):
        with pytest.raises(DataError, match=f"An example has no field {key!r}: it is a .* Give audio_key the key"):
            audio_field(example, key)


PLANS = [Plan(cut=0), Plan(cut=1), Plan(cut=1, worker_engine="batched"), Plan(cut=0, num_workers=2)]


@pytest.mark.parametrize("plan", PLANS, ids=["device", "clips", "batches", "2 workers"])
@pytest.mark.parametrize(
    ("example", "options", "key"),
    [
        ({"label": 3, "wav": WAVE, "targets": LABELS}, {}, "wav"),
        ({"clean": WAVE, "noisy": WAVE}, {"audio_key": "noisy"}, "noisy"),
        ((3, WAVE), {"audio_key": 1}, 1),
        ((3, WAVE), {"audio_key": -1, "pad": True}, 1),
        ({"wav": WAVE, "n": 4000}, {"lengths": "n"}, "wav"),
        ((WAVE, 3), {}, 0),
        (WAVE, {}, None),
    ],
)
def test_only_the_audio_field_is_augmented(plan, example, options, key):
    loader = loader_of([example] * 4, plan=plan, **options)
    for batch in loader:
        audio = get_wave(batch, key)
        torch.testing.assert_close(audio, torch.full((2, 4000), 10**0.3))
        if key == "noisy":
            assert torch.equal(batch["clean"], torch.ones(2, 4000))
    assert loader.audio_key == key


def test_audio_key_is_available_after_first_batch():
    assert loader_of([{"wav": WAVE}]).audio_key is None
    assert loader_of([{"wav": WAVE}], audio_key="wav").audio_key == "wav"


class Streamed(IterableDataset[Any]):
    def __init__(self, examples: list[Any]) -> None:
        self.examples = examples

    def __iter__(self) -> Any:
        return iter(self.examples)


@pytest.mark.parametrize("workers", [0, 2])
def test_stream_with_audio_key_targets_and_lengths(workers):
    example = {"clean": WAVE, "wav": WAVE, "beats": [0.1], "n": 3000}
    chain = Chain([ops.Reverse(p=1.0)], sample_rate=16000)
    options: dict[str, Any] = {"audio_key": "wav", "targets": {"beats": Stamps()}, "lengths": "n", "batch_size": 2}
    for batch in Loader(Streamed([example] * 4), chain, Plan(num_workers=workers), device="cpu", **options):
        assert (
            batch["wav"].shape == (2, 3000) and batch["clean"].shape == (2, 4000) and batch["n"].tolist() == [3000] * 2
        )
        assert [round(beat.item(), 4) for beat in batch["beats"]] == [0.0875] * 2
    padded = Loader(Streamed([{"wav": WAVE}, {"wav": WAVE[:100]}]), CHAIN, device="cpu", batch_size=2, pad=True)
    [batch] = padded
    assert batch["wav"].shape == (2, 4000) and batch["lengths"].tolist() == [4000, 100]


def test_target_must_not_be_the_audio_field():
    loader = loader_of([(1, WAVE)] * 2, audio_key=1, targets={0: Label(classes=2)})
    assert [batch[0].tolist() for batch in loader] == [[[0.0, 1.0]] * 2]
    for example, key in (({"wav": WAVE}, "wav"), ((WAVE, 1), 0), ({"audio": WAVE}, "audio")):
        with pytest.raises(UsageError, match=f"targets names {key!r}, which is the audio itself"):
            list(loader_of([example] * 2, targets={key: Stamps()}))


def renamed(examples: list[Any]) -> Any:
    return {"input_values": torch.stack([example["audio"] for example in examples]), "labels": torch.tensor([1, 2])}


def as_dict(examples: list[Any]) -> Any:
    return {"audio": torch.stack([example[0] for example in examples]), "index": torch.tensor([1, 2])}


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_fn_that_renames_the_audio_is_refused(workers):
    loader = loader_of([{"audio": WAVE}] * 2, collate_fn=renamed, plan=Plan(num_workers=workers))
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value) == (
        "collate_fn returned a dict with 'input_values' (float32, (2, 4000)), 'labels' (int64, (2,)), without the "
        "audio at 'audio', where the examples have it. Let collate_fn keep the audio in its field, or in "
        "`audio` of a type that has to(device); rename it in the training step."
    )


def test_collate_fn_may_return_a_dict_for_tuples():
    [batch] = loader_of([(WAVE, 3)] * 2, collate_fn=as_dict)
    torch.testing.assert_close(batch["audio"], torch.full((2, 4000), 10**0.3))


@pytest.mark.parametrize("plan", PLANS[:1] + PLANS[-1:])
def test_examples_of_different_forms_are_refused(plan):
    loader = loader_of([{"wav": WAVE}, {"wave": WAVE}], plan=plan, batch_size=1)
    with pytest.raises(DataError, match=r"no field 'wav|The audio is at 'wave' in some examples, and at 'wav' in oth"):
        list(loader)


def test_prefetch_finds_the_audio_field():
    _, module = split(CHAIN, Plan(cut=0))
    expected = torch.full((2, 4000), 10**0.3)
    for example, options, key in (
        ({"wav": WAVE, "targets": LABELS}, {}, "wav"),
        ({"clean": WAVE, "noisy": WAVE}, {"audio_key": "noisy"}, "noisy"),
        ((3, WAVE), {"audio_key": -1}, 1),
    ):
        [batch] = prefetch(DataLoader([example] * 2, batch_size=2), "cpu", module, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(get_wave(batch, key), expected)
    with pytest.raises(DataError, match="'clean' and 'noisy' can be the audio"):
        next(prefetch(DataLoader([{"clean": WAVE, "noisy": WAVE}]), "cpu", module))  # type: ignore[arg-type]


def test_integer_key_of_a_dict():
    [batch] = loader_of([{0: torch.zeros(4000), 1: WAVE}] * 2, audio_key=1)
    assert torch.equal(batch[0], torch.zeros(2, 4000)) and batch[1].min() > 1.9
