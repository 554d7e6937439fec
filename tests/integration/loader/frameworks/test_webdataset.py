"""WebDataset's tar shards train with what docs/how-to/webdataset.md says, on the audio of the plain Loader."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

pytest.importorskip("webdataset")

import webdataset as wds

from audioaug import Loader, build_cpu
from audioaug.errors import DataError
from tests.integration.loader.frameworks.how_to import (
    CHAIN,
    PLAN,
    Witness,
    assert_dry,
    assert_equal,
    assert_no_clip_twice,
    assert_same_clips,
    keyword_model,
    plain,
    run,
    speech,
)
from tests.integration.loader.material import RATE

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file <_io.* name='words-:ResourceWarning")

SHARDS, EACH = 4, 10


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the demo speech as tar shards; return their folder."""
    folder, words = tmp_path_factory.mktemp("shards"), speech(SHARDS * EACH)
    for shard in range(SHARDS):
        with wds.TarWriter(str(folder / f"words-{shard}.tar")) as tar:
            for k in range(shard * EACH, (shard + 1) * EACH):
                wave, label = words[k]
                data = io.BytesIO()
                soundfile.write(data, wave[0], RATE, format="FLAC")
                tar.write({"__key__": f"{k:04}", "flac": data.getvalue(), "cls": str(label)})
    return folder


def page(folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int = 0) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    return run("webdataset", 0, {"chain": CHAIN, "plan": replace(PLAN, num_workers=workers)})


def test_train(shards, monkeypatch):
    loader: Loader = page(shards, monkeypatch)["loader"]
    model = keyword_model()
    saw, optimizer = Witness(model), torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["audio"][:, None]), batch["label"]).backward()
            optimizer.step()
    assert saw.learned() and batch["__key__"][-1] == "0039"
    assert_equal([each[:, 0] for each in saw.trained], [*in_order(0), *in_order(1)])
    assert_no_clip_twice(saw.trained[:2], saw.trained[2:])


def in_order(epoch: int) -> list[torch.Tensor]:
    words = speech(SHARDS * EACH)
    named = [(*words[k], f"{k:04}") for k in range(SHARDS * EACH)]
    return [each[:, 0] for each in plain(named, epoch, shuffle=False, key=2)]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_audio_does_not_depend_on_who_reads_a_shard(workers, shards, monkeypatch):
    loader: Loader = page(shards, monkeypatch, workers)["loader"]
    batches = list(loader)
    found = {int(key): clip for batch in batches for key, clip in zip(batch["__key__"], batch["audio"])}
    assert sorted(found) == list(range(SHARDS * EACH))
    alone, words = build_cpu(CHAIN), speech(SHARDS * EACH)
    expected = [torch.from_numpy(alone(words[k][0][0], key=f"{k:04}")) for k in found]
    assert_same_clips([torch.stack([*found.values()])], [torch.stack(expected)])
    assert loader.repeated == 0


def test_validation(shards, monkeypatch):
    names = page(shards, monkeypatch)
    loader = Loader(names["stream"], CHAIN, batch_size=16, device="cpu", augment=False)
    assert_dry([batch["audio"] for batch in loader], speech(SHARDS * EACH), lambda example: example[0][0])


def test_more_workers_than_shards_is_an_error(shards, monkeypatch):
    loader: Loader = page(shards, monkeypatch, workers=5)["loader"]
    with pytest.raises(ValueError, match="No samples found in dataset; perhaps you have fewer shards than"):
        list(loader)


@pytest.mark.parametrize("wrap", [wds.WebLoader, torch.utils.data.DataLoader])
def test_web_loader_is_not_a_dataset(shards, monkeypatch, wrap):
    names = page(shards, monkeypatch)
    with pytest.raises(DataError, match="is a loader, which yields batches: Loader needs the dataset in it"):
        Loader(wrap(names["stream"], batch_size=4), CHAIN, device="cpu")
