"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import audiomentations
import pytest
import torch

from audioaug import Loader, Plan
from audioaug.errors import DataError

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
