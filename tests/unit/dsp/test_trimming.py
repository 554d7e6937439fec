"""The loop finds the same loud spans as the torch definition."""

import pytest
import torch

from audioaug.dsp.trimming import FRAME_HOPS, HOP, loud_span
from tests.unit.dsp.both_ways import by_torch

SILENT, LOUD = 0.001, 0.5


def same(x_BCT, length_B, top_db=30.0):
    """Return the spans of both, which are equal."""
    found = loud_span(x_BCT, length_B, top_db)
    wanted = by_torch(lambda: loud_span(x_BCT, length_B, top_db))
    assert all(torch.equal(*both) for both in zip(found, wanted))
    return [each.tolist() for each in found]


@pytest.mark.parametrize("top_db", [0.0, 10.0, 30.0, 90.0])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("samples", [1, HOP - 1, HOP, 3 * HOP + 1, 40 * HOP])
def test_any_examples(samples, channels, top_db):
    generator = torch.Generator().manual_seed(samples)
    x, level_BT = (torch.randn(8, many, samples, generator=generator) for many in (channels, 1))
    length_B = torch.tensor([0, 1, samples, samples, samples // 2, samples - 1, max(samples - HOP, 0), samples])
    x = torch.where(torch.arange(samples) < length_B[:, None, None], x * level_BT**5 * 0.01, 0.0)
    x[3] = 0.0
    same(x, length_B, top_db)


@pytest.mark.parametrize("top_db", [20, 40, 60])
def test_frames_exactly_that_far_below_the_loudest(top_db):
    x = torch.arange(1.0, 33.0)[:, None, None].repeat(1, 1, 40 * HOP)  # whole numbers: their squares add up exactly
    x[..., 16 * HOP : 24 * HOP] *= 10 ** (top_db // 20)
    same(x, torch.full((32,), 40 * HOP), top_db)


@pytest.mark.parametrize("channel", [0, 1])
def test_a_loud_channel_is_enough(channel):
    x = torch.full((1, 2, 20 * HOP), SILENT)
    x[0, channel, 8 * HOP : 10 * HOP] = LOUD
    first, last = 8 - FRAME_HOPS // 2 + 1, 9 + FRAME_HOPS // 2
    assert same(x, torch.tensor([20 * HOP])) == [[first * HOP], [(last - first + 1) * HOP]]


def test_what_is_no_number_is_not_loud():
    x = torch.full((1, 1, 20 * HOP), LOUD)
    x[0, 0, 5 * HOP] = torch.nan
    assert same(x, torch.tensor([20 * HOP])) == [[0], [0]]
