"""FFT helpers against scipy and brute force."""

import bisect
import itertools

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch

from audioaug.dsp.convolution import convolve
from audioaug.dsp.fft import apply_response, block_length, fast_length

SMOOTH = sorted(2**two * 3**three * 5**five for two, three, five in itertools.product(range(24), range(16), range(11)))


def test_fast_length_is_the_smallest_product_of_2_3_and_5_that_is_large_enough():
    rng = np.random.default_rng(0)
    for at_least in [*range(1, 2100), *rng.integers(2100, 2**21, 300).tolist(), *(2**k + 1 for k in range(22))]:
        best = fast_length(at_least)
        assert best == SMOOTH[bisect.bisect_left(SMOOTH, at_least)] == scipy.fft.next_fast_len(at_least, real=True)


def test_fast_length_of_nothing_is_a_length():
    assert fast_length(0) == 1


@pytest.mark.parametrize(
    ("samples", "taps"), [(1, 1), (1, 7), (7, 1), (1000, 999), (16000, 4096), (50, 3000), (64000, 128)]
)
def test_convolution_is_that_of_scipy(samples, taps):
    rng = np.random.default_rng(1)
    x, h = rng.standard_normal((3, 2, samples)), rng.standard_normal((3, 2, taps))
    expected = scipy.signal.fftconvolve(x, h, axes=-1)
    result = convolve(torch.from_numpy(x).float(), torch.from_numpy(h).float())
    assert result.shape == (3, 2, samples + taps - 1)
    assert np.abs(result.numpy() - expected).max() < 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("samples", [1000, 100_000])
def test_rows_that_share_taps_are_convolved_as_with_their_own(samples):
    rng = torch.Generator().manual_seed(0)
    x, taps = torch.randn(7, 2, samples, generator=rng), torch.randn(3, 2, 500, generator=rng)
    which = torch.tensor([0, 2, 2, 1, 0, 0, 1])
    assert torch.allclose(convolve(x, taps, which), convolve(x, taps[which]), rtol=0.0, atol=1e-4)


def times(response_RF):
    """Return what multiplies spectra (R, C, K, F) by a response of each row."""
    return lambda spectrum: spectrum * response_RF[:, None, None]


def test_a_response_is_applied_to_all_channels_of_its_row():
    x = torch.randn(3, 2, 100, generator=torch.Generator().manual_seed(0))
    delays = torch.tensor([0, 5, 28])
    frequencies = torch.arange(65) / 128
    response = torch.exp(-2j * torch.pi * frequencies * delays[:, None])
    result = apply_response(x, times(response), 128, 28)
    for row, delay in enumerate(delays.tolist()):
        expected = torch.nn.functional.pad(x[row], (delay, 0))[:, :100]
        assert torch.allclose(result[row], expected, atol=1e-5)


@pytest.mark.parametrize(("samples", "tail"), [(1, 1), (100, 28), (1000, 7), (1000, 600), (64000, 700), (64000, 1)])
def test_rows_are_filtered_alike_whole_and_in_blocks(samples, tail):
    rng = np.random.default_rng(2)
    x, h = rng.standard_normal((2, 3, samples)), rng.standard_normal((2, tail + 1))
    expected = scipy.signal.fftconvolve(x, h[:, None], axes=-1)[..., :samples]
    sizes = {block_length(samples, tail, weight) for weight in (0.0, 1.0, 10.0, 1e6)} | {fast_length(samples + tail)}
    assert len(sizes) > (samples > 4 * tail)
    for n in sizes:
        response = torch.fft.rfft(torch.from_numpy(h), n)
        result = apply_response(torch.from_numpy(x), times(response), n, tail).numpy()
        assert np.abs(result - expected).max() < 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize(("samples", "tail"), [(100, 28), (1000, 7), (1000, 450), (64000, 700)])
def test_what_is_before_a_row_rings_into_it(samples, tail):
    rng = np.random.default_rng(3)
    x, h, before = rng.standard_normal((2, 3, samples)), rng.standard_normal((2, tail + 1)), rng.standard_normal((2, 3))
    longer = np.concatenate([np.repeat(before[..., None], tail, axis=-1), x], axis=-1)
    expected = scipy.signal.fftconvolve(longer, h[:, None], axes=-1)[..., tail : tail + samples]
    for n in {block_length(samples, tail), fast_length(samples + tail)}:
        response = torch.fft.rfft(torch.from_numpy(h), n)
        start = torch.from_numpy(before)[..., None]
        result = apply_response(torch.from_numpy(x), times(response), n, tail, before_RC1=start).numpy()
        assert np.abs(result - expected).max() < 1e-9 * np.abs(expected).max()


def test_the_dearer_the_response_the_shorter_the_blocks():
    sizes = [block_length(64000, 900, weight) for weight in (0.0, 0.3, 3.0, 30.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= 1800
