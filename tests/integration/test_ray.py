"""Ray Data gives the audio of the Loader by key, however the data are divided, and where the chain is cut."""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Chain, Loader, Plan, Stamps, ops
from audioaug.core import key_numbers
from audioaug.errors import AudioaugWarning, DataError, PlanError, UsageError
from audioaug.integrations.ray import Augment, Batches, SharedEpoch, batches
from audioaug.integrations.ray.wire import decoded, encoded
from tests.helpers.local_ray import local_ray
from tests.integration.loader.material import RATE, Words, exact_chain

NEEDS_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="could not import 'ray'")
CHAIN, SEED, EPOCH, COUNT = exact_chain(), 4, 2, 12
KEYS = [f"spk{k % 3}/utt{k}" for k in range(COUNT)]


def clips(ragged: bool) -> list[np.ndarray]:
    words = Words(COUNT)
    return [words[k][0][0, : 8000 - 500 * k * ragged] for k in range(COUNT)]


def as_batch(waves: list[np.ndarray], **more: Any) -> dict[str, Any]:
    column = np.empty(len(waves), dtype=object)
    for row, wave in enumerate(waves):
        column[row] = wave
    return {"audio": column, "key": np.asarray(KEYS[: len(waves)]), "label": np.arange(len(waves)), **more}


def of_the_loader(waves: list[np.ndarray], cut: int, engine: str = "audiomentations") -> dict[str, np.ndarray]:
    """Return what a Loader sends from its workers, by key."""
    dataset = [{"audio": wave, "key": key} for wave, key in zip(waves, KEYS)]
    plan = Plan(cut=cut, worker_engine=engine)
    loader = Loader(dataset, CHAIN, plan, batch_size=5, device="cpu", pad=True, key="key", seed=SEED)
    return {
        key: wave[: int(length)].numpy()
        for sent in loader.worker_batches(EPOCH)
        for key, wave, length in zip(sent.batch["key"], sent.batch["audio"], sent.batch["lengths"])
    }


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("engine", ["audiomentations", "batched"])
@pytest.mark.parametrize("cut", [0, 3, len(CHAIN)])
def test_a_plain_dict_gets_the_audio_of_the_loader(cut, engine, ragged):
    waves = clips(ragged)
    expected = of_the_loader(waves, cut, engine)
    augment = Augment(CHAIN, Plan(cut=cut, worker_engine=engine), seed=SEED, epoch=EPOCH)
    batch = as_batch(waves, name=np.asarray(KEYS))
    found = augment(batch)
    assert list(found) == [*batch, "audio_cut", "audio_epoch"] and np.array_equal(found["label"], batch["label"])
    assert set(found["audio_cut"]) == {cut} and set(found["audio_epoch"]) == {EPOCH}
    for key, wave in zip(KEYS, found["audio"], strict=True):
        assert wave.dtype == np.float32 and wave.shape == expected[key].shape
        if engine == "audiomentations":
            assert np.array_equal(wave, expected[key])
        assert np.abs(wave - expected[key]).max() <= 5e-5 * np.abs(expected[key]).max()


def test_equal_lengths_make_one_array():
    stereo = np.random.default_rng(0).standard_normal((3, 2, 4000)).astype(np.float32)
    chain = Chain([ops.Gain(p=1.0)], RATE)
    found = Augment(chain)({"audio": stereo, "key": np.arange(3)})["audio"]
    assert found.dtype == np.float32 and found.shape == (3, 2, 4000)
    uneven = np.empty(2, dtype=object)
    uneven[0], uneven[1] = stereo[0], stereo[1, :, :100]
    assert [wave.shape for wave in Augment(chain)({"audio": uneven, "key": [1, 2]})["audio"]] == [(2, 4000), (2, 100)]
    assert len(Augment(chain)({"audio": stereo[:0], "key": []})["audio"]) == 0


def test_mistakes_are_one_sentence():
    augment, waves = Augment(CHAIN), clips(False)[:2]
    with pytest.raises(
        DataError, match=r"^The batch has no column 'audio'\. Did you mean audios\? Name it with audio=\."
    ):
        augment({"audios": waves, "key": KEYS[:2]})
    with pytest.raises(DataError, match=r"^The batch has no column 'key'\. Known: audio\. Name it with key=\.$"):
        augment({"audio": waves})
    with pytest.raises(
        DataError, match=r"^A key in 'key' must be a string, bytes or an integer, but it is 0\.5, a float"
    ):
        augment({"audio": waves, "key": np.asarray([0.5, 1.0])})
    with pytest.raises(DataError, match=r"^The batch has 2 clips in 'audio', but 1 keys in 'key'\.$"):
        augment({"audio": waves, "key": KEYS[:1]})
    with pytest.raises(DataError, match=r"^Expected a dict of columns, got list\. Leave batch_format"):
        augment([waves, KEYS[:2]])
    with pytest.raises(DataError, match=r"^Clips with channel shapes \[\(\), \(1,\)\] cannot be one batch\."):
        Augment(CHAIN, Plan(cut=3, worker_engine="batched"))({"audio": [waves[0], waves[1][None]], "key": KEYS[:2]})
    with pytest.raises(PlanError, match=r"Mix: it mixes examples of one batch, and a worker sees one"):
        Augment(Chain([ops.Mix(p=1.0)], RATE), cut=1)
    with pytest.raises(PlanError, match="cannot be cut at 99"):
        Augment(CHAIN, cut=99)
    with pytest.raises(UsageError, match=r"^There is no wire 'int8'\. Did you mean int16\?"):
        Augment(CHAIN, wire="int8")


# How audio is sent


@pytest.mark.parametrize(
    ("wire", "bound"),
    [
        ("float32", lambda wave: 0.0 * wave),
        ("float16", lambda wave: np.maximum(2.0**-11 * np.abs(wave), 2.0**-25)),
        ("int16", lambda wave: np.full_like(wave, 0.503 / 32767 * np.abs(wave).max(initial=0.0))),
    ],
)
def test_half_the_bytes_cost_a_stated_error(wire, bound):
    noise = np.random.default_rng(0).standard_normal((2, 4000))
    waves = [np.asarray(wave, np.float32) for wave in (noise, 1e-6 * noise, 300 * noise[:, :99], noise[0], 0 * noise)]
    columns = encoded(waves, wire, "audio")
    for row, wave in enumerate(waves):
        assert columns["audio"][row].nbytes == wave.nbytes // (1 if wire == "float32" else 2)
        found = decoded({name: column[row] for name, column in columns.items()}, "audio")
        assert found.dtype == np.float32 and found.shape == wave.shape
        assert (np.abs(found - wave) <= bound(wave) * (1 + 1e-6)).all()


@pytest.mark.parametrize(("wire", "sample"), [("int16", np.nan), ("int16", np.inf), ("float16", 7e4)])
def test_what_cannot_be_sent_is_refused(wire, sample):
    waves = clips(False)[:2]
    waves[1][17] = sample
    with pytest.raises(DataError, match=rf"^A clip has samples that wire='{wire}' cannot hold\. Send it with"):
        encoded(waves, wire, "audio")


# What a dataset of Ray delivers


class Rows:
    """Delivers batches as a dataset of Ray does, in this process."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def iter_torch_batches(self, *, batch_size: int, drop_last: bool, collate_fn: Any) -> Iterator[Any]:
        count = len(self.columns["audio"])
        for start in range(0, count - (batch_size - 1) * drop_last, batch_size):
            yield collate_fn({name: column[start : start + batch_size] for name, column in self.columns.items()})


@NEEDS_RAY
def test_other_mistakes_are_one_sentence():
    rows = Augment(CHAIN, cut=3, epoch=1)(as_batch(clips(True)))

    def first(columns: dict[str, Any], **how: Any) -> Any:
        found = batches(Rows(columns), CHAIN, Plan(cut=how.pop("cut", 3)), device="cpu", batch_size=4, **how)
        found.set_epoch(1)
        return next(iter(found))

    assert first(rows, pad=True)["audio"].shape == (4, 8000)
    with pytest.raises(DataError, match=r"^Clips of different lengths \(6500 and 8000 samples\) cannot be one batch\."):
        first(rows)
    with pytest.raises(DataError, match=r"^Augment has run the first 3 ops, but the plan cuts the chain after 4\."):
        first(rows, cut=4, pad=True)
    with pytest.raises(DataError, match=r"^Augment has run the first 0 ops, but the plan cuts the chain after 3\."):
        first(as_batch(clips(True)), pad=True)
    with pytest.raises(DataError, match=r"^Augment has run for epoch 1, but this is epoch 0\. Give Augment"):
        next(iter(batches(Rows(rows), CHAIN, Plan(cut=3), device="cpu", pad=True)))
    with pytest.raises(DataError, match=r"^Labels cannot follow the audio: its timeline is missing\. Give Augment"):
        first(rows, pad=True, targets={"label": Stamps()})
    with pytest.raises(DataError, match=r"^There is no column 'path'\. .*Name it with key=\."):
        first(rows, pad=True, key="path")
    with pytest.raises(
        UsageError, match=r"^Expected the state of Ray batches, with seed, epoch and keys, got 'epoch'\."
    ):
        batches(Rows(rows), CHAIN, device="cpu").load_state_dict({"epoch": 1})
    with pytest.raises(UsageError, match=r"^Expected the state of Ray batches, .* got a NoneType\."):
        batches(Rows(rows), CHAIN, device="cpu").load_state_dict(None)
    with pytest.raises(UsageError, match=r"^The state has the seed 1, but these batches have 0\."):
        batches(Rows(rows), CHAIN, device="cpu").load_state_dict({"epoch": 1, "seed": 1, "keys": []})


@NEEDS_RAY
def test_the_rest_of_an_epoch_has_whole_batches():
    rows = Augment(CHAIN, cut=3)(as_batch(clips(True)))
    first = batches(Rows(rows), CHAIN, Plan(cut=3), device="cpu", batch_size=2, pad=True)
    delivered = iter(first)
    before = [*next(delivered)["key"], *next(delivered)["key"]]
    other_order = {name: column[::-1] for name, column in rows.items()}
    rest = batches(Rows(other_order), CHAIN, Plan(cut=3), device="cpu", batch_size=3, pad=True)
    rest.load_state_dict(first.state_dict())
    after = [batch["key"] for batch in rest]
    assert [len(keys) for keys in after] == [3, 3, 2] and before == KEYS[:4]
    assert [key for keys in after for key in keys] == KEYS[:3:-1]


@NEEDS_RAY
def test_a_last_batch_is_dropped_once():
    rows = Augment(CHAIN)(as_batch(clips(True)))
    how = {"device": "cpu", "batch_size": 5, "pad": True, "drop_last": True}
    found = batches(Rows(rows), CHAIN, **how)
    assert [batch["key"] for batch in found] == [KEYS[:5], KEYS[5:10]]
    found.load_state_dict({"seed": 0, "epoch": 0, "keys": key_numbers(KEYS[:1]).tolist()})
    assert [batch["key"] for batch in found] == [KEYS[1:6], KEYS[6:11]]
    found.load_state_dict({"seed": 0, "epoch": 0, "keys": []})
    assert next(iter(found)) and found.state_dict()["keys"].tolist() == key_numbers(KEYS[:5]).tolist()


@NEEDS_RAY
def test_keys_that_repeat_are_counted():
    columns = {"audio": np.stack(clips(False)), "key": np.arange(COUNT) // 2}
    found = batches(Rows(columns), CHAIN, Plan(), device="cpu", batch_size=4)
    with pytest.warns(AudioaugWarning, match=r"^6 of the first 12 examples of epoch 0 have the key of an earlier one"):
        list(found)
    assert found.repeated == 6


# On a cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    pytest.importorskip("ray.data")
    with local_ray(num_cpus=4) as ray:
        yield ray


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
@pytest.mark.parametrize(("actors", "batch_size"), [(1, 4), (2, 32)])
def test_actors_give_the_audio_of_the_loader(actors, batch_size, ray):
    waves = clips(ragged=True)
    expected = of_the_loader(waves, 3)
    rows = [{"audio": wave, "key": key, "label": k} for k, (wave, key) in enumerate(zip(waves, KEYS))]
    rows = [rows[k] for k in torch.randperm(COUNT, generator=torch.Generator().manual_seed(batch_size)).tolist()]
    how = {"chain": CHAIN, "cut": 3, "seed": SEED, "epoch": EPOCH}
    found = ray.data.from_items(rows, override_num_blocks=3).map_batches(
        Augment, fn_constructor_kwargs=how, batch_size=batch_size, compute=ray.data.ActorPoolStrategy(size=actors)
    )
    found = {row["key"]: row for row in found.take_all()}
    assert sorted(found) == sorted(KEYS) and all(KEYS[row["label"]] == key for key, row in found.items())
    for key, row in found.items():
        assert np.array_equal(row["audio"], expected[key])


BEATS = [np.linspace(0.05, 0.4, 3 + k) for k in range(COUNT)]


def dataset_of(ray: Any, actors: int, epoch: Any, cut: int, blocks: int = 4, **more: Any) -> Any:
    """Return the examples, shuffled, with the worker part run by actors."""
    waves, order = clips(ragged=True), torch.randperm(COUNT, generator=torch.Generator().manual_seed(0)).tolist()
    rows = [{"audio": waves[k], "key": KEYS[k], "beats": BEATS[k], "label": k} for k in order]
    how = {"chain": CHAIN, "cut": cut, "seed": SEED, "epoch": epoch, "follow": True, **more}
    return ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        Augment, fn_constructor_kwargs=how, batch_size=3, compute=ray.data.ActorPoolStrategy(size=actors)
    )


def examples_of(delivered: Any) -> dict[str, tuple[np.ndarray, list[float], int]]:
    """Return audio without padding, beats and label by key; nothing may come twice."""
    found: dict[str, tuple[np.ndarray, list[float], int]] = {}
    for batch in delivered:
        columns = batch["key"], batch["audio"], batch["lengths"], batch["beats"], batch["label"].tolist()
        for key, wave, length, beats, label in zip(*columns, strict=True):
            assert key not in found
            found[key] = wave[: int(length)].numpy(), beats.tolist(), label
    return found


def expected_of(cut: int, epoch: int) -> dict[str, tuple[np.ndarray, list[float], int]]:
    """Return the same of a Loader."""
    rows = [{"audio": clips(True)[k], "key": KEYS[k], "beats": BEATS[k], "label": k} for k in range(COUNT)]
    how: dict[str, Any] = {"pad": True, "key": "key", "seed": SEED, "targets": {"beats": Stamps()}}
    loader = Loader(rows, CHAIN, Plan(cut=cut), batch_size=5, device="cpu", **how)
    loader.set_epoch(epoch)
    return examples_of(loader)


def assert_same(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 5e-5) -> None:
    assert sorted(found) == sorted(expected)
    for key, (wave, beats, label) in expected.items():
        assert found[key][0].shape == wave.shape and found[key][2] == label
        assert np.abs(found[key][0] - wave).max() <= tolerance * np.abs(wave).max()
        assert found[key][1] == pytest.approx(beats, abs=1e-6)


def batches_of(ds: Any, cut: int, **how: Any) -> Batches:
    how = {"batch_size": 4, "device": "cpu", "seed": SEED, "pad": True, "targets": {"beats": Stamps()}, **how}
    return batches(ds, CHAIN, Plan(cut=cut), **how)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
@pytest.mark.parametrize(("cut", "wire", "tolerance"), [(3, "float32", 5e-5), (len(CHAIN), "int16", 1e-4)])
def test_batches_are_those_of_the_loader_in_every_epoch(cut, wire, tolerance, ray):
    epoch = SharedEpoch()
    found = batches_of(dataset_of(ray, 2, epoch, cut, wire=wire), cut, epoch=epoch)
    assert_same(examples_of(found), expected_of(cut, 0), tolerance)
    found.set_epoch(5)
    assert_same(examples_of(found), expected_of(cut, 5), tolerance)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
def test_an_epoch_continues_on_another_number_of_actors(ray):
    epoch = SharedEpoch()
    first = batches_of(dataset_of(ray, 1, epoch, 3), 3, epoch=epoch)
    first.set_epoch(2)
    delivered = iter(first)
    before = examples_of([next(delivered), next(delivered)])
    state = first.state_dict()
    delivered.close()
    assert state["epoch"] == 2 and len(state["keys"]) == 8
    rest = batches_of(dataset_of(ray, 2, epoch, 3, blocks=2), 3, epoch=epoch)
    rest.load_state_dict(state)
    after = examples_of(rest)
    assert len(after) == COUNT - 8 and not before.keys() & after.keys()
    assert_same(before | after, expected_of(3, 2))
    assert rest.state_dict()["epoch"] == 3 and not len(rest.state_dict()["keys"])


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
def test_ranks_share_an_epoch(ray):
    epoch = SharedEpoch()
    shards = dataset_of(ray, 2, epoch, 3).streaming_split(2)
    ranks = [batches_of(shard, 3, epoch=epoch) for shard in shards]
    for number in (0, 1):
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(examples_of, ranks)
        assert not first.keys() & second.keys()
        assert_same(first | second, expected_of(3, number))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
def test_what_is_wrong_in_an_actor_is_said(ray):
    rows = [{"audio": np.ones(4000, np.int64), "key": 1}]
    ds = ray.data.from_items(rows).map_batches(
        Augment, fn_constructor_kwargs={"chain": CHAIN}, batch_size=1, compute=ray.data.ActorPoolStrategy(size=1)
    )
    with pytest.raises(Exception, match=r"A clip has type int64, but must be floating point"):
        list(batches_of(ds, 3, targets=None))
