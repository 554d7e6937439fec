"""Shelves and peaking filters against scipy and the cookbook's own formulas."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.signal
import torch

from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import LANES, SECTION_VALUES, TILE, _filter, _filter_rows, run
from audioaug.dsp.loops import run_rows

RATE = 16000
SAMPLES = 3000
KINDS = ("low_shelf", "high_shelf", "peaking")
CENTRES_HZ = [1.0, 42.0, 300.0, 1000.0, 4000.0, 7500.0, 0.9999 * RATE / 2]
NUMBERS = ("rows", "numbers", "missing_R")
ROWS = [(gain_db, q) for gain_db in (-24.0, -1.0, 0.0, 18.0) for q in (0.1, 0.7, 5.0)]
FILTERS = [("low_shelf", 42.0), ("peaking", 700.0), ("high_shelf", 7000.0)]


def cookbook(kind, centre_hz, gain_db, q, rate=RATE):
    """The formulas of https://www.w3.org/TR/audio-eq-cookbook/, word for word."""
    w, a = 2 * np.pi * centre_hz / rate, 10 ** (gain_db / 40)
    cos, alpha = np.cos(w), np.sin(w) / (2 * q)
    if kind == "peaking":
        sos = [1 + alpha * a, -2 * cos, 1 - alpha * a, 1 + alpha / a, -2 * cos, 1 - alpha / a]
    else:
        sign = 1 if kind == "low_shelf" else -1
        bend, root = sign * (a - 1) * cos, 2 * np.sqrt(a) * alpha
        sos = [a * (a + 1 - bend + root), sign * 2 * a * (a - 1 - sign * (a + 1) * cos), a * (a + 1 - bend - root)]
        sos += [a + 1 + bend + root, -sign * 2 * (a - 1 + sign * (a + 1) * cos), a + 1 + bend - root]
    return np.asarray([sos]) / sos[3]


def sections(kind, centre_hz, rows=ROWS, rate=RATE):
    gain_db, q = np.asarray(rows).T[:, None]
    return biquads.sections(kind, np.full((1, len(rows)), centre_hz), gain_db, q, rate)


def numbers_of(cascade):
    """Return the numbers of all its sections, (R, S, K)."""
    return biquads.Sections.of_all(cascade).numbers_KSR().T


def filtered(cascade, x, lengths):
    return run(torch.from_numpy(x).float(), on_device(biquads.plan(cascade, int(max(lengths))))).numpy()


def on_device(plan):
    return [replace(part, **{name: as_tensor(getattr(part, name)) for name in NUMBERS}) for part in plan]


def as_tensor(numbers):
    return torch.from_numpy(numbers) if numbers.dtype.kind == "i" else torch.from_numpy(numbers).float()


def expected(sos_list, clip):
    for sos in sos_list:
        clip, _ = scipy.signal.sosfilt(sos, clip, zi=scipy.signal.sosfilt_zi(sos) * clip[0])
    return clip


def noise(rows, channels=1, samples=SAMPLES):
    """Noise on a constant: the constant shows whether the filter starts in its steady state."""
    return np.random.default_rng(3).standard_normal((rows, channels, samples)) * 0.1 + 0.3


def assert_rows_equal(cascade, sos_rows, x, lengths):
    padded = np.where(np.arange(x.shape[-1]) < np.asarray(lengths)[:, None, None], x, 1.0)  # must not matter
    result = filtered(cascade, padded, lengths)
    assert np.isfinite(result).all()
    for row, length in enumerate(lengths):
        for channel, clip in enumerate(x[row, :, :length]):
            wanted = expected(sos_rows[row], clip)
            error = np.abs(result[row, channel, :length] - wanted).max()
            assert error < 5e-6 * max(np.abs(wanted).max(), np.abs(clip).max()), (row, channel)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("centre_hz", CENTRES_HZ)
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_equals_scipy_in_one_ragged_batch(kind, centre_hz):
    lengths = [SAMPLES - 217 * row for row in range(len(ROWS))]
    sos_rows = [[cookbook(kind, centre_hz, *row)] for row in ROWS]
    assert_rows_equal([sections(kind, centre_hz)], sos_rows, noise(len(ROWS), 2), lengths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centre_hz", CENTRES_HZ)
def test_coefficients_are_the_cookbooks(kind, centre_hz):
    b, a, _ = sections(kind, centre_hz).digital()
    wanted = np.concatenate([cookbook(kind, centre_hz, *row) for row in ROWS])
    np.testing.assert_allclose(np.concatenate([b, a])[:, 0].T, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("samples", [1, 2, 5, 3000])
def test_cascades_with_filters_that_ring_longer_than_the_clip(samples):
    parts = [("low_shelf", 5.0), ("peaking", 60.0), ("peaking", 6000.0), ("high_shelf", 0.9999 * RATE / 2)]
    cascade = [sections(kind, hz) for kind, hz in parts]
    plan = biquads.plan(cascade, samples)
    assert [cut > 0 for cut in plan[-1].cuts] == [True, True, samples < 100, True]
    sos_rows = [[cookbook(kind, hz, *row) for kind, hz in parts] for row in ROWS]
    assert_rows_equal(cascade, sos_rows, noise(len(ROWS), 1, samples), [samples] * len(ROWS))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("kind", KINDS)
def test_without_the_cut_a_long_ring_would_come_round(kind):
    """The canary: the same plan without its cut is wrong, so the tests above can see one that is missing."""
    each, x = sections(kind, 5.0, [(18.0, 0.9)]), noise(1)
    plan = biquads.plan([each], SAMPLES)
    result = run(torch.from_numpy(x).float(), [replace(*on_device(plan), cuts=(0,))])
    wanted = expected([cookbook(kind, 5.0, 18.0, 0.9)], x[0, 0])
    assert plan[0].cuts[0] and np.abs(result.numpy()[0, 0] - wanted).max() > 1e-3


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("kind", "at_0_hz"), [("low_shelf", 4.0), ("high_shelf", 1.0), ("peaking", 1.0)])
def test_a_constant_keeps_its_level_from_the_first_sample_on(kind, at_0_hz):
    each = sections(kind, 500.0, [(20 * np.log10(4.0), 0.7)])
    result = filtered([each], np.full((1, 1, 500), 0.2), [500])
    np.testing.assert_allclose(result, 0.2 * at_0_hz, rtol=1e-6)


@pytest.mark.usefixtures("either_way")
def test_rows_that_ring_far_longer_than_most_are_filtered_apart():
    centres_hz = np.asarray([1000.0, 20.0, 900.0, 1100.0, 30.0, 1000.0])
    each = biquads.sections("peaking", centres_hz[None], np.full((1, 6), 12.0), np.full((1, 6), 2.0), RATE)
    fast, slow = biquads.plan([each], SAMPLES)
    assert fast.rows.tolist() == [0, 2, 3, 5] and slow.rows.tolist() == [1, 4] and fast.tail < slow.tail / 4
    sos_rows = [[cookbook("peaking", hz, 12.0, 2.0)] for hz in centres_hz]
    assert_rows_equal([each], sos_rows, noise(6, 2), [SAMPLES - 100 * row for row in range(6)])


@pytest.mark.usefixtures("either_way")
def test_silence_stays_silence():
    assert not filtered([sections(kind, 300.0) for kind in KINDS], np.zeros((len(ROWS), 1, 200)), [200] * 12).any()


@pytest.mark.parametrize("kind", KINDS)
def test_section_rings_as_long_as_computed(kind):
    for row in (row for row in ROWS if row[0]):
        [[rings]] = sections(kind, 300.0, [row]).rings_SR()
        impulse = np.abs(scipy.signal.sosfilt(cookbook(kind, 300.0, *row), np.eye(1, 4 * int(rings))[0]))
        assert impulse[int(rings) :].max() < 1e-6 * impulse.max()
        assert impulse[int(rings) // 4 :].max() > 1e-6 * impulse.max()


@pytest.mark.parametrize(
    "centres_hz", [(300.0, 300.0, 300.0, 300.0), (42.0, 90.0, 500.0, 3000.0), (60.0, 7000.0, 7000.0)]
)
def test_cascade_rings_no_longer_than_computed(centres_hz):
    for row in ROWS:
        cascade = [sections("peaking", hz, [row]) for hz in centres_hz]
        alone_SR = biquads.Sections.of_all(cascade).rings_SR()
        [rings] = biquads.cascade_rings_R(alone_SR)
        impulse = np.eye(1, 4 * int(rings))[0]
        for hz in centres_hz:
            impulse = scipy.signal.sosfilt(cookbook("peaking", hz, *row), impulse)
        assert np.abs(impulse[int(rings) :]).max() < 1e-6 * np.abs(impulse).max()
        assert alone_SR.max() <= rings < (0.7 if len(set(centres_hz)) == 1 else 1.0) * alone_SR.sum()


def test_centres_above_nyquist_are_moved():
    moved = biquads.below_nyquist(np.asarray([100.0, 4000.0, 4000.1, 9000.0]), 8000)
    np.testing.assert_allclose(moved, [100.0, 4000.0, 3999.6, 3999.6])


# By a loop


def filtered_by_loop(x_RT, places):
    """Return rows filtered by ``FILTERS`` with the gains and qualities at these places of ``ROWS``."""
    numbers_RSK = numbers_of([sections(kind, hz) for kind, hz in FILTERS])[places]
    return run_rows(_filter_rows, x_RT[:, None], torch.from_numpy(numbers_RSK).float())[:, 0]


@pytest.mark.parametrize("samples", [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE, 37 * TILE + 5])
@pytest.mark.parametrize("rows", [1, LANES - 1, LANES, LANES + 1, 3 * LANES + 2])
def test_rows_and_clips_of_any_number_and_length_equal_scipy(rows, samples):
    x_RT, places = noise(rows, 1, samples)[:, 0], np.arange(rows) % len(ROWS)
    result_RT = filtered_by_loop(torch.from_numpy(x_RT).float(), places).numpy()
    for row, clip in enumerate(x_RT.astype(np.float32).astype(np.float64)):
        wanted = expected([cookbook(kind, hz, *ROWS[places[row]]) for kind, hz in FILTERS], clip)
        assert np.abs(result_RT[row] - wanted).max() < 2e-6 * max(np.abs(wanted).max(), np.abs(clip).max())


def test_a_filter_that_rings_for_minutes_loses_no_digits():
    each = sections("peaking", 1.0, [(18.0, 5.0)])
    x_RT = noise(1, 1, 400_000)[:, 0]
    numbers = torch.from_numpy(numbers_of([each])).float()
    result_RT = run_rows(_filter_rows, torch.from_numpy(x_RT).float()[:, None], numbers)[:, 0]
    wanted = expected([cookbook("peaking", 1.0, 18.0, 5.0)], x_RT[0])
    assert np.abs(result_RT[0].numpy() - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_that_no_section_filters_are_only_amplified(in_place):
    rows, some = 2 * LANES + 5, np.arange(1, 2 * LANES + 5, 2)
    gain_R, places = np.linspace(-2.0, 3.0, rows), np.arange(len(some)) % len(ROWS)
    each = [sections(kind, hz, [ROWS[place] for place in places]).spread(some, rows) for kind, hz in FILTERS]
    each[0] = each[0].amplified(gain_R)
    numbers = torch.from_numpy(numbers_of(each)).float()
    x_RT = torch.from_numpy(noise(rows, 1, 3 * TILE + 7)[:, 0]).float()
    gain_R1 = torch.from_numpy(gain_R).float()[:, None]
    filtered_RT, into_RT = filtered_by_loop(x_RT[some], places) * gain_R1[some], x_RT[:, None].clone()
    result_RT = run_rows(_filter_rows, into_RT, numbers, out=into_RT if in_place else None)[:, 0]
    assert torch.equal(result_RT[::2], (gain_R1 * x_RT)[::2])
    assert (result_RT[some] - filtered_RT).abs().max() < 2e-6 * filtered_RT.abs().max()


def test_filters_come_to_rest_in_silence():
    values_NL = np.zeros((SECTION_VALUES, LANES))
    values_NL[0], values_NL[3:5], values_NL[7:] = 1.0, [[-1.9], [0.95]], [[1e-199], [-1e-199]]
    for _ in range(20):
        _filter(np.zeros(TILE * LANES), values_NL.ravel())
    assert not values_NL[5:].any()


def test_a_row_that_is_not_a_number_spoils_no_other():
    x_RT = torch.randn(LANES, 200)
    x_RT[3, 50] = torch.nan
    result_RT = filtered_by_loop(x_RT, np.zeros(LANES, dtype=int))
    assert result_RT[3].isnan().sum() == 150 and not result_RT[[0, 1, 2, *range(4, LANES)]].isnan().any()


def test_a_result_may_take_the_place_of_the_samples():
    x_RCT, numbers = torch.randn(len(ROWS), 1, 500), torch.from_numpy(numbers_of([sections("peaking", 700.0)])).float()
    wanted = run_rows(_filter_rows, x_RCT, numbers)
    assert run_rows(_filter_rows, x_RCT, numbers, out=x_RCT) is x_RCT
    assert torch.equal(x_RCT, wanted)
