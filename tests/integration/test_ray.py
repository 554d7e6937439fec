"""Ray Data actors give the audio of the Loader by key, however the data are divided; and a plain dict will do, too."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import DataError, PlanError
from audioaug.integrations.ray import Augment
from tests.integration.loader.material import RATE, Words, exact_chain

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
    assert list(found) == list(batch) and np.array_equal(found["label"], batch["label"])
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
    with pytest.raises(PlanError, match=r"Mix: it mixes examples of one batch, and a worker sees one"):
        Augment(Chain([ops.Mix(p=1.0)], RATE), cut=1)
    with pytest.raises(PlanError, match="cannot be cut at 99"):
        Augment(CHAIN, cut=99)


# On a cluster


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a local cluster of one node."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray.init(num_cpus=4, object_store_memory=10**8, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore::Warning")  # of Ray itself
@pytest.mark.parametrize(("actors", "batch_size"), [(1, 4), (2, 4), (2, 32)])
def test_actors_give_the_audio_of_the_loader(actors, batch_size, ray):
    waves = clips(ragged=True)
    expected = of_the_loader(waves, 3)
    rows = [{"audio": wave, "key": key, "label": k} for k, (wave, key) in enumerate(zip(waves, KEYS))]
    rows = [rows[k] for k in torch.randperm(COUNT, generator=torch.Generator().manual_seed(batch_size)).tolist()]
    how = {"chain": CHAIN, "cut": 3, "seed": SEED, "epoch": EPOCH}
    found = ray.data.from_items(rows, override_num_blocks=3).map_batches(
        Augment, fn_constructor_kwargs=how, batch_size=batch_size, concurrency=actors
    )
    found = {row["key"]: row for row in found.take_all()}
    assert sorted(found) == sorted(KEYS) and all(KEYS[row["label"]] == key for key, row in found.items())
    for key, row in found.items():
        assert np.array_equal(row["audio"], expected[key])
