"""Windows: what is put together of them is what an index for each sample says."""

import functools

import numpy as np
import pytest
import torch

from audioaug.dsp.windows import BLOCK, join_segments, moved, pad, read, rolled, windows, without, write
from tests.unit.dsp.both_ways import by_torch

RNG = np.random.default_rng(0)


def by_index(x_RCT, begin_RK, by_RK, samples_out):
    """Put rows together sample by sample."""
    y = np.zeros((*x_RCT.shape[:2], samples_out), np.float32)
    for row, (begins, bys) in enumerate(zip(begin_RK, by_RK)):
        for t in range(samples_out):
            source = t - bys[np.searchsorted(begins, t, side="right") - 1]
            if 0 <= source < x_RCT.shape[-1]:
                y[row, :, t] = x_RCT[row, :, source]
    return y


@pytest.mark.parametrize("samples", [1, 7, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize("samples_out", [1, 100, BLOCK, 2 * BLOCK + 1])
def test_segments_are_where_the_index_points(samples, segments, samples_out):
    x = RNG.standard_normal((6, 2, samples)).astype(np.float32)
    begin = np.sort(RNG.integers(0, samples_out + 20, (6, segments)), axis=1)
    begin[:, 0], begin[3:] = 0, np.sort(RNG.integers(0, 4, (3, segments)), axis=1) * (np.arange(segments) > 0)
    by = RNG.integers(-2 * samples, 2 * samples, (6, segments))
    y = join_segments(torch.from_numpy(x), torch.from_numpy(begin), torch.from_numpy(by), samples_out)
    assert np.array_equal(y.numpy(), by_index(x, begin, by, samples_out))


@pytest.mark.parametrize("samples", [1, 7, BLOCK, 3 * BLOCK, 3 * BLOCK + 5])
def test_rows_are_rolled_within_their_lengths(samples):
    x = torch.from_numpy(RNG.standard_normal((8, 2, samples)).astype(np.float32))
    length = torch.from_numpy(RNG.integers(1, samples + 1, 8))
    length[:4] = samples
    by = torch.cat([torch.tensor([0, samples, samples // 2, min(3, samples)]), length[4:] // 3])
    y = rolled(x, by, length)
    for row, (count, places) in enumerate(zip(length.tolist(), by.tolist())):
        assert torch.equal(y[row, :, :count], x[row, :, :count].roll(places, -1))


@pytest.mark.parametrize(("start", "count"), [(0, 0), (0, 7), (BLOCK - 1, 1), (BLOCK, BLOCK), (700, 1300), (2047, 3)])
def test_samples_after_a_cut_move_up_and_silence_fills_the_end(start, count):
    x = RNG.standard_normal((2, 2, 6 * BLOCK)).astype(np.float32)
    x[..., 5 * BLOCK :] = 0.0
    y = without(torch.from_numpy(x), torch.tensor([start, 3]), torch.tensor([count, 0])).numpy()
    behind = x[0, :, start + count :]
    assert y.shape == x.shape and np.array_equal(y[0, :, :start], x[0, :, :start])
    assert np.array_equal(y[0, :, start + BLOCK : start + behind.shape[1]], behind[:, BLOCK:])
    assert not y[0, :, start + max(BLOCK, behind.shape[1]) :].any()
    assert np.array_equal(y[1, :, 3 + BLOCK :], x[1, :, 3 + BLOCK :])


def test_silence_comes_in_where_a_row_is_moved_from():
    x = torch.arange(1.0, 6.0).expand(4, 1, 5)
    y = moved(x, torch.tensor([0, 2, -3, 9]))
    assert y[:, 0].tolist() == [[1, 2, 3, 4, 5], [0, 0, 1, 2, 3], [4, 5, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_gradients_flow_through_windows_as_through_an_index():
    x = torch.randn(3, 1, 700, requires_grad=True)
    by = torch.tensor([0, 5, -600])
    weight = torch.randn(3, 1, 700)
    (moved(x, by) * weight).sum().backward()
    assert torch.equal(x.grad, moved(weight, -by))
    with torch.no_grad():
        assert torch.equal(windows(x.flatten(), torch.tensor([4]), 9)[0], x.flatten()[4:13])


def test_written_segments_are_read_back():
    x = torch.zeros(2, 3, 50)
    window, start = torch.randn(2, 3, 8), torch.tensor([0, 42])
    write(x, start, window)
    assert torch.equal(read(x, start[:, None], 8)[:, :, 0], window)
    assert int((x != 0).sum()) == window.numel()


@pytest.mark.usefixtures("threads")
def test_rows_are_joined_of_the_same_segments():
    x_RCT = torch.randn(4, 2, 3000)
    begin_RK = torch.tensor([[0, 100, 100, 2900], [0, 0, 3000, 5000], [0, 1, 2, 3], [0, 600, 1200, 1800]])
    by_RK = torch.tensor([[0, 50, -50, 2900], [-4000, 4000, 0, 0], [10, -10, 0, 3], [-2900, 900, 0, -1]])
    for wanted in (None, 1000, 5000):
        found = join_segments(x_RCT, begin_RK, by_RK, wanted)
        assert torch.equal(found, by_torch(functools.partial(join_segments, x_RCT, begin_RK, by_RK, wanted)))


def test_rows_are_rolled_the_same():
    x_RCT, by_R, length_R = torch.randn(4, 2, 3000), torch.tensor([0, 1, 700, 2999]), torch.tensor([3000, 1, 700, 2999])
    found, wanted = rolled(x_RCT, by_R, length_R), by_torch(lambda: rolled(x_RCT, by_R, length_R))
    for row, length in enumerate(length_R):
        assert torch.equal(found[row, :, :length], wanted[row, :, :length])


# Padding equals numpy's, for each row with numbers of its own


MODES = {"silence": "constant", "wrap": "wrap", "reflect": "reflect"}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("mode", MODES)
def test_numpy_pad(mode: str) -> None:
    x_BCT = torch.randn(5, 2, 40, generator=torch.Generator().manual_seed(0))
    start, length, place = (
        torch.tensor([0, 3, 39, 10, 5]),
        torch.tensor([40, 7, 1, 20, 2]),
        torch.tensor([0, 33, 5, 1, 60]),
    )
    y_BCT = pad(x_BCT, start, length, place, 90, mode)
    for row in range(5):
        first, size, before = (int(part[row]) for part in (start, length, place))
        segment = x_BCT[row, :, first : first + size].numpy()
        expected = np.pad(segment, ((0, 0), (before, 90 - before - size)), MODES[mode])
        np.testing.assert_array_equal(y_BCT[row].numpy(), expected)
