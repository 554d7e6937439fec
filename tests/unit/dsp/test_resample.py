"""Resampling against soxr, theory and pure tones."""

import math

import numpy as np
import pytest
import soxr
import torch

from audioaug.dsp import fft
from audioaug.dsp.resample import fixed_ratio, reach_of, resample
from tests.unit.dsp.both_ways import by_torch

pytestmark = pytest.mark.usefixtures("either_way")

RATE = 16000
SAMPLES = 6000
NEW_RATES = [3200, 4001, 8000, 9999, 12345, 15999, 16001, 22050, 31999, 44100, 79000]
EDGE = 400
"""Input samples in which a tone that begins with a jump rings."""


def ratios(new_rates, old_rate=RATE):
    return torch.from_numpy(fixed_ratio(np.full(len(new_rates), float(old_rate)), np.asarray(new_rates, dtype=float)))


def run(x, new_rates, lengths=None, samples_out=None):
    """Resample rows (R, C, T) to rates of their own, for as many samples as the fastest needs."""
    lengths = torch.full((len(x),), x.shape[-1]) if lengths is None else lengths
    out = math.ceil(x.shape[-1] * max(new_rates) / RATE) if samples_out is None else samples_out
    return resample(x, ratios(new_rates), out, lengths, reach_of(min(new_rates) / RATE))


def tones(hz, samples=SAMPLES, rate=RATE):
    """Return sines of the frequencies, and 1 of the phase, at a rate: (samples,) float64."""
    return np.sin(2 * np.pi * hz * np.arange(samples) / rate + 1.0)


def faded(x, samples=EDGE):
    ramp = np.clip(np.minimum(np.arange(x.shape[-1]), np.arange(x.shape[-1])[::-1]) / samples, 0, 1)
    return x * np.sin(ramp * np.pi / 2) ** 2


def decibels(x):
    return 20 * math.log10(max(float(np.sqrt(np.mean(np.square(x)))) * 2**0.5, 1e-12))


def test_band_limited_noise_equals_soxrs_at_every_ratio_in_one_batch():
    """Below 0.9 of the lower Nyquist frequency; what is left is the 0.01 dB that soxr's own pass band sags."""
    rng = np.random.default_rng(0)
    frequency = np.fft.rfftfreq(SAMPLES, 1 / RATE)
    spectra = np.fft.rfft(rng.standard_normal((len(NEW_RATES), 2, SAMPLES)))
    spectra[:] *= (frequency < 0.45 * np.minimum(RATE, NEW_RATES)[:, None])[:, None]
    x = faded(np.fft.irfft(spectra, SAMPLES)).astype(np.float32)
    result = run(torch.from_numpy(x), NEW_RATES).numpy()
    for row, rate in enumerate(NEW_RATES):
        expected = soxr.resample(x[row].T, RATE, rate, quality="HQ").T
        error = np.abs(result[row, :, : expected.shape[1]] - expected).max() / np.abs(expected).max()
        assert error < 4e-4, (rate, error)


def test_long_clips_in_blocks_equal_whole_clips(monkeypatch):
    rates = [2000, 4001, 12345, 16000, 22050, 79000]
    x = torch.randn(len(rates), 2, 50_000, generator=torch.Generator().manual_seed(1))  # it begins and ends with jumps
    lengths = torch.tensor([50_000, 49_999, 20_000, 7, 50_000, 30_001])
    in_blocks = run(x, rates, lengths)
    monkeypatch.setattr("audioaug.dsp.resample.BLOCK_REACHES", 100)
    at_once = run(x, rates, lengths)
    assert float((in_blocks - at_once).abs().max() / at_once.abs().max()) < 2e-6


@pytest.mark.parametrize("band_limit", [True, False])
@pytest.mark.parametrize("samples", [3000, 30_000])
@pytest.mark.parametrize("with_mkl", [True, False])
def test_blocks_are_not_heard(with_mkl, samples, band_limit, monkeypatch):
    """Nor does it matter whether loops call FFTs, or torch does, as on processors without MKL."""
    if not with_mkl:
        monkeypatch.setattr(fft, "mkl", lambda: None)
    rates = [2000, 4001, 12345, 15999, 22050, 79000]
    x, lengths = torch.randn(len(rates), 1, samples), torch.full((len(rates),), samples)
    arguments = ratios(rates), 4 * samples, lengths, reach_of(2000 / RATE), band_limit
    found, wanted = resample(x, *arguments), by_torch(lambda: resample(x, *arguments))
    assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()


def test_it_is_exact_to_rounding():
    """Against theory: tones under a Hann window, below 0.9 of the lower Nyquist; soxr itself is off by 1e-4."""
    rng = np.random.default_rng(1)
    every_hz = [rng.uniform(20, 0.45 * min(rate, RATE) - 10, 20) for rate in NEW_RATES]
    x = np.stack([windowed_tones(hz, SAMPLES, RATE) for hz in every_hz])
    result = run(torch.from_numpy(x[:, None]).float(), NEW_RATES).numpy()
    for row, (rate, hz) in enumerate(zip(NEW_RATES, every_hz)):
        expected = windowed_tones(hz, SAMPLES * rate // RATE, rate)
        error = np.abs(result[row, 0, : len(expected)] - expected).max() / np.abs(expected).max()
        assert error < 3e-6, (rate, error)


def windowed_tones(every_hz, samples, rate):
    window = np.sin(np.pi * np.arange(samples) / rate * RATE / SAMPLES) ** 2
    return window * sum(tones(hz, samples, rate) for hz in every_hz)


@pytest.mark.parametrize("hz", [100.0, 997.0, 2999.0, 0.91 * 4000])
def test_a_tone_keeps_its_frequency_phase_and_level_to_the_end(hz):
    new_rates = [8000, 8001, 11025, 16000, 17321, 44100]
    x = torch.from_numpy(tones(hz, 40000)).float().expand(len(new_rates), 1, -1)
    result = run(x, new_rates).numpy()
    for row, rate in enumerate(new_rates):
        samples = 40000 * rate // RATE
        inside = slice(EDGE * rate // RATE, samples - EDGE * rate // RATE)
        assert np.abs(result[row, 0, :samples] - tones(hz, samples, rate))[inside].max() < 2e-4, rate


@pytest.mark.parametrize("share", [1.0, 1.02, 1.2, 1.7])
def test_a_tone_from_the_new_nyquist_on_vanishes(share):
    new_rates, samples = [3200, 5333, 8000], 40000
    x = np.stack([faded(tones(share * rate / 2, samples), samples // 2) for rate in new_rates])
    result = run(torch.from_numpy(x).float()[:, None], new_rates).numpy()
    for row, rate in enumerate(new_rates):
        level = decibels(result[row, 0, samples * rate // (4 * RATE) : 3 * samples * rate // (4 * RATE)])
        assert level < (-100 if share == 1.0 else -140), (rate, level)


def test_no_images_above_the_old_nyquist():
    hz = 7000.0
    result = run(torch.from_numpy(faded(tones(hz))).float()[None, None], [48000]).numpy()[0, 0]
    spectrum = np.abs(np.fft.rfft(result * np.hanning(len(result))))
    frequency = np.fft.rfftfreq(len(result), 1 / 48000)
    assert spectrum[frequency > 8300].max() < 10 ** (-115 / 20) * spectrum.max()
    assert frequency[spectrum.argmax()] == pytest.approx(hz, abs=8)


def test_a_ratio_of_one_changes_nothing_and_equal_time_is_zero():
    x = torch.randn(3, 2, 777)
    result = run(x, [RATE, 8000, RATE])
    assert torch.equal(result[0], x[0]) and torch.equal(result[2], x[2])
    assert torch.equal(run(x, [RATE] * 3, samples_out=1000)[..., :777], x)
    assert not run(x, [RATE] * 3, samples_out=1000)[..., 777:].any()


def test_ratio_near_one_is_continuous():
    x = torch.from_numpy(faded(tones(1000.0))).float()[None, None]
    near = resample(x, ratios([RATE]) + 1, SAMPLES, torch.tensor([SAMPLES]))
    assert not torch.equal(near, x) and (near - x).abs().max() < 2e-6


def test_rows_are_independent_and_ignore_padding():
    new_rates, lengths = [8000, 12345, 44100, 16000], torch.tensor([6000, 4321, 100, 1])
    x = torch.randn(4, 1, SAMPLES)
    inside = torch.arange(SAMPLES) < lengths[:, None, None]
    together = run(x.masked_fill(~inside, float("nan")), new_rates, lengths)
    broken = run(torch.where(torch.arange(4)[:, None, None] == 1, float("inf"), x * inside), new_rates, lengths)
    for row, rate in enumerate(new_rates):
        alone = run(x[row : row + 1, :, : lengths[row]], [rate])
        length = alone.shape[-1]
        torch.testing.assert_close(together[row, :, :length], alone[0], rtol=0, atol=3e-6)
        assert not together[row, :, math.ceil(int(lengths[row]) * rate / RATE) :].any()
        assert row == 1 or torch.equal(broken[row], together[row])


def test_last_sample_before_the_end_of_a_clip_sounds():
    new_rates, lengths = [12345, 44100], torch.tensor([777, 100])
    result = run(torch.ones(2, 1, 777), new_rates, lengths)
    for row, rate in enumerate(new_rates):
        sounding = math.ceil(int(lengths[row]) * rate / RATE)
        assert result[row, 0, sounding - 1] > 0.1 and not result[row, 0, sounding:].any()


def test_the_start_of_a_clip_is_that_of_a_clip_after_silence():
    """Which soxr's is not: between its stages it forgets what lies before time 0."""
    x, before, first = np.ones(2000, np.float32), 16000, 24001
    ours, later = (
        run(torch.from_numpy(clip)[None, None], [24001])[0, 0, place : place + 20].numpy()
        for clip, place in ((x, 0), (np.pad(x, (before, 0)), first))
    )
    soon, late = (
        soxr.resample(clip, RATE, 24001, quality="HQ")[place : place + 20]
        for clip, place in ((x, 0), (np.pad(x, (before, 0)), first))
    )
    assert np.abs(ours - later).max() < 2e-3 and np.abs(later - late).max() < 1e-4
    assert np.abs(soon - late).max() > 0.03 and np.abs(soon - ours)[8:].max() < 3e-3


def test_time_does_not_drift_in_long_clips():
    """A click at the end of two minutes at 44.1 kHz comes out where it should, to a thousandth of a sample."""
    samples, at = 120 * 44100, 120 * 44100 - 9000
    x = torch.zeros(1, 1, samples)
    x[..., at] = 1.0
    new_rate = 31337
    out = math.ceil(samples * new_rate / 44100)
    result = resample(x, ratios([new_rate], 44100), out, torch.tensor([samples]))[0, 0].double()
    place = at * new_rate / 44100
    around = torch.arange(int(place) - 400, int(place) + 400, dtype=torch.float64)
    value = result[around.long()]
    turn = torch.exp(-0.5j * math.pi * (around - place))
    assert float((value * turn).sum().angle()) / (0.5 * math.pi) == pytest.approx(0.0, abs=1e-3)


def test_ratios_in_floating_point_do_for_short_clips():
    x = torch.from_numpy(faded(tones(1000.0))).float()[None, None]
    exact = run(x, [12345])
    for dtype, limit in ((torch.float64, 1e-6), (torch.float32, 1e-3)):
        ratio = torch.tensor([12345 / RATE], dtype=dtype)
        assert (resample(x, ratio, exact.shape[-1], torch.tensor([SAMPLES])) - exact).abs().max() < limit


@pytest.mark.parametrize("samples", [1, 2, 37])
def test_very_short_clips_and_silence(samples):
    x = torch.randn(3, 1, samples)
    result = run(x, [8000, 16000, 44100], samples_out=4 * samples)
    assert result.isfinite().all() and result.shape == (3, 1, 4 * samples)
    assert not run(torch.zeros(3, 2, samples), [8000, 16000, 44100]).any()
    assert run(x, [8000] * 3, samples_out=0).shape == (3, 1, 0)


def test_gradients_flow():
    x = torch.randn(2, 1, 60, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 1, 90)
    (run(x, [12345, 22050], samples_out=90) * weight).sum().backward()
    for row, sample in ((0, 5), (1, 30)):
        moved = x.detach().clone()
        moved[row, 0, sample] += 1.0
        change = (run(moved, [12345, 22050], samples_out=90) - run(x.detach(), [12345, 22050], samples_out=90)) * weight
        assert float(x.grad[row, 0, sample]) == pytest.approx(float(change.sum()), abs=1e-5)
