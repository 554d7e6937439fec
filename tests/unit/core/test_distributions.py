"""Distributions: their range, their shape, and what happens at the edges of the uniform number."""

import numpy as np
import pytest
import scipy.stats

from audioaug.core import FRACTION, NOISE_KEY, Choice, MelUniform, Uniform, UniformInt

LOWEST, HIGHEST = 0.0, 1.0 - 2.0**-53
EDGES = np.asarray([LOWEST, HIGHEST])
EVENLY = (np.arange(10_000) + 0.5) / 10_000


@pytest.mark.parametrize(
    ("distribution", "low", "high"),
    [
        (Uniform(-3.0, 5.0), -3.0, 5.0),
        (UniformInt(-2, 2), -2, 2),
        (UniformInt(0, 2**52 - 1), 0, 2**52 - 1),
        (MelUniform(20.0, 7500.0), 20.0, 7500.0),
        (Choice((8.0, 16.0, 320.0)), 8.0, 320.0),
        (FRACTION, 0.0, 1.0),
        (NOISE_KEY, 0, 2**52 - 1),
    ],
)
def test_both_ends_of_the_range_are_reached_and_not_left(distribution, low, high):
    assert distribution.from_uniform(EDGES) == pytest.approx([low, high])
    values = distribution.from_uniform(EVENLY)
    assert values.dtype == np.float64 and values.min() >= low and values.max() <= high
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("kind", [Uniform, UniformInt, MelUniform])
@pytest.mark.parametrize("value", [0, 7, 440])
def test_low_may_equal_high(kind, value):
    assert kind(value, value).from_uniform(EVENLY) == pytest.approx(np.full(len(EVENLY), value), abs=1e-9)


def test_shape_is_kept():
    assert Uniform(0, 1).from_uniform(np.zeros((2, 3))).shape == (2, 3)
    assert Choice((1.0, 2.0)).from_uniform(np.zeros((2, 3))).shape == (2, 3)


def test_uniform_is_linear():
    assert Uniform(-12.0, 12.0).from_uniform(np.asarray([0.25, 0.5, 0.75])).tolist() == [-6.0, 0.0, 6.0]


def test_whole_numbers_are_whole_and_equally_likely_with_both_ends():
    values, counts = np.unique(UniformInt(-1, 3).from_uniform(EVENLY), return_counts=True)
    assert values.tolist() == [-1, 0, 1, 2, 3]
    assert counts.tolist() == [2000] * 5


def test_the_middle_in_mels_is_the_geometric_one_far_above_700_hz_and_the_plain_one_far_below():
    middle = np.asarray([0.5])
    low_hz, high_hz = 1000.0, 4000.0
    assert MelUniform(low_hz, high_hz).from_uniform(middle) == pytest.approx(((1700.0 * 4700.0) ** 0.5) - 700.0)
    assert MelUniform(1.0, 3.0).from_uniform(middle) == pytest.approx(2.0, rel=1e-3)


def test_mel_agrees_with_the_reference():
    from audiomentations.core.utils import convert_frequency_to_mel, convert_mel_to_frequency

    low, high = (convert_frequency_to_mel(hz) for hz in (150.0, 7500.0))
    expected = [convert_mel_to_frequency(low + u * (high - low)) for u in EVENLY[::500]]
    assert MelUniform(150.0, 7500.0).from_uniform(EVENLY[::500]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weights", [None, (1.0, 1.0, 2.0), (10, 0, 30), (0.0, 0.0, 0.5), (1.0, 0.0, 0.0)])
def test_choice_by_weight(weights):
    options = (5.0, -2.0, 7.0)
    picked = Choice(options, weights).from_uniform(EVENLY)
    shares = [np.mean(picked == option) for option in options]
    expected = np.asarray(weights or (1.0, 1.0, 1.0))
    assert shares == pytest.approx(expected / expected.sum(), abs=2e-4)


def test_an_option_without_weight_is_not_picked_at_the_edges_either():
    assert Choice((1.0, 2.0, 3.0), (0.0, 1.0, 0.0)).from_uniform(EDGES).tolist() == [2.0, 2.0]


def test_ranges_hold_for_random_numbers_too():
    u = np.random.default_rng(0).random(5000)
    assert scipy.stats.kstest(Uniform(2.0, 4.0).from_uniform(u), "uniform", args=(2.0, 2.0)).pvalue > 1e-3
