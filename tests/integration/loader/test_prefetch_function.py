"""``prefetch``: your own DataLoader with both parts of a chain yields the audio of the Loader."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import audioaug
from audioaug import Chain, Loader, Plan, build_cpu, ops, split
from audioaug.errors import DataError, DeviceError
from tests.integration.loader.material import RATE, Words, assert_same_audio, by_index, exact_chain

SEED, EPOCH = 3, 2
CHAIN = exact_chain()
CUTS = [0, 3, len(CHAIN)]

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Augmented:
    """A custom dataset that runs the worker part; examples are tuples (wave, label, index) or dicts."""

    def __init__(self, worker: Any, form: str = "tuple", epoch: int = EPOCH) -> None:
        self.words, self.worker, self.form, self.epoch = Words(8), worker, form, epoch

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Any:
        wave, label, _ = self.words[index]
        wave = self.worker(wave, key=index, epoch=self.epoch)
        if self.form == "dict":
            return {"label": label, "audio": wave, "more": {"index": index, "pair": (index, wave[:, :2])}}
        return wave, label, index


def expected(epoch: int = EPOCH) -> dict[int, np.ndarray]:
    alone = build_cpu(CHAIN, seed=SEED)
    return {k: alone(wave, key=k, epoch=epoch) for k, (wave, *_) in enumerate(Words(8))}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("workers", [0, 2])
def test_worker_in_the_dataset_matches_loader(cut, workers):
    worker, module = split(CHAIN, Plan(cut=cut), seed=SEED)
    loader = DataLoader(Augmented(worker), batch_size=3, num_workers=workers, shuffle=True)
    batches = list(audioaug.prefetch(loader, "cpu", module, key=2, epoch=EPOCH))
    assert len(batches) == 3 and all(type(batch) is list for batch in batches)
    found = {int(k): wave.numpy() for waves, _, indices in batches for k, wave in zip(indices, waves)}
    assert_same_audio(found, expected(), 5e-5)
    ours = Loader(Words(8), CHAIN, Plan(cut=cut), batch_size=4, device="cpu", seed=SEED)
    ours.set_epoch(EPOCH)
    assert_same_audio(found, by_index(ours), 5e-5)


def test_draws_follow_index_and_epoch():
    worker, module = split(CHAIN, Plan(cut=3), seed=SEED)
    loader = DataLoader(Augmented(worker), batch_size=8)
    for wrong in ({"key": 2, "epoch": EPOCH + 1}, {}):
        ((waves, *_),) = audioaug.prefetch(loader, "cpu", module, **wrong)
        assert max(np.abs(wave - expected()[k]).max() for k, wave in enumerate(waves.numpy())) > 1e-2


def test_worker_in_collate_fn_with_dicts():
    worker, module = split(CHAIN, Plan(cut=3), seed=SEED)
    dry = Augmented(lambda wave, **_: wave, form="dict")

    def collate(examples: list[dict[str, Any]]) -> Any:
        for example in examples:
            place = example["more"]["index"]
            example["audio"] = torch.from_numpy(worker(example["audio"], key=place, epoch=EPOCH))
        return {**default_collate(examples), "index": torch.tensor([each["more"]["index"] for each in examples])}

    loader = DataLoader(dry, batch_size=3, collate_fn=collate)
    batches = list(audioaug.prefetch(loader, "cpu", module, key="index", epoch=EPOCH))
    found = {int(k): wave for batch in batches for k, wave in zip(batch["index"], batch["audio"].numpy())}
    assert_same_audio(found, expected(), 5e-5)
    assert [batch["more"]["pair"][0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert batches[0]["label"].shape == (3,) and batches[0]["more"]["pair"][1].shape == (3, 1, 2)


TRIMMED = Chain([ops.Gain(p=1.0), ops.AdjustDuration(duration_samples=500, p=0.5), ops.Reverse(p=0.5)], RATE)
Item = namedtuple("Item", ["audio", "lengths", "index"])


@pytest.mark.parametrize("form", ["tuple", "namedtuple", "dict"])
def test_lengths_are_replaced_by_new_ones(form):
    worker, module = split(TRIMMED, Plan(cut=1), seed=SEED)
    waves = [np.ones((1, length), np.float32) for length in (900, 400, 700, 650)]
    padded = torch.zeros(4, 1, 900)
    for k, wave in enumerate(waves):
        padded[k, :, : wave.shape[1]] = torch.from_numpy(worker(wave, key=k))
    batch: Any = Item(padded, torch.tensor([900, 400, 700, 650]), torch.arange(4))
    batch = {"tuple": tuple(batch), "namedtuple": batch, "dict": batch._asdict()}[form]
    places = {"key": "index", "lengths": "lengths"} if form == "dict" else {"key": 2, "lengths": 1}
    (out,) = audioaug.prefetch([batch], "cpu", module, **places)
    assert type(out) is type(batch)
    wave_BCT, length_B, _ = out.values() if form == "dict" else out
    alone = build_cpu(TRIMMED, seed=SEED)
    assert 500 in length_B and length_B.tolist() != [500] * 4
    for k, length in enumerate(length_B.tolist()):
        assert_same_audio({0: wave_BCT[k, :, :length].numpy()}, {0: alone(waves[k], key=k)}, 1e-6)
        assert not wave_BCT[k, :, length:].any()


def test_bare_waves_without_index_and_in_eval_mode():
    chain = Chain([ops.Gain(p=1.0)], RATE)
    module = split(chain, Plan(cut=0), seed=SEED)[1]
    loader = DataLoader([torch.ones(5)] * 4, batch_size=2)
    out = torch.cat([*audioaug.prefetch(loader, "cpu", module)])
    assert len(set(out[:, 0].tolist())) == 4
    module.eval()
    assert all(torch.equal(batch, torch.ones(2, 5)) for batch in audioaug.prefetch(loader, "cpu", module))


@pytest.mark.parametrize(
    ("batch", "options", "sentence"),
    [
        ((torch.ones(2, 5), 1), {"key": 2}, "A batch has no field 2: it is a tuple of 2. Give prefetch the key"),
        (
            {"audio": torch.ones(2, 5)},
            {"lengths": "n"},
            "A batch has no field 'n': it is a dict with 'audio' (float32, (2, 5)).",
        ),
        (torch.ones(2, 5), {"key": 0}, "A batch has no field 0: it is a Tensor."),
        (([torch.ones(5)], 1), {}, "Expected the audio of a batch to be one tensor, (B, T) or (B, C, T), got list."),
        ({"wave": torch.arange(2)}, {}, "A batch is a dict with 'wave' (int64, (2,)): no field can be audio"),
    ],
)
def test_missing_fields_of_a_batch_are_errors(batch, options, sentence):
    with pytest.raises(DataError) as caught:
        list(audioaug.prefetch([batch], "cpu", split(TRIMMED, Plan(cut=1))[1], **options))
    assert str(caught.value).startswith(sentence)


def test_module_draws_follow_key_and_epoch():
    module, x = split(CHAIN, Plan(cut=0), seed=SEED)[1], torch.randn(3, 1, 8000)
    expected = module(x, draws=CHAIN.draw([5, 1, 9], EPOCH, SEED))
    for index in (torch.tensor([5, 1, 9]), [5, 1, 9]):
        assert torch.equal(module(x, key=index, epoch=EPOCH), expected)
    for wrong, sentence in (
        ([5, 1], r"^There are 2 keys, but the batch has 3 examples\.$"),
        (torch.tensor(5), r"^Expected keys of shape \(B,\), got \(\)\.$"),
        ([0.5, 1.0, 2.0], r"^A key must be a string, bytes or an integer, but it is 0\.5, a float\."),
    ):
        with pytest.raises(DataError, match=sentence):
            module(x, key=wrong)


def test_missing_device_is_refused():
    with pytest.raises(DeviceError):
        audioaug.prefetch([], "tpu", split(TRIMMED, Plan(cut=1))[1])


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("cut", CUTS)
def test_cuda_matches_cpu(cut):
    worker, module = split(CHAIN, Plan(cut=cut), seed=SEED)
    loader = DataLoader(Augmented(worker), batch_size=3, num_workers=1, pin_memory=True)
    batches = list(audioaug.prefetch(loader, "cuda", module, key=2, epoch=EPOCH))
    found = {int(k): wave.cpu().numpy() for waves, _, indices in batches for k, wave in zip(indices, waves)}
    assert_same_audio(found, expected(), 5e-5)
