"""Batches of custom types are moved and pinned by their own methods."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data._utils.pin_memory import pin_memory

from audioaug import Chain, Loader, Plan, ops, prefetch, split
from audioaug.errors import DataError
from audioaug.loader.examples import with_item
from audioaug.loader.pickling import WorkerBatch
from audioaug.loader.prefetch import tensors, to_device, unpinned_types
from tests.integration.loader.custom_batches import (
    Clips,
    Elsewhere,
    Forgetful,
    Frozen,
    NoMethods,
    ReadOnly,
    Slots,
    collate,
    collate_nested,
)

CHAIN = Chain([ops.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)], sample_rate=16000)
DATASET = [(torch.full((1, 400), 0.1), label) for label in range(4)]
LOUD = torch.full((2, 1, 400), 0.1 * 10**0.3)
CPU, META = torch.device("cpu"), torch.device("meta")


def batches(collate_fn: Any, plan: Plan) -> Loader:
    return Loader(DATASET, CHAIN, plan, batch_size=2, device="cpu", collate_fn=collate_fn)


PLANS = [Plan(), Plan(num_workers=2), Plan(cut=1, num_workers=2), Plan(cut=1, num_workers=2, worker_engine="batched")]


@pytest.mark.parametrize("plan", PLANS, ids=["no worker", "device", "clips", "batches"])
@pytest.mark.parametrize("kind", [Clips, Frozen])
def test_a_custom_batch_is_augmented_and_moved_by_its_own_method(plan, kind):
    found = list(batches(partial(collate, kind), plan))
    assert [type(batch) for batch in found] == [kind, kind]
    for number, batch in enumerate(found):
        torch.testing.assert_close(batch.audio, LOUD)
        assert batch.label.tolist() == [2 * number, 2 * number + 1]
        assert kind is Frozen or batch.calls == [("cpu", True)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_part_of_a_batch_may_be_custom(workers):
    for audio, (part, text) in batches(collate_nested, Plan(num_workers=workers)):
        torch.testing.assert_close(audio, LOUD)
        assert type(part) is Clips and part.calls == [("cpu", True)] and text == "text"


def test_audio_key_names_an_attribute():
    dataset = [{"label": wave} for wave, _ in DATASET]
    stack = lambda examples: Clips(torch.zeros(2), torch.stack([it["label"] for it in examples]))  # noqa: E731
    for batch in Loader(dataset, CHAIN, batch_size=2, device="cpu", audio_key="label", collate_fn=stack):
        torch.testing.assert_close(batch.label, LOUD)
        assert torch.equal(batch.audio, torch.zeros(2))


def test_prefetch_moves_custom_batches():
    _, module = split(CHAIN, Plan())
    [batch] = prefetch([Clips(torch.full((2, 1, 400), 0.1), torch.arange(2))], "cpu", module, key="label")
    torch.testing.assert_close(batch.audio, LOUD)


def test_moving_does_not_change_the_original():
    original = Clips(torch.ones(2))
    moved = to_device({"a": [original]}, META)["a"][0]
    assert moved.audio.device == META and moved.calls == [("meta", True)]
    assert original.audio.device == CPU and original.calls == []
    assert with_item(original, "audio", torch.zeros(3)).audio.shape == (3,) and original.audio.shape == (2,)


def sorted_by_length(examples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    examples = sorted(examples, key=lambda example: -len(example[0]))
    return pad_sequence([wave for wave, _ in examples], batch_first=True), torch.tensor([n for _, n in examples])


def padded_at_the_start(examples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(wave) for wave, _ in examples)
    waves = [torch.nn.functional.pad(wave, (longest - len(wave), 0)) for wave, _ in examples]
    return torch.stack(waves), torch.tensor([n for _, n in examples])


@pytest.mark.parametrize("collate_fn", [sorted_by_length, padded_at_the_start])
@pytest.mark.parametrize("workers", [0, 1])
def test_sound_after_the_end_of_a_clip_is_refused_where_ops_would_silence_it(collate_fn, workers):
    dataset = [(torch.ones(n), n) for n in (100, 400, 200, 300)]
    for plan in (Plan(num_workers=workers), Plan(cut=1, num_workers=workers, worker_engine="batched")):
        with pytest.raises(DataError, match=r"^collate_fn returned a batch with sound after the end of clip 0, which"):
            list(Loader(dataset, CHAIN, plan, batch_size=4, device="cpu", collate_fn=collate_fn))
    plan = Plan(cut=1, num_workers=workers)
    [(wave, lengths)] = Loader(dataset, CHAIN, plan, batch_size=4, device="cpu", collate_fn=collate_fn)
    assert (wave != 0).sum(dim=1).tolist() == lengths.tolist()


def test_types_of_libraries_move_themselves():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    moved = to_device([packed], META)[0]
    assert moved.data.device == META and moved.batch_sizes.device == CPU  # or torch could not unpack it on a GPU
    transformers = pytest.importorskip("transformers")
    encoding = transformers.BatchEncoding({"audio": torch.ones(2, 8), "ids": torch.ones(2)})
    moved = with_item(to_device(encoding, META), "audio", torch.zeros(3))
    assert type(moved) is transformers.BatchEncoding and moved.ids.device == META and moved.audio.shape == (3,)
    assert encoding.ids.device == CPU and encoding.audio.shape == (2, 8)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Forgetful, "Forgetful.to('cpu') returned None. Define to(self, device, non_blocking=False); it returns"),
        (Elsewhere, "Elsewhere.to('cpu') failed: Elsewhere.to() takes 1 positional argument but 2 were given. Define"),
        (ReadOnly, "ReadOnly.audio cannot be set: "),
        (
            NoMethods,
            "collate_fn returned a NoMethods, without the audio at 0, where the examples have it. Let collate_fn",
        ),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_custom_type_that_does_not_work_is_one_sentence(kind, sentence, workers):
    with pytest.raises(DataError) as caught:
        list(batches(partial(collate, kind), Plan(num_workers=workers)))
    assert str(caught.value).startswith(sentence)


def test_pin_memory_that_returns_nothing_is_one_sentence():
    loader = batches(partial(collate, Forgetful), Plan())
    sent = next(loader.worker_batches())
    sent = sent._replace(batch=pin_memory(sent.batch))
    with pytest.raises(DataError, match=r"pin_memory\(\) of the batch returned None\. Let it return the batch"):
        loader._pipeline.finish(sent)


def test_torch_pins_a_batch_by_its_own_method():
    pinned = pin_memory(WorkerBatch({"part": Clips(torch.ones(2))}, None, [], [], 0))
    assert pinned.batch["part"].calls == ["pinned"]


def test_tensors_in_custom_types_are_found():
    batch = [Clips(torch.ones(2), torch.ones(3)), {"more": Slots(torch.ones(4))}, "text", object()]
    assert [len(tensor) for tensor in tensors(batch)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("batch", "types"),
    [
        ((torch.ones(2), {"a": [torch.ones(2), "text", None, 3]}), set()),
        (Clips(torch.ones(2)), set()),
        ((Frozen(torch.ones(2), torch.ones(2)), {"more": [Slots(torch.ones(2))]}), {"Frozen", "Slots"}),
        ([object(), range(3), b"bytes", pack_sequence([torch.ones(2)])], set()),
    ],
)
def test_types_that_torch_cannot_pin_are_named(batch, types):
    assert unpinned_types(batch) == types
