"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import importlib.util

import audiomentations
import pytest
import torch

from audioaug import AudioFolder, Loader, Plan
from audioaug.errors import DataError, UsageError
from tests.train.material import DEMO

RATE = 16000


def test_r5_06_a_loader_takes_an_audiomentations_compose():
    compose = audiomentations.Compose([audiomentations.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)])
    [batch] = Loader([torch.ones(100)] * 2, compose, sample_rate=RATE, device="cpu", batch_size=2)
    torch.testing.assert_close(batch, torch.full((2, 100), 10**0.3))


def test_r5_13_an_unpicklable_dataset_under_spawn_is_named():
    class Local(list):  # type: ignore[type-arg]
        pass

    loader = Loader(
        Local([torch.ones(100)]), [], Plan(num_workers=1, start_method="spawn"), sample_rate=RATE, device="cpu"
    )
    with pytest.raises(DataError, match=r"`dataset` \(.*Local\) does not pickle"):
        list(loader)


def test_r5_18_the_audio_may_have_another_key():
    for key in ("wav", "input_values"):
        [batch] = Loader([{key: torch.ones(100), "label": 3}] * 2, [], sample_rate=RATE, device="cpu", batch_size=2)
        assert batch[key].shape == (2, 100)


def test_r5_18_undecoded_audio_of_hugging_face_is_decoded():
    file = AudioFolder(DEMO / "speech", RATE).files[0]
    [wave] = Loader([{"audio": {"bytes": None, "path": file}}], [], sample_rate=RATE, device="cpu")
    assert wave["audio"].shape[1] > RATE // 4


@pytest.mark.skipif(importlib.util.find_spec("torchcodec") is not None, reason="torchcodec is installed")
def test_r5_18_without_torchcodec_there_is_one_sentence():
    datasets = pytest.importorskip("datasets", "4")
    files = {"audio": [AudioFolder(DEMO / "speech", RATE).files[0]]}
    dataset = datasets.Dataset.from_dict(files).cast_column("audio", datasets.Audio())
    with pytest.raises(UsageError, match=r"needs torchcodec.* Install torchcodec and FFmpeg, or .*decode=False"):
        list(Loader(dataset, [], sample_rate=RATE, device="cpu"))
