"""Butterworth filters against scipy, theory and pure tones."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.signal
import torch

from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import response_RF, run
from audioaug.dsp.filters import cascade, extension, warped, zero_phase

RATE = 16000
SAMPLES = 3000
ORDERS = np.arange(1, 9)
NEAR_NYQUIST = 0.9999 * RATE / 2
ONE_EDGE = [(1.0, 1.0), (20.0, 20.0), (150.0, 150.0), (1000.0, 1000.0), (4000.0, 4000.0), (7500.0, 7500.0)]
ONE_EDGE += [(NEAR_NYQUIST, NEAR_NYQUIST)]
TWO_EDGES = [(1.0, 2.0), (100.0, 300.0), (990.0, 1010.0), (20.0, 6000.0), (3900.0, 4100.0), (6000.0, NEAR_NYQUIST)]
BANDS = [(kind, *edges) for kind in ("lowpass", "highpass") for edges in ONE_EDGE]
BANDS += [(kind, *edges) for kind in ("bandpass", "bandstop") for edges in TWO_EDGES]


def filters(kind, low_hz, high_hz, orders, rate=RATE, longest=SAMPLES):
    """Return the filters as a function of a batch."""
    low_R, high_R = (warped(np.full(len(orders), hz), rate) for hz in (low_hz, high_hz))
    plan = biquads.plan([cascade(kind, np.asarray(orders), low_R, high_R)], longest)
    return functools.partial(run, cascades=[on_device(part) for part in plan])


def on_device(part):
    numbers, missing_R = (torch.from_numpy(each).float() for each in (part.numbers, part.missing_R))
    return replace(part, rows=torch.from_numpy(part.rows), numbers=numbers, missing_R=missing_R)


def noise(rows, channels=1, samples=SAMPLES):
    """Noise on a constant: the constant shows whether the filter starts in its steady state."""
    return np.random.default_rng(3).standard_normal((rows, channels, samples)) * 0.1 + 0.3


def sections(kind, low_hz, high_hz, order):
    edges = low_hz if kind in ("lowpass", "highpass") else (low_hz, high_hz)
    return scipy.signal.butter(order, edges, kind, fs=RATE, output="sos")


def orders_that_scipy_can(kind, high_hz):
    """Leave out orders 7 and 8 of band-stops up to 6 kHz and more: there scipy itself drifts."""
    return ORDERS[:6] if kind == "bandstop" and high_hz >= 6000.0 else ORDERS


def test_scipy_drifts_in_the_band_stop_that_is_left_out():
    sos = sections("bandstop", 1.0, NEAR_NYQUIST, 8)
    steady, _ = scipy.signal.sosfilt(sos, np.ones(SAMPLES), zi=scipy.signal.sosfilt_zi(sos))
    if np.ptp(steady) < 1e-6:
        pytest.skip(f"scipy {scipy.__version__} does not drift there")
    assert np.ptp(steady) > 1e-3


def both_ways(kind, low_hz, high_hz, orders, lengths):
    """Return the filters with zero phase, as a function of a batch."""
    edge = extension(kind, torch.as_tensor(orders))
    forward = filters(kind, low_hz, high_hz, orders, longest=SAMPLES + 2 * int(edge.max()))
    return functools.partial(zero_phase, forward, length_R=lengths, edge_R=edge, longest_edge=int(edge.max()))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("kind", "low_hz", "high_hz", "zero"),
    [(*band, False) for band in BANDS] + [(*band, True) for band in BANDS if band[1] >= 20.0 and band[2] <= 7500.0],
)
def test_every_order_equals_scipy_in_one_ragged_batch(kind, low_hz, high_hz, zero):
    orders = orders_that_scipy_can(kind, high_hz)
    x = noise(len(orders))
    lengths = SAMPLES - 217 * np.arange(len(orders))
    padded = np.where(np.arange(SAMPLES) < lengths[:, None, None], x, 1.0)  # what lies past the end must not matter
    band = (kind, low_hz, high_hz, orders)
    run = both_ways(*band, torch.from_numpy(lengths)) if zero else filters(*band)
    result = run(torch.from_numpy(padded).float()).numpy()
    for row, (order, length) in enumerate(zip(orders.tolist(), lengths.tolist())):
        sos = sections(kind, low_hz, high_hz, order)
        for channel, clip in enumerate(x[row, :, :length]):
            if zero:
                expected = scipy.signal.sosfiltfilt(sos, clip)
            else:
                expected, _ = scipy.signal.sosfilt(sos, clip, zi=scipy.signal.sosfilt_zi(sos) * clip[0])
            error = np.abs(result[row, channel, :length] - expected).max() / np.abs(clip).max()
            assert error < 3e-6, (order, error)


@pytest.mark.parametrize(("kind", "low_hz", "high_hz"), [*BANDS, ("bandstop", 1.0, NEAR_NYQUIST)])
def test_the_response_is_the_textbooks_also_where_scipy_is_not_stable(kind, low_hz, high_hz):
    n = 4096
    parts = filters(kind, low_hz, high_hz, ORDERS, longest=2**22).keywords["cascades"]
    assert not any(any(part.cuts) for part in parts)
    response = np.zeros((len(ORDERS), n // 2 + 1), complex)
    for part in parts:
        response[part.rows] = response_RF(part, len(part.rows), n)
    half_w = np.arange(n // 2 + 1) * np.pi / n
    analog, low, high = (
        np.tan(np.minimum(w, np.pi / 2 - 1e-9)) for w in (half_w, *(np.pi * np.asarray((low_hz, high_hz)) / RATE))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = {
            "lowpass": analog / low,
            "highpass": low / analog,
            "bandpass": np.abs(analog**2 - low * high) / (analog * (high - low)),
            "bandstop": analog * (high - low) / np.abs(analog**2 - low * high),
        }[kind]
        expected = 1 / np.sqrt(1 + ratio ** (2.0 * ORDERS[:, None]))
    assert np.abs(np.abs(response) - expected).max() < 3e-5


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["lowpass", "highpass"])
def test_a_tone_three_octaves_off_loses_18_db_an_order(kind, order):
    rate, cutoff_hz = 48000, 500.0
    tone_hz = cutoff_hz * 8 if kind == "lowpass" else cutoff_hz / 8
    tone = torch.sin(2 * torch.pi * tone_hz * torch.arange(2 * rate, dtype=torch.float64) / rate).float()
    result = filters(kind, cutoff_hz, cutoff_hz, [order], rate, len(tone))(tone[None, None])[0, 0]
    lost_db = 20 * math.log10(tone[rate:].square().mean().sqrt() / result[rate:].square().mean().sqrt())
    assert lost_db == pytest.approx(3 * 6.02 * order, abs=0.35 * order)


@pytest.mark.parametrize("kind", ["lowpass", "highpass"])
def test_cutoff_is_at_minus_3_db(kind):
    tone = torch.sin(2 * torch.pi * 1000.0 * torch.arange(RATE, dtype=torch.float64) / RATE).float()
    result = filters(kind, 1000.0, 1000.0, ORDERS, longest=RATE)(tone.expand(len(ORDERS), 1, -1))
    levels = result[:, 0, RATE // 2 :].square().mean(dim=1).sqrt() / tone[RATE // 2 :].square().mean().sqrt()
    assert levels.tolist() == pytest.approx([0.5**0.5] * len(ORDERS), rel=1e-3)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("kind", "stays"), [("lowpass", 1.0), ("highpass", 0.0), ("bandpass", 0.0), ("bandstop", 1.0)])
def test_a_constant_stays_or_vanishes_from_the_first_sample_on(kind, stays, zero):
    band, lengths = (kind, 100.0, 300.0, ORDERS), torch.full((len(ORDERS),), 500)
    result = (both_ways(*band, lengths) if zero else filters(*band))(torch.full((len(ORDERS), 1, 500), 0.7))
    assert torch.allclose(result, torch.full_like(result, 0.7 * stays), atol=1e-6)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_clips_far_shorter_than_the_tail(samples):
    x = noise(1, 1, samples)
    result = filters("lowpass", 20.0, 20.0, [4], longest=samples)(torch.from_numpy(x).float()).numpy()
    sos = sections("lowpass", 20.0, 20.0, 4)
    expected, _ = scipy.signal.sosfilt(sos, x[0, 0], zi=scipy.signal.sosfilt_zi(sos) * x[0, 0, 0])
    assert np.abs(result[0, 0] - expected).max() < 1e-6


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_zero_phase_of_a_clip_shorter_than_its_extension_does_not_depend_on_the_batch(samples):
    clip, run = noise(1, 1, samples), both_ways("lowpass", 1000.0, 1000.0, [4], torch.tensor([samples]))
    padded = np.pad(clip, ((0, 0), (0, 0), (0, 100)), constant_values=9.0)
    alone, together = (run(torch.from_numpy(each).float())[..., :samples] for each in (clip, padded))
    assert (alone - together).abs().max() < 1e-6
