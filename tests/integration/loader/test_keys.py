"""Keys: an example's audio is the same in any order, shard, worker, process and batch; repeats are reported."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from audioaug import AudioFolder, Chain, Loader, Plan, build_cpu, ops, prefetch, split
from audioaug.errors import AudioaugWarning, DataError, OpError
from audioaug.loader.sampling import Occurrences, Repeats
from tests.integration.loader.material import DEMO, RATE, Words, assert_same_audio, exact_chain

CHAIN, SEED, EPOCH = exact_chain(), 4, 2
NAMES = [f"spk{k % 3}/utt{k}" for k in range(10)]


class Named:
    """Ten words as dicts with their names, perhaps in another order."""

    def __init__(self, order: Any = range(10)) -> None:
        self.order, self.words = list(order), Words(10)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = self.order[index]
        wave, label, _ = self.words[place]
        return {"audio": wave, "label": label, "id": NAMES[place]}


class Dealt(IterableDataset):  # type: ignore[type-arg]
    """The same as a stream whose workers each read a block of it, the later worker the earlier one."""

    def __iter__(self) -> Iterator[Any]:
        worker, named = get_worker_info(), Named()
        places = range(10) if worker is None else range(5 * (1 - worker.id), 5 * (2 - worker.id))
        return (named[place] for place in places)


class Broken(Named):
    """Whose third example cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.order[index] == 2:
            raise DataError("damaged")
        return super().__getitem__(index)


def loader_of(dataset: Any, plan: Plan | None = None, chain: Chain = CHAIN, **options: Any) -> Loader:
    loader = Loader(
        dataset, chain, plan or Plan(cut=3), device="cpu", **{"batch_size": 3, "seed": SEED, "key": "id", **options}
    )
    loader.set_epoch(EPOCH)
    return loader


def by_name(loader: Any) -> dict[Any, np.ndarray]:
    return {name: wave for batch in loader for name, wave in zip(batch["id"], batch["audio"].numpy())}


def expected(places: Any = range(10)) -> dict[Any, np.ndarray]:
    """Return what audiomentations makes of the words, alone, by their names."""
    alone, words = build_cpu(CHAIN, seed=SEED), Words(10)
    return {NAMES[k]: alone(words[k][0], key=NAMES[k], epoch=EPOCH) for k in places}


@pytest.mark.parametrize("cut", [0, 3, len(CHAIN)])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_order_does_not_matter(cut, batch_size):
    for order in (range(10), range(9, -1, -1), [3, 3 + 5, 1]):
        found = by_name(loader_of(Named(order), Plan(cut=cut), batch_size=batch_size))
        assert_same_audio(found, expected(order), 5e-5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", ["audiomentations", "batched"])
def test_shards_and_workers_do_not_matter(workers, engine):
    plan = Plan(cut=3, num_workers=workers, worker_engine=engine)
    assert_same_audio(by_name(loader_of(Dealt(), plan)), expected(), 5e-5)
    assert_same_audio(by_name(loader_of(Named(), plan, shuffle=True)), expected(), 5e-5)


def test_a_function_of_the_example_gives_its_key():
    found = by_name(loader_of(Named(), key=lambda example: example["id"].encode()))
    assert_same_audio(found, expected(), 5e-5)


def test_by_default_the_index_is_the_key():
    one, other = (list(loader_of(Words(), key=key)) for key in (None, 2))
    for batch, same in zip(one, other, strict=True):
        assert torch.equal(batch[0], same[0])


def test_parts_of_a_chain_agree_by_key():
    worker, module = split(CHAIN, Plan(cut=3), SEED)
    examples = [Named()[place] for place in range(10)]
    for example in examples:
        example["audio"] = torch.from_numpy(worker(example["audio"], key=example["id"], epoch=EPOCH))
    batches = torch.utils.data.DataLoader(examples, batch_size=4)
    assert_same_audio(by_name(prefetch(batches, "cpu", module, key="id", epoch=EPOCH)), expected(), 5e-5)


def test_examples_that_are_left_out_or_replaced_leave_the_others_as_they_are():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AudioaugWarning)
        found = by_name(loader_of(Broken(), on_error="skip"))
        assert_same_audio(found, expected(k for k in range(10) if k != 2), 5e-5)
        replaced = by_name(loader_of(Broken(), on_error="replace"))  # a dict keeps one of the two with its name
        assert_same_audio(replaced, expected(k for k in range(10) if k != 2), 5e-5)


def test_a_folder_names_its_clips():
    folder = AudioFolder(DEMO / "speech", RATE, seconds=0.5, key="path")
    wave, label, name = folder[3]
    assert (DEMO / "speech" / name).samefile(folder.files[3]) and label == folder.targets[3]
    assert len({*folder.keys}) == len(folder)
    [batch] = Loader(folder, CHAIN, Plan(cut=3), batch_size=2, sampler=[3, 0], device="cpu", key=2)
    alone = build_cpu(CHAIN)
    assert_same_audio({name: batch[0][0].numpy()}, {name: alone(wave, key=name)}, 5e-5)


def test_a_manifest_names_its_clips(tmp_path):
    file = AudioFolder(DEMO / "speech", RATE).files[0]
    manifest = tmp_path / "clips.csv"
    manifest.write_text(f"path,label,id\n{file},yes,u1\n{file},no,u2\n", encoding="utf-8")
    assert [AudioFolder(manifest, RATE, key="id")[k][2] for k in (0, 1)] == ["u1", "u2"]
    assert AudioFolder(manifest, RATE, key="path")[0][2] == file and len(AudioFolder(manifest, RATE)[0]) == 2
    with pytest.raises(DataError, match=r"^Entry 1 of the manifest .*clips\.csv has no 'uuid' to be its key\.$"):
        AudioFolder(manifest, RATE, key="uuid")
    with pytest.raises(DataError, match=r"speech is a folder, where a clip has no 'id'\. Use key='path'\.$"):
        AudioFolder(DEMO / "speech", RATE, key="id")


# Repeats


@pytest.mark.parametrize("plan", [Plan(), Plan(num_workers=2), Plan(cut=1, num_workers=2)], ids=["0", "2", "clips"])
def test_an_example_that_the_sampler_repeats_is_augmented_anew(plan):
    gains = Chain([ops.Gain(p=1.0)], RATE)
    order = [3, 3, 0, 3, 1, 0]
    waves = torch.cat(list(Loader([torch.ones(4)] * 4, gains, plan, batch_size=2, sampler=order, device="cpu")))
    keys = [3, "3#2", 0, "3#3", 1, "0#2"]
    expected = np.stack([build_cpu(gains)(np.ones(4, np.float32), key=key) for key in keys])
    np.testing.assert_allclose(waves, expected, rtol=1e-6)
    assert len(set(waves[:, 0].tolist())) == len(order)


def test_repeats_are_counted_from_the_beginning_of_an_epoch_when_it_is_resumed():
    def loader() -> Loader:
        chain = Chain([ops.Gain(p=1.0)], RATE)
        return Loader([torch.ones(4)] * 4, chain, batch_size=2, sampler=[3, 3, 0, 3, 1, 0], device="cpu")

    first, batches = loader(), iter(loader())
    whole = [next(batches) for _ in range(3)]
    for _ in zip(range(1), first):
        pass
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(resumed, whole[1:], strict=True))


def test_occurrences_of_indices_that_the_length_does_not_show():
    before = Occurrences(2).before
    assert [before(index) for index in (1, 1, 5, -1, 5, 1, 0, -1)] == [0, 1, 0, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_repeated_keys_are_counted_and_reported_once(workers):
    loader = loader_of(Named([0, 1, 2, 0, 1, 0]), Plan(cut=0, num_workers=workers))
    with pytest.warns(AudioaugWarning, match=r"^3 of the first 6 examples of epoch 2 have the key of an earlier one"):
        list(loader)
    assert loader.repeated == 3
    list(loader)  # a second warning would be an error
    assert loader.repeated == 3


def test_repeats_of_another_epoch_do_not_count():
    loader = loader_of(Named())
    list(loader), list(loader)
    assert loader.repeated == 0
    next(iter(loader)), list(loader)
    assert loader.repeated == 0


def test_in_a_long_epoch_repeats_are_reported_early():
    repeats = Repeats()
    with pytest.warns(AudioaugWarning, match=r"^1 of the first 1024 examples of epoch 0 have"):
        for first in range(0, 1024, 32):
            repeats.add([0 if first == 512 and k == 512 else k for k in range(first, first + 32)])
    for first in range(0, 1024, 32):
        repeats.add(range(first, first + 32))
    assert repeats.count == 1024  # of 2,048, where it looks again


# Mistakes


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("uuid", r"^An example has no field 'uuid': .* Give key the key or position\.$"),
        ("audio", r"^An example's key at 'audio' must be a string, bytes or an integer, but it is array"),
        (lambda example: None, r"^What key= returns for an example must be .* but it is None, a NoneType\."),
    ],
    ids=["missing", "not a key", "nothing"],
)
def test_a_key_that_is_none_is_one_sentence(key, sentence):
    with pytest.raises(DataError, match=sentence):
        list(loader_of(Named(), Plan(cut=3, num_workers=1), key=key))


def test_what_your_function_raises_is_shown():
    with pytest.raises(ZeroDivisionError):
        list(loader_of(Named(), key=lambda example: 1 // 0, on_error="skip"))


def test_errors_name_the_key():
    def fail(samples: Any, sample_rate: int) -> Any:
        raise ArithmeticError("too many")

    with pytest.raises(OpError, match=r"^Example 'spk0/utt0' of epoch 2: Lambda .*\(samples, key='spk0/utt0', epoch=2"):
        list(loader_of(Named(), Plan(cut=1), Chain([ops.Lambda(transform=fail, p=1.0)], RATE)))
