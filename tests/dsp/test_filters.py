"""Butterworth filters against scipy, theory and pure tones."""

import functools
import math

import numpy as np
import pytest
import scipy.signal
import torch

from audioaug.dsp import biquads
from audioaug.dsp.filters import Butterworth, cascade, extension, tail_samples, warped, zero_phase

RATE = 16000
SAMPLES = 3000
ORDERS = np.arange(1, 9)
NEAR_NYQUIST = 0.9999 * RATE / 2
ONE_EDGE = [(1.0, 1.0), (20.0, 20.0), (150.0, 150.0), (1000.0, 1000.0), (4000.0, 4000.0), (7500.0, 7500.0)]
ONE_EDGE += [(NEAR_NYQUIST, NEAR_NYQUIST)]
TWO_EDGES = [(1.0, 2.0), (100.0, 300.0), (990.0, 1010.0), (20.0, 6000.0), (3900.0, 4100.0), (6000.0, NEAR_NYQUIST)]
BANDS = [(kind, *edges) for kind in ("lowpass", "highpass") for edges in ONE_EDGE]
BANDS += [(kind, *edges) for kind in ("bandpass", "bandstop") for edges in TWO_EDGES]


def filters(kind, low_hz, high_hz, orders, rate=RATE):
    rows = len(orders)
    low_R, high_R = (warped(np.full(rows, hz), rate) for hz in (low_hz, high_hz))
    return Butterworth(
        kind,
        torch.as_tensor(orders, dtype=torch.float32),
        torch.as_tensor(low_R, dtype=torch.float32),
        torch.as_tensor(high_R, dtype=torch.float32),
        highest_order=int(max(orders)),
        tail=tail_samples(kind, np.asarray(orders), low_R, high_R),
    )


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
    assert np.ptp(steady) > 1e-3


def cascades(kind, low_hz, high_hz, orders, longest=SAMPLES):
    """Return the same filters as a function that cuts what rings longer than the clips."""
    low_R, high_R = (warped(np.full(len(orders), hz), RATE) for hz in (low_hz, high_hz))
    plan = biquads.plan(cascade(kind, np.asarray(orders), low_R, high_R), longest)
    numbers = (torch.from_numpy(each).float() for each in (plan.sections, plan.steady_R))
    return functools.partial(_run, *numbers, plan.cuts, plan.tail)


def _run(numbers, steady_R, cuts, tail, x, lengths):
    return biquads.run(x, lengths, numbers, steady_R, cuts, tail)


def runs(kind, low_hz, high_hz, orders, both_ways, cut):
    """Return the filters as a function, whole or cut at the clip's end, forward or with zero phase."""
    twin = filters(kind, low_hz, high_hz, orders)
    if not cut:
        return twin.zero_phase if both_ways else twin
    forward = cascades(kind, low_hz, high_hz, orders, SAMPLES + 2 * extension(kind, int(max(orders))))
    edge = torch.from_numpy(extension(kind, np.asarray(orders)))
    both = functools.partial(zero_phase, forward, edge_R=edge, longest_edge=extension(kind, int(max(orders))))
    return both if both_ways else forward


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("kind", "low_hz", "high_hz", "both_ways"),
    [(*band, False) for band in BANDS] + [(*band, True) for band in BANDS if band[1] >= 20.0 and band[2] <= 7500.0],
)
def test_every_order_equals_scipy_in_one_ragged_batch(kind, low_hz, high_hz, both_ways, cut):
    orders = orders_that_scipy_can(kind, high_hz)
    x = noise(len(orders))
    lengths = SAMPLES - 217 * np.arange(len(orders))
    padded = np.where(np.arange(SAMPLES) < lengths[:, None, None], x, 9.0)  # what lies behind the end must not matter
    run = runs(kind, low_hz, high_hz, orders, both_ways, cut)
    result = run(torch.from_numpy(padded).float(), torch.from_numpy(lengths)).numpy()
    for row, (order, length) in enumerate(zip(orders.tolist(), lengths.tolist())):
        sos = sections(kind, low_hz, high_hz, order)
        for channel, clip in enumerate(x[row, :, :length]):
            if both_ways:
                expected = scipy.signal.sosfiltfilt(sos, clip)
            else:
                expected, _ = scipy.signal.sosfilt(sos, clip, zi=scipy.signal.sosfilt_zi(sos) * clip[0])
            error = np.abs(result[row, channel, :length] - expected).max() / np.abs(clip).max()
            assert error < 3e-6, (order, error)


@pytest.mark.parametrize(("kind", "low_hz", "high_hz"), [*BANDS, ("bandstop", 1.0, NEAR_NYQUIST)])
def test_the_response_is_the_textbooks_also_where_scipy_is_not_stable(kind, low_hz, high_hz):
    n = 4096
    response = filters(kind, low_hz, high_hz, ORDERS).response_RF(n).numpy()
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
    assert np.abs(np.abs(response) - expected).max() < 1e-5


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["lowpass", "highpass"])
def test_a_tone_three_octaves_off_loses_18_db_an_order(kind, order):
    rate, cutoff_hz = 48000, 500.0
    tone_hz = cutoff_hz * 8 if kind == "lowpass" else cutoff_hz / 8
    tone = torch.sin(2 * torch.pi * tone_hz * torch.arange(2 * rate, dtype=torch.float64) / rate).float()
    result = filters(kind, cutoff_hz, cutoff_hz, [order], rate)(tone[None, None], torch.tensor([len(tone)]))[0, 0]
    lost_db = 20 * math.log10(tone[rate:].square().mean().sqrt() / result[rate:].square().mean().sqrt())
    assert lost_db == pytest.approx(3 * 6.02 * order, abs=0.35 * order)


@pytest.mark.parametrize("kind", ["lowpass", "highpass"])
def test_the_cutoff_lies_at_minus_3_db(kind):
    tone = torch.sin(2 * torch.pi * 1000.0 * torch.arange(RATE, dtype=torch.float64) / RATE).float()
    x = tone.expand(len(ORDERS), 1, -1)
    result = filters(kind, 1000.0, 1000.0, ORDERS)(x, torch.full((len(ORDERS),), RATE))
    levels = result[:, 0, RATE // 2 :].square().mean(dim=1).sqrt() / tone[RATE // 2 :].square().mean().sqrt()
    assert levels.tolist() == pytest.approx([0.5**0.5] * len(ORDERS), rel=1e-3)


@pytest.mark.parametrize("zero_phase", [False, True])
@pytest.mark.parametrize(("kind", "stays"), [("lowpass", 1.0), ("highpass", 0.0), ("bandpass", 0.0), ("bandstop", 1.0)])
def test_a_constant_stays_or_vanishes_from_the_first_sample_on(kind, stays, zero_phase):
    twin = filters(kind, 100.0, 300.0, ORDERS)
    run = twin.zero_phase if zero_phase else twin
    result = run(torch.full((len(ORDERS), 1, 500), 0.7), torch.full((len(ORDERS),), 500))
    assert torch.allclose(result, torch.full_like(result, 0.7 * stays), atol=1e-6)


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_clips_far_shorter_than_the_tail(samples):
    x = noise(1, 1, samples)
    result = filters("lowpass", 20.0, 20.0, [4])(torch.from_numpy(x).float(), torch.tensor([samples])).numpy()
    sos = sections("lowpass", 20.0, 20.0, 4)
    expected, _ = scipy.signal.sosfilt(sos, x[0, 0], zi=scipy.signal.sosfilt_zi(sos) * x[0, 0, 0])
    assert np.abs(result[0, 0] - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("kind", "low_hz", "high_hz"), [("lowpass", 150, 150), ("highpass", 20, 20), ("bandpass", 990, 1010)]
)
def test_the_tail_is_where_the_filter_has_rung_out(kind, low_hz, high_hz):
    for order in (1, 4, 8):
        tail = filters(kind, low_hz, high_hz, [order]).tail
        impulse = np.abs(scipy.signal.sosfilt(sections(kind, low_hz, high_hz, order), np.eye(1, 4 * tail)[0]))
        assert impulse[tail:].max() < 1e-4 * impulse.max()
        assert math.log2(tail).is_integer()


def test_the_slowest_filter_of_a_batch_sets_the_tail():
    orders, edges = np.asarray([2, 4, 2]), warped(np.asarray([4000.0, 20.0, 1000.0]), RATE)
    alone = [tail_samples("lowpass", orders[[row]], edges[[row]], edges[[row]]) for row in range(3)]
    assert tail_samples("lowpass", orders, edges, edges) == max(alone) == alone[1] > alone[2]
