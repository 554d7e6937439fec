"""What review 2 found, by its numbers: each finding has a test that failed before its fix."""

import pytest
import torch

from audioaug import Chain, Loader, ops

CHAIN = Chain([ops.Gain(p=1.0)], sample_rate=16000)


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"on_error": "replace"}])
def test_r2_04_a_bug_in_the_dataset_is_raised_not_skipped(options):
    class Buggy(list):  # type: ignore[type-arg]
        def __getitem__(self, index):
            if index % 2:
                raise ValueError("a bug of the user's")
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="a bug of the user's"):
        list(Loader(Buggy([torch.ones(100)] * 4), CHAIN, device="cpu", **options))


def test_r2_13_a_loader_has_what_a_data_loader_has():
    dataset = [torch.ones(100)] * 7
    loader = Loader(dataset, CHAIN, device="cpu", batch_size=2)
    assert loader.dataset is dataset and len(loader.sampler) == 7  # type: ignore[arg-type]
    assert (len(loader), loader.batch_size, loader.num_workers, loader.drop_last) == (4, 2, 0, False)
