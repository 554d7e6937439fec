"""Convolution equals scipy's, and loops the torch definition."""

import functools

import numpy as np
import pytest
import scipy.signal
import torch

from audioaug.dsp import fft, loops
from audioaug.dsp.convolution import convolve
from tests.unit.dsp.both_ways import by_torch


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


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("taps", [1, 2, 15, 16, 17, 128])
@pytest.mark.parametrize("samples", [1, 2047, 2048, 5000])
def test_convolution_with_few_taps_is_the_same(samples, taps):
    x_RCT, taps_R1L = torch.randn(5, 2, samples), torch.randn(5, 1, taps)
    found, wanted = convolve(x_RCT, taps_R1L), by_torch(lambda: convolve(x_RCT, taps_R1L))
    assert found.shape == wanted.shape and (found - wanted).abs().max() < 5e-6 * taps


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("taps", [1, 2, 500, 4096, 9000])
@pytest.mark.parametrize("samples", [1, 1000, 50_000])
def test_convolution_by_spectra_is_the_same(samples, taps):
    x_RCT, taps_NCL, which_R = torch.randn(5, 2, samples), torch.randn(3, 2, taps), torch.tensor([0, 2, 2, 1, 0])
    for start, samples_out in ((0, None), (0, samples), ((taps - 1) // 2, samples), (taps - 1, 1)):
        for few in (taps_NCL, taps_NCL[:, :1]):
            work = functools.partial(convolve, x_RCT, few, which_R, start, samples_out)
            found, wanted = work(), by_torch(work)
            assert found.shape == wanted.shape and (found - wanted).abs().max() < 1e-5 * taps**0.5


def test_without_plans_of_ffts_operations_run(monkeypatch):
    x_RCT, taps_NCL, which_R = torch.randn(3, 1, 1000), torch.randn(2, 1, 300), torch.tensor([0, 1, 0])
    ran, wanted = [], convolve(x_RCT, taps_NCL, which_R)
    monkeypatch.setattr(fft, "mkl", lambda: None)
    monkeypatch.setattr(loops, "run", lambda loop, *_: ran.append(loop))
    assert torch.allclose(convolve(x_RCT, taps_NCL, which_R), wanted, atol=1e-4) and not ran
