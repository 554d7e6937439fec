"""Noise from keys: Gaussian, white, unrelated between rows and channels, and a pure function of its key."""

import numpy as np
import pytest
import scipy.stats
import torch

from audioaug.dsp.noise import a_weighting, gaussian, hash_64, real_spectrum, uniform
from tests.unit.dsp.both_ways import by_torch

MANY = 2**16
RARE = 4.5  # standard deviations; the keys are fixed, so a test that passes once passes always
KEYS = torch.tensor([0, 1, 2, 3, 12345, 2**31, 2**32, 2**52 - 1])


def splitmix_by_the_book(counter):
    """SplitMix64's finaliser in plain Python integers."""
    z = counter * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


@pytest.mark.parametrize("counter", [0, 1, 2, 2**52 - 1, 2**63 - 1, 2**64 - 1])
def test_the_hash_is_splitmix64(counter):
    signed = counter - 2**64 if counter >= 2**63 else counter
    assert hash_64(torch.tensor([signed])).item() % 2**64 == splitmix_by_the_book(counter)


def test_splitmix_by_the_book_gives_the_published_first_output():
    assert splitmix_by_the_book(1) == 0xE220A8397B1DCDAF  # of the generator seeded with 0


@pytest.mark.parametrize("row", range(len(KEYS)))
def test_it_is_standard_normal(row):
    x = gaussian(KEYS[row : row + 1], 1, MANY)[0, 0].double().numpy()
    assert abs(x.mean()) < RARE / np.sqrt(MANY)
    assert abs(x.var() - 1) < RARE * np.sqrt(2 / MANY)
    assert abs(scipy.stats.skew(x)) < RARE * np.sqrt(6 / MANY)
    assert abs(scipy.stats.kurtosis(x)) < RARE * np.sqrt(24 / MANY)
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-4
    assert 3.8 < np.abs(x).max() < 6.5 and np.isfinite(x).all()


def largest_correlation(one, other, skip_zero_lag=False):
    """Return the largest circular cross-correlation over all lags, in standard deviations of unrelated noise."""
    spectrum = np.fft.rfft(one) * np.fft.rfft(other).conj()
    correlation = np.abs(np.fft.irfft(spectrum, len(one))) / np.sqrt(len(one))
    return correlation[1:].max() if skip_zero_lag else correlation.max()


HIGHEST = 6.2  # of 65,536 lags: seen once in 30,000 tests


@pytest.mark.parametrize("row", range(len(KEYS)))
def test_it_is_white(row):
    x = gaussian(KEYS[row : row + 1], 1, MANY)[0, 0].double().numpy()
    assert largest_correlation(x, x, skip_zero_lag=True) < HIGHEST
    assert largest_correlation(x**2 - 1, x**2 - 1, skip_zero_lag=True) / 2 < HIGHEST + 1
    bands = (np.abs(np.fft.rfft(x)[1:]) ** 2).reshape(64, -1).mean(axis=1) / MANY
    assert np.abs(bands - 1).max() < RARE / np.sqrt(MANY / 2 / 64)


def test_rows_and_channels_are_unrelated_at_every_lag_also_backwards():
    noise = gaussian(KEYS, 2, MANY).double().numpy().reshape(-1, MANY)
    for place in range(1, len(noise)):
        for earlier in range(place):
            assert largest_correlation(noise[place], noise[earlier]) < HIGHEST
            assert largest_correlation(noise[place], noise[earlier][::-1]) < HIGHEST


def test_the_tests_reject_coloured_repeated_and_shared_noise():
    x = gaussian(KEYS[:1], 1, MANY)[0, 0].double().numpy()
    repeated = np.tile(x[: MANY // 4], 4)
    assert largest_correlation(x + 0.05 * np.roll(x, 1), x, skip_zero_lag=True) > HIGHEST
    assert largest_correlation(repeated, repeated, skip_zero_lag=True) > HIGHEST
    assert largest_correlation(np.roll(x, 999), x) > HIGHEST
    noise = gaussian(KEYS, 1, MANY)[:, 0].double().numpy()
    assert min(scipy.stats.kstest(np.sign(x) * np.abs(x) ** 1.05, "norm").pvalue for x in noise) < 1e-4


def test_a_row_is_the_same_in_any_batch():
    together = gaussian(KEYS, 2, 1001)
    assert together.shape == (len(KEYS), 2, 1001) and together.dtype == torch.float32
    for row in range(len(KEYS)):
        assert torch.equal(gaussian(KEYS[row : row + 1], 2, 1001)[0], together[row])
    assert torch.equal(gaussian(KEYS.flip(0), 2, 1001), together.flip(0))
    assert torch.equal(gaussian(KEYS[[3, 3]], 2, 1001)[0], gaussian(KEYS[[3, 3]], 2, 1001)[1])


@pytest.mark.parametrize("samples", [0, 1, 2, 7, 500, 999])
def test_padding_a_clip_further_or_adding_channels_does_not_change_its_noise(samples):
    assert torch.equal(gaussian(KEYS, 1, samples), gaussian(KEYS, 3, 1000)[:, :1, :samples])


def test_it_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    gaussian(KEYS, 1, 100)
    assert torch.equal(torch.get_rng_state(), before)


def test_uniform_numbers_are_evenly_spread_and_their_own():
    u = uniform(KEYS, MANY).double()
    assert u.min() >= 0.0 and u.max() < 1.0
    for row in u.numpy():
        assert scipy.stats.kstest(row, "uniform").pvalue > 1e-4
        assert largest_correlation(row - 0.5, row - 0.5, skip_zero_lag=True) * 12 < HIGHEST
    for row, noise in zip(u.numpy(), gaussian(KEYS, 1, MANY)[:, 0].double().numpy()):
        assert largest_correlation(row - 0.5, noise) * 12**0.5 < HIGHEST
    for row in u.numpy()[1:]:
        assert largest_correlation(row - 0.5, u[0].numpy() - 0.5) * 12 < HIGHEST
    assert torch.equal(uniform(KEYS[3:4], 50)[0], uniform(KEYS, 70)[3, :50])


@pytest.mark.parametrize("bins", [2, 3, 65])
def test_real_spectra_are_those_of_numpys_inverse_fft(bins):
    rng = np.random.default_rng(bins)
    magnitude, phase = rng.uniform(0.1, 2.0, (3, bins)), rng.uniform(0.0, 7.0, (3, bins))
    taps = torch.fft.irfft(real_spectrum(torch.tensor(magnitude), torch.tensor(phase))).numpy()
    np.testing.assert_allclose(taps, np.fft.irfft(magnitude * np.exp(1j * phase)), atol=1e-12)
    if bins > 2:
        np.testing.assert_allclose(np.abs(np.fft.rfft(taps))[:, 1:-1], magnitude[:, 1:-1], atol=1e-12)


def test_a_weighting_is_that_of_the_standard():
    """IEC 61672-1, table 3: relative to 1 kHz, in dB."""
    hertz = torch.tensor([10.0, 31.623, 125.89, 501.19, 1000.0, 1995.3, 7943.3, 19953.0], dtype=torch.float64)
    level = 20 * (a_weighting(hertz) / a_weighting(torch.tensor([1000.0]))).log10()
    assert level.tolist() == pytest.approx([-70.4, -39.4, -16.1, -3.2, 0.0, 1.2, -1.1, -9.3], abs=0.06)
    assert a_weighting(torch.zeros(1)).item() == 0.0 and a_weighting(torch.tensor([96000.0])).isfinite()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("samples", [1, 2, 17, 20_000])
def test_noise_by_a_loop_is_the_same(samples):
    key_R = torch.tensor([0, 1, 2**52 - 1, 123_456_789, 5])
    found, wanted = gaussian(key_R, 2, samples), by_torch(lambda: gaussian(key_R, 2, samples))
    assert found.shape == wanted.shape == (5, 2, samples)
    assert (found - wanted).abs().max() < 2e-6
