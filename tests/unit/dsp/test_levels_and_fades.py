"""Levels and fades against numpy and audiomentations."""

import numpy as np
import pytest
import torch

from audioaug.dsp.fades import crossfade, fade_around, silence_segment
from audioaug.dsp.levels import db_to_ratio, level, norm, normalize, peak, rms, rms_without_silence
from audioaug.dsp.levels.percentile import at_rank, ranked
from audioaug.dsp.splices import splice


def test_decibels():
    ratios = db_to_ratio(torch.tensor([0.0, 20.0, -20.0, 6.0206, -120.0])).tolist()
    assert ratios == pytest.approx([1.0, 10.0, 0.1, 2.0, 1e-6], rel=1e-5)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("samples", [0, 1, 1023, 1024, 5000, 2_000_000])
def test_the_norm_of_many_samples_is_as_exact_as_that_of_few(samples):
    x = np.stack([np.full(samples, 0.1), np.random.default_rng(0).standard_normal(samples)]).astype(np.float32)
    expected = np.linalg.norm(x.astype(np.float64), axis=1)
    assert norm(torch.from_numpy(x)).numpy() == pytest.approx(expected, rel=1e-6)


def test_the_norm_of_one_row():
    assert norm(torch.tensor([3.0, 4.0])).item() == 5.0


def test_splices_of_the_loop_are_those_of_the_definition():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, 2, 5000, generator=generator)
    start = torch.tensor([[100, 120, 90, 0], [4000, 3900, 10, 4900], [0, 0, 0, 0], [700, 300, 4990, 2000]])
    half = torch.tensor([[300, 200, 1500, 10], [900, 700, 0, 40], [700, 600, 500, 1024], [0, 0, 500, 0]])
    found, wanted = splice(x, start, half, 1536), splice.definition(x, start, half, 1536)
    assert (found - wanted).abs().max() < 1e-5


def test_the_level_is_the_mean_over_channels_and_the_peak_the_highest_of_all():
    x = torch.tensor([[[3.0, -4.0, 0.0], [0.0, 1.0, 0.0]]])
    assert level(x, torch.tensor([2])).tolist() == pytest.approx([(12.5**0.5 + 0.5**0.5) / 2])
    assert peak(x).tolist() == [[[4.0]]]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("where", ["new", "in place", "not contiguous"])
@pytest.mark.parametrize("only_too_loud", [False, True])
def test_examples_are_divided_by_the_peak_of_all_their_channels(only_too_loud, where):
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (6, 2, 37)).astype(np.float32)
    for example, peak_ in enumerate([0.9, 1.0, -3.0, np.inf, np.nan]):
        x[example, 1, 5] = peak_
    x[5] = 0.0
    divisors = np.array([0.9, 1.0, 3.0, np.inf, 1.0, 1.0], dtype=np.float32)
    divisors[0] = 1.0 if only_too_loud else divisors[0]
    with np.errstate(invalid="ignore"):
        expected = x / divisors[:, None, None]
    x_BCT = torch.from_numpy(x)
    if where == "not contiguous":
        x_BCT = x_BCT.transpose(1, 2).contiguous().transpose(1, 2)
    before = x_BCT.clone()
    y_BCT = normalize(x_BCT, only_too_loud, x_BCT if where == "in place" else None)
    np.testing.assert_array_equal(y_BCT.numpy(), expected)
    assert (y_BCT.data_ptr() == x_BCT.data_ptr()) == (where == "in place")
    np.testing.assert_array_equal(x_BCT.numpy(), expected if where == "in place" else before.numpy())


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("values", [1, 2, 3, 100, 1001])
@pytest.mark.parametrize("deterministic", [False, True])
def test_order_statistics_are_numpys_percentiles(values, deterministic, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    x = np.random.default_rng(0).standard_normal((12, values)).astype(np.float32)
    x = np.concatenate([x, np.round(x, 1)])  # in which many are equal, and zeros of both signs
    percentages = np.tile([0.0, 1.0, 12.5, 25.0, 33.3, 50.0, 66.6, 75.0, 90.0, 99.0, 99.99, 100.0], 2)
    for rows in (slice(None), slice(5, 8), slice(1)):  # ranks of all, some in the middle, the lowest alone
        rank = ranked(percentages[rows] / 100, np.full(len(x), values)[rows])
        numbers = [torch.from_numpy(rank[name]) for name in ("rank", "fraction")]
        result = at_rank(torch.from_numpy(x[rows]), *numbers, rank["lowest"], rank["highest"])
        pairs = zip(x[rows].astype(np.float64), percentages[rows], strict=True)
        assert result.tolist() == pytest.approx([np.percentile(*pair) for pair in pairs], abs=2e-6)


@pytest.mark.usefixtures("either_way")
def test_an_order_statistic_next_to_infinity_is_finite():
    x = torch.tensor([[3.0, float("inf"), 1.0, float("inf")]])
    assert at_rank(x, torch.tensor([1]), torch.tensor([0.0]), lowest=0, highest=1).tolist() == [3.0]


@pytest.mark.parametrize("length", [2, 3, 4, 80, 81, 1000])
@pytest.mark.parametrize("equal_energy", [True, False])
def test_crossfades_are_those_of_audiomentations(length, equal_energy):
    from audiomentations.core.utils import get_crossfade_mask_pair

    fade_in, fade_out = get_crossfade_mask_pair(length, equal_energy)
    places = torch.arange(length)
    assert np.abs(crossfade(places, length, equal_energy).numpy() - fade_in).max() < 1e-6
    assert np.abs(crossfade(length - 1 - places, length, equal_energy).numpy() - fade_out).max() < 1e-6


def test_fade_is_zero_before_and_one_after():
    assert crossfade(torch.tensor([-5, -1, 0, 9, 10, 99]), 10, True).tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_a_fade_may_have_another_length_in_each_row():
    lengths = torch.tensor([[4], [100]])
    places = torch.arange(100)
    both = crossfade(places.expand(2, -1), lengths, False)
    assert torch.equal(both[0], crossfade(places, 4, False)) and torch.equal(both[1], crossfade(places, 100, False))


def test_equal_gain_adds_up_to_one_and_equal_energy_in_squares():
    places, length = torch.arange(1000), 1000
    gain, energy = (
        (crossfade(places, length, kind), crossfade(length - 1 - places, length, kind)) for kind in (False, True)
    )
    assert (gain[0] + gain[1] - 1).abs().max() < 0.01
    assert (energy[0].square() + energy[1].square() - 1).abs().max() < 0.015


@pytest.mark.usefixtures("either_way")
def test_a_segment_is_silent_between_its_fades():
    start, count = [0, 0, 10, 1990, 700, 5, 1999, 300], [0, 2000, 1, 10, 900, 41, 1, 40]
    fade = [1, 20, 1, 5, 20, 20, 1, 20]
    y_BCT = torch.ones(8, 2, 2000)
    assert silence_segment(y_BCT, *map(torch.tensor, (start, count, fade)), 20) is y_BCT
    for row, (first, samples, length) in enumerate(zip(start, count, fade, strict=True)):
        expected = torch.ones(2000)
        out = crossfade(length - 1 - torch.arange(length), length, equal_energy=False)
        expected[first : first + samples] = 0.0
        if samples >= 2 * length:
            expected[first : first + length] = out
            expected[first + samples - length : first + samples] = out.flip(0)
        assert (y_BCT[row] - expected).abs().max() < 1e-6, row


@pytest.mark.usefixtures("either_way")
def test_rows_fade_around_their_stitches():
    stitch = torch.tensor([0, 5, 1000, 1999, 2000, 2005, -30, 4000])
    y_BCT = fade_around(torch.ones(8, 2, 2000), stitch, 20)
    for row, place in enumerate(stitch.tolist()):
        after_T = torch.arange(2000) - place
        expected = crossfade(torch.where(after_T < 0, -1 - after_T, after_T), 20, equal_energy=True)
        assert (y_BCT[row] - expected).abs().max() < 1e-6, row


WINDOW = 40  # 25 ms at 1600 Hz
COUNTS = [0, 1, 39, 40, 41, 79, 80, 81, 120, 390, 399, 400]


def padded_rows(quiet=0.01):
    """Return rows of noise with soft segments, silent from a count on."""
    x = np.random.default_rng(0).standard_normal((len(COUNTS), 400)).astype(np.float32)
    x[:, 100:300] *= quiet
    x[-1, :60] = 0.0
    return x * (np.arange(400) < np.asarray(COUNTS)[:, None])


@pytest.mark.parametrize("quiet", [0.0, 0.01, 0.1, 1.0])
def test_levels_are_those_of_audiomentations(quiet):
    from audiomentations.core.utils import calculate_rms, calculate_rms_without_silence

    x, counts = padded_rows(quiet), torch.tensor(COUNTS)
    parts = [row[:count] for row, count in zip(x, COUNTS)][1:]
    plain, heard = rms(torch.from_numpy(x), counts), rms_without_silence(torch.from_numpy(x), counts, WINDOW)
    assert plain.tolist() == pytest.approx([0.0, *(calculate_rms(part) for part in parts)], rel=1e-5)
    expected = [0.0, *(calculate_rms_without_silence(part, 1600) for part in parts)]
    assert heard.tolist() == pytest.approx(expected, rel=1e-5)
    assert (heard[-1] > 1.2 * plain[-1]) == (quiet < 0.04)


def test_the_level_of_silence_is_0_and_so_is_its_gradient():
    x = torch.zeros(2, 100, requires_grad=True)
    for level_R in (rms(x, torch.tensor([0, 100])), rms_without_silence(x, torch.tensor([0, 100]), WINDOW)):
        level_R.sum().backward()
        assert not level_R.any() and not x.grad.any()
    assert rms(torch.tensor([[float("nan"), 1.0]]), torch.tensor([2])).isnan().all()
