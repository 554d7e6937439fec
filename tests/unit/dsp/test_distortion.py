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
    scattered = torch.stack([x, x], dim=-1)[..., 0]
    assert torch.equal(distorted(scattered, threshold_B, length_B, scattered), found)
    other = torch.full_like(x, 9.0)
    assert distorted(x, threshold_B, length_B, other) is other
    assert torch.equal(other, found)
    assert distorted(x, threshold_B, length_B, x) is x
    assert torch.equal(x, found)


@pytest.mark.parametrize("special", [[torch.nan, 0.5, 0.0], [torch.nan, torch.inf, -torch.inf], [0.5, torch.inf, 0.0]])
def test_nan_and_infinity_as_in_torch(special):
    numbers = torch.tensor([[special]]), torch.tensor([1.0]), torch.tensor([3]), None
    wanted = by_torch(lambda: distorted(*numbers))
    torch.testing.assert_close(distorted(*numbers), wanted, rtol=2e-6, atol=0.0, equal_nan=True)
