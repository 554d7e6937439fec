"""FFT helpers against scipy and brute force."""

import bisect
import itertools
import re

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch

from audioaug.dsp.fft import apply_response, block_length, fast_length, mkl, mkl_plan, to_spectrum
from audioaug.dsp.loops import loop

SMOOTH = sorted(2**two * 3**three * 5**five for two, three, five in itertools.product(range(24), range(16), range(11)))


def test_fast_length_is_the_smallest_product_of_2_3_and_5_that_is_large_enough():
    rng = np.random.default_rng(0)
    for at_least in [*range(1, 2100), *rng.integers(2100, 2**21, 300).tolist(), *(2**k + 1 for k in range(22))]:
        best = fast_length(at_least)
        assert best == SMOOTH[bisect.bisect_left(SMOOTH, at_least)] == scipy.fft.next_fast_len(at_least, real=True)


def test_fast_length_of_nothing_is_a_length():
    assert fast_length(0) == 1


def times(response_RF):
    """Return what multiplies spectra (R, C, K, F) by a response of each row, over the length of the FFT."""
    return lambda spectrum: spectrum * response_RF[:, None, None] / (2 * spectrum.shape[-1] - 2)


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
def test_filtering_in_blocks_equals_filtering_whole_rows(samples, tail):
    rng = np.random.default_rng(2)
    x, h = rng.standard_normal((2, 3, samples)), rng.standard_normal((2, tail + 1))
    expected = scipy.signal.fftconvolve(x, h[:, None], axes=-1)
    sizes = {block_length(samples, tail, weight) for weight in (0.0, 1.0, 10.0, 1e6)} | {fast_length(samples + tail)}
    assert len(sizes) > (samples > 4 * tail)
    for n in sizes:
        response = torch.fft.rfft(torch.from_numpy(h), n)
        for samples_out in (None, samples + tail):  # to the end of the row, or of its tail
            result = apply_response(torch.from_numpy(x), times(response), n, tail, samples_out).numpy()
            assert result.shape[-1] == (samples_out or samples)
            error = np.abs(result - expected[..., : result.shape[-1]]).max()
            assert error < 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize(("samples", "tail"), [(100, 28), (1000, 7), (1000, 450), (64000, 700)])
def test_a_steady_state_before_a_row_rings_into_it(samples, tail):
    rng = np.random.default_rng(3)
    x, h = rng.standard_normal((2, 3, samples)), rng.standard_normal((2, tail + 1))
    longer = np.concatenate([np.repeat(x[..., :1], tail, axis=-1), x], axis=-1)
    expected = scipy.signal.fftconvolve(longer, h[:, None], axes=-1)[..., tail : tail + samples]
    for n in {block_length(samples, tail), fast_length(samples + tail)}:
        response = torch.fft.rfft(torch.from_numpy(h), n)
        result = apply_response(torch.from_numpy(x), times(response), n, tail, steady=True).numpy()
        assert np.abs(result - expected).max() < 1e-9 * np.abs(expected).max()


def test_longer_responses_get_shorter_blocks():
    sizes = [block_length(64000, 900, weight) for weight in (0.0, 0.3, 3.0, 30.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= 1800


# For loops


def test_a_plan_is_made_once_and_one_that_cannot_be_is_an_error():
    assert mkl() is None or mkl_plan(512) == mkl_plan(512)
    with pytest.raises(RuntimeError, match="FFT of -1 numbers"):
        mkl_plan(-1)


@pytest.mark.skipif(mkl() is None, reason="torch has no MKL here")
def test_the_fft_is_called_as_the_function_with_more_arguments_that_it_is_in_c(monkeypatch) -> None:
    """Called as one of two arguments, it crashed Python with torch 2.4 (the MKL of 2.11 does not mind)."""
    pytest.importorskip("numba")
    monkeypatch.setattr("audioaug.dsp.loops.set_numba_cache", lambda *_: None)  # cached code cannot be looked into

    @loop
    def transform(plan, x):
        return to_spectrum(plan, x.ctypes.data)

    x = np.zeros(66, dtype=np.float32)
    x[0] = 1.0
    assert transform(mkl_plan(64), x) == 0 and np.array_equal(x[:66:2], np.ones(33))
    [code] = transform.compiled.inspect_llvm().values()
    assert re.search(r"call i64 \(i64, i64, \.\.\.\)\s+@DftiComputeForward", code)
