"""Timelines: pieces of time, one after the other, and what becomes of stamps, segments and frames."""

import numpy as np
import pytest

from audioaug.core import Timeline
from audioaug.dsp.windows import pad

BACKWARDS = Timeline([(10, 0, 0, 10)], 10, 10)
LATER = Timeline([(0, 6, 4, 10)], 10, 10)
ROLLED = Timeline([(0, 6, 4, 10), (6, 10, 0, 4)], 10, 10)
TWICE = Timeline([(0, 5, 0, 5), (2, 5, 5, 8), (5, 10, 8, 13)], 10, 13)
SLOWER = Timeline([(0, 10, 0, 20)], 10, 20)
CUT = Timeline([(3, 8, 0, 5)], 10, 5)
LOST = Timeline([], 10, 10)
SEVERAL = [BACKWARDS, LATER, ROLLED, TWICE, SLOWER, CUT, LOST, Timeline.identity(10)]


def fitting(timeline: Timeline, length: int) -> Timeline:
    """Return the timeline for clips of another length: as much of it as there is."""
    return Timeline(timeline.pieces * (length / timeline.length_in), length, length)


@pytest.mark.parametrize("second", SEVERAL)
@pytest.mark.parametrize("first", SEVERAL)
def test_one_after_the_other_is_one_function_of_the_other(first: Timeline, second: Timeline) -> None:
    second = fitting(second, first.length_out)
    both = first.then(second)
    times = np.linspace(0.013, second.length_out - 0.017, 301)
    middle = second.source(times)
    expected = np.where(np.isnan(middle), np.nan, first.source(np.nan_to_num(middle)))
    np.testing.assert_allclose(both.source(times), expected, atol=1e-9)
    assert (both.length_in, both.length_out) == (first.length_in, second.length_out)


@pytest.mark.parametrize("timeline", SEVERAL)
def test_stamps_are_where_their_times_come_out(timeline: Timeline) -> None:
    times = np.linspace(0.1, 9.9, 50)
    found, which = timeline.stamps(times)
    np.testing.assert_allclose(timeline.source(found), times[which], atol=1e-9)
    assert (np.diff(found) >= 0).all()
    sounding = sum(((low <= times) & (times < high)).sum() for low, high in np.sort(timeline.pieces[:, :2], axis=1))
    assert len(found) == sounding


def test_stamps_at_the_edges() -> None:
    assert Timeline.identity(10).stamps([0, 10])[0].tolist() == [0.0, 10.0]
    assert BACKWARDS.stamps([0, 10])[0].tolist() == [0.0, 10.0]
    assert ROLLED.stamps([6.0])[0].tolist() == [0.0]  # at a seam it belongs to what follows
    assert TWICE.stamps([3.0])[0].tolist() == [3.0, 6.0]
    assert TWICE.stamps([10.0])[0].tolist() == [13.0]  # the end of the clip is the end of its last piece only
    assert CUT.stamps([2.9, 3.0, 8.0, 11.0])[0].tolist() == [0.0]
    assert LOST.stamps([1.0])[0].tolist() == []


def test_segments_are_cut_split_doubled_and_joined() -> None:
    assert CUT.segments([(0, 4), (7, 9), (8, 10)])[0].tolist() == [[0, 1], [4, 5]]
    assert ROLLED.segments([(5, 7)])[0].tolist() == [[0, 1], [9, 10]]
    assert TWICE.segments([(1, 6)])[0].tolist() == [[1, 9]]  # a stutter within it
    assert TWICE.segments([(3, 4)])[0].tolist() == [[3, 4], [6, 7]]
    one_apart = Timeline([(0, 5, 0, 5), (5, 10, 6, 11)], 10, 11)
    assert one_apart.segments([(2, 8)])[0].tolist() == [[2, 5], [6, 9]]
    bounds, which = BACKWARDS.segments([(0, 2), (1, 4)])
    assert bounds.tolist() == [[6, 9], [8, 10]] and which.tolist() == [1, 0]
    assert LOST.segments([(0, 10)])[0].shape == (0, 2)


@pytest.mark.parametrize("timeline", [*SEVERAL, Timeline([(5, 0, 0, 5), (2, 5, 5, 8)], 10, 8)])
def test_segments_without_duration_are_where_stamps_are(timeline: Timeline) -> None:
    times = np.arange(-1.0, 12.0)
    stamps, which = timeline.stamps(times)
    bounds, rows = timeline.segments(np.stack([times, times], axis=1))
    assert sorted(zip(bounds[:, 0], bounds[:, 1], rows)) == sorted(zip(stamps, stamps, which))
    assert timeline.segments([(5, 4)])[0].shape == (0, 2)


FRAMES = np.arange(1, 6)


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [
        (Timeline.identity(10), [1, 2, 3, 4, 5]),
        (BACKWARDS, [5, 4, 3, 2, 1]),
        (LATER, [0, 0, 1, 2, 3]),
        (ROLLED, [4, 5, 1, 2, 3]),
        (SLOWER, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        (TWICE, [1, 2, 2, 3, 4, 5, 5]),
        (Timeline([(4, 8, 0, 4)], 10, 4), [3, 4]),
        (LOST, [0, 0, 0, 0, 0]),
    ],
)
def test_frames_follow_their_centres(timeline: Timeline, expected: list[int]) -> None:
    assert timeline.frames(FRAMES, 2).tolist() == expected
    rows = timeline.frames(np.stack([FRAMES, 10 * FRAMES], axis=1), 2)
    assert rows[:, 1].tolist() == [10 * each for each in expected]


@pytest.mark.parametrize("length_out", [90, 100, 103, 117, 201])
@pytest.mark.parametrize(
    ("count_of", "centred"),
    [
        (lambda samples: samples // 16, False),
        (lambda samples: -(-samples // 16), False),
        (lambda samples: 1 + samples // 16, True),
    ],
)
def test_there_are_as_many_frames_as_the_new_length_has(count_of, centred: bool, length_out: int) -> None:
    stretched = Timeline([(0, 100, 0, length_out)], 100, length_out)
    values = np.arange(1, 1 + count_of(100))
    frames = stretched.frames(values, 16, centred=centred)
    assert len(frames) == count_of(length_out)
    assert (frames > 0).all()


def test_frame_whose_centre_is_where_a_piece_ends_is_new() -> None:
    shorter = Timeline([(0, 5, 0, 5)], 10, 10)
    assert shorter.frames(FRAMES, 2).tolist() == [1, 2, 0, 0, 0]
    assert np.isnan(shorter.source([4.9, 5.0])).tolist() == [False, True]


@pytest.mark.parametrize("count", [4, 5, 7])
def test_frames_that_stay_stay_whatever_their_number(count: int) -> None:
    values = np.arange(count)
    assert Timeline.identity(10).frames(values, 2.0) is values
    turned = BACKWARDS.then(BACKWARDS)
    assert turned.still and turned.frames(values, 2.0) is values


def test_centred_frames_are_around_their_times() -> None:
    assert BACKWARDS.frames(np.arange(6), 2, centred=True).tolist() == [5, 4, 3, 2, 1, 0]
    assert LATER.frames(np.arange(1, 7), 2, centred=True).tolist() == [0, 0, 1, 2, 3, 4]


def test_pieces_are_cut_to_the_clip_and_the_result() -> None:
    far = Timeline([(-5, 20, -10, 15)], 10, 12)
    assert far.pieces.tolist() == [[5, 10, 0, 5]]
    assert Timeline([(12, 15, 0, 3), (0, 0, 3, 4)], 10, 10).pieces.shape == (0, 4)
    assert Timeline.identity(10, 7).pieces.tolist() == [[0, 7, 0, 7]]
    assert Timeline.identity(10, 12).pieces.tolist() == [[0, 10, 0, 10]]
    assert Timeline.identity(0).still and Timeline.identity(10).still and not Timeline.identity(10, 12).still


@pytest.mark.parametrize("mode", ["silence", "wrap", "reflect"])
@pytest.mark.parametrize("kept", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("place", [0, 4, 21])
def test_padding_is_the_twin_of_the_samples_padding(mode, kept: int, place: int) -> None:
    import torch

    x_BCT = 1 + torch.arange(12.0).view(1, 1, 12)
    y_T = pad(x_BCT, *(torch.tensor([value]) for value in (3, kept, place)), 30, mode)[0, 0].numpy()
    timeline = Timeline.padded(12, 30, 3, kept, place, mode)
    expected = np.nan_to_num(np.floor(timeline.source(np.arange(30) + 0.5)) + 1)
    assert y_T.tolist() == expected.tolist()
