"""Ray Data and Ray Train train with what docs/how-to says, on the audio of the plain Loader, in every epoch."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Loader
from scripts.models.keyword_cnn import KeywordCNN
from tests.helpers.local_ray import local_ray
from tests.integration.loader.frameworks.how_to import (
    CHAIN,
    PLAN,
    Witness,
    assert_no_clip_twice,
    assert_same_clips,
    keyword_model,
    run,
    speech,
)

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::Warning")]  # warnings of Ray itself

WORDS = speech(24)
ROWS = [{"audio": WORDS[k][0], "label": WORDS[k][1], "key": f"{k:04}"} for k in range(len(WORDS))]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    pytest.importorskip("ray.data")
    with local_ray(num_cpus=4) as ray:
        yield ray


def expected(epoch: int) -> list[torch.Tensor]:
    loader = Loader(ROWS, CHAIN, PLAN, batch_size=24, device="cpu", key="key")
    loader.set_epoch(epoch)
    return [batch["audio"] for batch in loader]


def test_ray_data(ray):
    model = keyword_model()
    saw, optimizer = Witness(model), torch.optim.SGD(model.parameters(), lr=0.01)
    yours = {"rows": ROWS, "chain": CHAIN, "plan": PLAN, "model": model, "optimizer": optimizer, "device": "cpu"}
    names = run("ray-data", 0, yours)
    assert saw.learned() and len(saw.trained) == 2
    for epoch in (0, 1):
        assert_same_clips([saw.trained[epoch]], expected(epoch))
    assert_no_clip_twice(saw.trained[:1], saw.trained[1:])
    assert names["batch"]["lengths"].tolist() == [8000] * 24 and names["loader"].repeated == 0


class Noting(KeywordCNN):
    """Writes what it is given to a folder: it is on another process."""

    def __init__(self, folder: str) -> None:
        super().__init__(width=4)
        self.folder, self.count = folder, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, f"{self.folder}/{os.getpid()}-{self.count}.pt")
        self.count += 1
        return super().forward(x)


def test_ray_train(ray, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where results are kept
    yours = {"rows": ROWS, "chain": CHAIN, "plan": PLAN, "build_model": partial(Noting, str(tmp_path))}
    result = run("ray-train", 0, yours)["result"]
    assert np.isfinite(result.metrics["loss"])
    for epoch in (0, 1):  # two ranks with three batches of four each
        files = [file for step in range(3 * epoch, 3 * epoch + 3) for file in tmp_path.glob(f"*-{step}.pt")]
        assert len(files) == 6
        assert_same_clips([torch.load(file) for file in files], expected(epoch))
