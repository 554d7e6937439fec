"""The loop distorts as the torch definition does."""

import pytest
import torch

from audioaug.dsp.distortion import BLOCK, distorted
from tests.unit.dsp.both_ways import by_torch


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("samples", [1, BLOCK, 5 * BLOCK + 3])
def test_examples_of_any_level_by_any_amount(samples, channels):
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(6, channels, samples, generator=generator) * torch.logspace(-6, 1, 6)[:, None, None]
    length_B = torch.tensor([samples, samples, samples // 2, samples, 0, samples])
    x = torch.where(torch.arange(samples) < length_B[:, None, None], x, 0.0)
    threshold_B = torch.tensor([1.0, 0.01, 0.1, 0.5, 0.0, 1e-4]) * x.abs().amax(dim=(1, 2))
    wanted = by_torch(lambda: distorted(x, threshold_B, length_B, None))
    found = distorted(x, threshold_B, length_B, None)
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=0.0)
    scattered = x.clone().mT.contiguous().mT
    assert torch.equal(distorted(scattered, threshold_B, length_B, scattered), found)
    assert distorted(x, threshold_B, length_B, x) is x
    assert torch.equal(x, found)


def test_what_is_no_number_stays_so_and_infinity_is_bent_to_one():
    x = torch.tensor([[[0.0, torch.nan, torch.inf, -torch.inf]]])
    found = distorted(x, torch.tensor([1.0]), torch.tensor([4]), None)
    torch.testing.assert_close(found, torch.tensor([[[0.0, torch.nan, 1.0, -1.0]]]), equal_nan=True)
