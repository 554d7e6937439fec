"""Cascades in blocks against scipy: lengths around a block's, and what torch was told about matrix products."""

import numpy as np
import pytest
import torch

from audioaug.dsp.state_space import BLOCK, filter_in_blocks, products_are_exact
from tests.dsp.test_biquads import ROWS, cookbook, expected, noise, sections

FILTERS = [("low_shelf", 42.0), ("peaking", 700.0), ("high_shelf", 7000.0)]


@pytest.fixture
def numbers():
    """The numbers of these filters for all ``ROWS`` of gains and qualities."""
    return torch.from_numpy(np.stack([sections(kind, hz).numbers_RK() for kind, hz in FILTERS], axis=1)).float()


@pytest.fixture
def told():
    """Tell torch how exactly to multiply, and take it back."""
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("samples", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK, 37 * BLOCK + 5])
def test_clips_of_any_length_equal_scipy(numbers, samples):
    x_RT = noise(len(ROWS), 1, samples)[:, 0]
    result_RT = filter_in_blocks(torch.from_numpy(x_RT).float(), numbers).numpy()
    assert result_RT.shape == x_RT.shape
    for row, clip in enumerate(x_RT):
        wanted = expected([cookbook(kind, hz, *ROWS[row]) for kind, hz in FILTERS], clip)
        assert np.abs(result_RT[row] - wanted).max() < 2e-6 * max(np.abs(wanted).max(), np.abs(clip).max())


def test_a_filter_that_rings_for_minutes_loses_no_digits():
    each = sections("peaking", 1.0, [(18.0, 5.0)])
    x_RT = noise(1, 1, 400_000)[:, 0]
    result_RT = filter_in_blocks(torch.from_numpy(x_RT).float(), torch.from_numpy(each.numbers_RK()).float()[:, None])
    wanted = expected([cookbook("peaking", 1.0, 18.0, 5.0)], x_RT[0])
    assert np.abs(result_RT[0].numpy() - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize(("precision", "exact"), [("highest", True), ("high", False), ("medium", False)])
def test_what_torch_is_told_about_products_is_heeded(told, precision, exact):
    told(precision)
    assert products_are_exact(torch.device("cpu")) is exact
    assert not products_are_exact(torch.device("meta"))


def test_so_is_what_its_backend_is_told(told):
    assert products_are_exact(torch.device("cpu"))
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    assert not products_are_exact(torch.device("cpu"))


def test_autocast_does_not_round_the_audio(numbers):
    x_RT = torch.from_numpy(noise(len(ROWS))[:, 0]).float()
    plain = filter_in_blocks(x_RT, numbers)
    with torch.autocast("cpu"):
        cast = filter_in_blocks(x_RT, numbers)
    assert cast.dtype == torch.float32 and torch.equal(cast, plain)


def test_audio_gets_gradients(numbers):
    x_RT = torch.from_numpy(noise(len(ROWS), 1, 5 * BLOCK + 3)[:, 0]).float().requires_grad_()
    filter_in_blocks(x_RT, numbers)[:, -1].sum().backward()
    first = torch.zeros_like(x_RT)
    first[:, 100] = 1.0
    heard_R = filter_in_blocks(first, numbers)[:, -1]
    assert x_RT.grad is not None and torch.allclose(x_RT.grad[:, 100], heard_R, rtol=1e-3, atol=1e-6)
