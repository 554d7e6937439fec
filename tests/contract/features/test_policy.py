"""The draws of SpecAugment follow the distributions that its docstring states, and depend on nothing but their address.

A mask one frame too wide, a start that never reaches the end, or masks that share a random number would not be noticed
in training.
"""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch

from audioaug import Chain, SpecAugment, ops
from audioaug.core.draws import uniforms
from audioaug.errors import ChainError, UsageError
from audioaug.features.policy import FREQUENCY, TIME, WARP, Policy, covered

MANY = 40_000
RARE = 1e-5  # of about a hundred p-values; the seeds are fixed


def policy(**changes: object) -> Policy:
    return SpecAugment(**{"time_masks": 2, "time_mask_width": 7, "frequency_mask_width": 5, **changes}).policy


def is_uniform(values: np.ndarray, low: int, high: int) -> bool:
    """Return whether integers are from low to high, both included, each equally likely."""
    counts = np.bincount(values - low, minlength=high - low + 1)
    return len(counts) == high - low + 1 and scipy.stats.chisquare(counts).pvalue > RARE


def drawn(kind: str, size: int, **changes: object) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and widths of one kind of masks for many keys, (B, M)."""
    declared = policy(**changes)
    draws = declared.draw(range(MANY))
    spans = declared.time_spans(draws, np.full(MANY, size)) if kind == "time" else declared.frequency_spans(draws, size)
    return spans


@pytest.mark.parametrize(("kind", "most"), [("time", 7), ("frequency", 5)])
def test_widths_and_starts_are_uniform_with_both_ends(kind, most):
    start_BM, width_BM = drawn(kind, 20)
    for start_B, width_B in zip(start_BM.T, width_BM.T):
        assert is_uniform(width_B, 0, most)
        for width in range(most + 1):
            assert is_uniform(start_B[width_B == width], 0, 20 - width)


def test_the_check_of_uniformity_sees_a_missing_end():
    values = np.random.default_rng(0).integers(0, 8, MANY)
    assert is_uniform(values, 0, 7)
    assert not is_uniform(values, 0, 8) and not is_uniform(values[values > 0], 0, 7) and not is_uniform(values, 0, 6)


def test_no_two_draws_of_an_example_depend_on_each_other():
    table_BL = policy(time_warp=3).draw(range(MANY)).table
    for one, other in itertools.combinations(table_BL.T, 2):
        counts, *_ = np.histogram2d(one, other, bins=8, range=[[0, 1], [0, 1]])
        assert scipy.stats.chisquare(counts.ravel()).pvalue > RARE


@pytest.mark.parametrize(
    ("length", "share", "width", "most"),
    [(100, 0.2, 70, 20), (1000, 0.2, 70, 70), (3, 1.0, 70, 3), (100, 0.29, None, 29), (4, 0.2, 70, 0), (0, 1.0, 7, 0)],
)
def test_time_masks_are_limited_by_width_and_by_a_share_of_the_length(length, share, width, most):
    start_BM, width_BM = drawn("time", length, time_mask_width=width, time_mask_share=share)
    assert width_BM.min() == 0 and width_BM.max() == most
    assert start_BM.min() == 0 and (start_BM + width_BM).max() == length


def test_frequency_masks_are_no_wider_than_the_spectrogram():
    start_BM, width_BM = drawn("frequency", 3, frequency_mask_width=27)
    assert is_uniform(width_BM.ravel(), 0, 3) and (start_BM + width_BM).max() == 3


def test_number_of_time_masks_follows_the_length():
    declared = policy(time_masks=20, time_masks_per_frame=0.04, time_mask_width=None, time_mask_share=1.0)
    length_B = np.asarray([0, 24, 25, 100, 499, 500, 5000])
    draws = declared.draw(np.zeros(len(length_B), dtype=int))
    _, width_BM = declared.time_spans(draws, length_B)
    unlimited = policy(time_masks=20, time_mask_width=None).time_spans(draws, length_B)[1]
    for width_M, expected_M, count in zip(width_BM, unlimited, (0, 0, 1, 4, 19, 20, 20)):
        assert np.array_equal(width_M[:count], expected_M[:count]) and not width_M[count:].any()


def test_warp_centres_and_shifts_are_uniform_and_leave_both_ends_in_place():
    declared, length_B = policy(time_warp=4), np.full(MANY, 30)
    from_B, to_B = declared.warps(declared.draw(range(MANY)), length_B)
    assert is_uniform(from_B, 5, 24)
    assert is_uniform(to_B - from_B, -4, 4)
    for centre in (5, 24):
        assert is_uniform((to_B - from_B)[from_B == centre], -4, 4)
    assert to_B.min() == 1 and to_B.max() == 28


@pytest.mark.parametrize("length", [0, 1, 10, 11])
def test_examples_without_room_are_not_warped(length):
    declared = policy(time_warp=4)
    from_B, to_B = declared.warps(declared.draw(range(99)), np.full(99, length))
    assert ((from_B == to_B).all()) == (length < 11) and (from_B == (1 if length < 11 else 5)).all()


def test_torchaudio_differs_as_documented():
    """Its masks are narrower by one, never reach the end, and are uneven in bfloat16; a mistake in ours looks so."""
    transforms = pytest.importorskip("torchaudio.transforms")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = transforms.TimeMasking(7, iid_masks=True)(torch.ones(MANY, 1, 20))[:, 0] == 0
        rounded = transforms.TimeMasking(7, iid_masks=True)(torch.ones(9000, 1, 1000, dtype=torch.bfloat16))[:, 0] == 0
    assert is_uniform(theirs.sum(1).numpy(), 0, 6) and not theirs[:, -1].any() and theirs[:, 0].any()
    assert not is_uniform(rounded.sum(1).numpy(), 0, 6)
    ours = SpecAugment(time_masks=1, time_mask_width=7, frequency_masks=0)
    for dtype, count, frames in ((torch.float32, MANY, 20), (torch.bfloat16, 9000, 1000)):
        is_masked = ours(torch.ones(count, 1, frames, dtype=dtype), key=range(count))[:, 0] == 0
        assert is_uniform(is_masked.sum(1).numpy(), 0, 7) and is_masked[:, 0].any() and is_masked[:, -1].any()


# Draws by key


def test_draws_are_those_of_the_generator_at_their_addresses():
    draws = policy(time_warp=3, frequency_masks=1).draw([5, -1], epoch=2, seed=9)
    expected = {
        "warp_0:centre": (WARP, 0),
        "warp_0:shift": (WARP, 1),
        "frequency_0:width": (FREQUENCY, 0),
        "frequency_0:start": (FREQUENCY, 1),
        "time_0:width": (TIME, 0),
        "time_0:start": (TIME, 1),
        "time_1:width": (TIME, 2),
        "time_1:start": (TIME, 3),
    }
    assert set(draws.columns) == set(expected)
    for name, (position, lane) in expected.items():
        assert np.array_equal(draws[name], uniforms(9, 2, [5, -1], [position], [lane])[:, 0])


def test_further_masks_change_no_other():
    few, many = (policy(time_masks=n, frequency_masks=n).draw(range(9)) for n in (1, 3))
    assert all(np.array_equal(few[name], many[name]) for name in few.columns)


def test_draws_change_with_seed_epoch_key_and_mask_and_are_no_others():
    declared = policy()
    tables = [declared.draw(range(4), epoch, seed).table for epoch in (0, 1) for seed in (0, 1)]
    every = np.concatenate([table.ravel() for table in tables])
    chain = Chain([ops.Gain(p=1.0), ops.TimeMask(p=1.0)], 16000).draw(range(4))
    assert len(np.unique(every)) == len(every) == 4 * 4 * 8
    assert not np.intersect1d(uniforms(0, 0, range(4), [0, 1], [1, 1]), every).size and len(chain) == 4


def test_keys_may_be_strings_and_bytes():
    assert policy().draw(["a", b"a", 3])[:1] == policy().draw([b"a"])
    assert policy().draw(["a"]) != policy().draw(["b"])


@pytest.mark.parametrize("where", ["epoch", "seed"])
def test_epoch_and_seed_must_be_integers(where):
    with pytest.raises(UsageError, match=rf"^{where} is 0\.5, but it must be an integer\.$"):
        policy().draw([1], **{where: 0.5})


# Masks from spans


def test_covered_is_the_union_of_the_masks():
    rng = np.random.default_rng(1)
    width_BM = rng.integers(0, 6, (50, 3))
    start_BM = rng.integers(0, 12 - width_BM)
    expected = np.zeros((50, 12), dtype=bool)
    for row, (starts, widths) in enumerate(zip(start_BM, width_BM)):
        for start, width in zip(starts, widths):
            expected[row, start : start + width] = True
    assert np.array_equal(covered(start_BM, width_BM, 12), expected) and expected.any() and not expected.all()


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_no_examples_or_no_masks_cover_nothing(shape):
    nothing = np.zeros(shape, dtype=np.int64)
    assert covered(nothing, nothing, 4).shape == (shape[0], 4) and not covered(nothing, nothing, 4).any()


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"time_masks": -1}, "time_masks is -1, but it must be at least 0."),
        ({"time_masks": 1.5}, "time_masks is 1.5, but it must be a whole number."),
        ({"time_mask_width": "wide"}, "time_mask_width is 'wide', but it must be a whole number."),
        ({"time_mask_share": 1.2}, "time_mask_share is 1.2, but it must be between 0 and 1."),
        ({"time_masks_per_frame": -0.1}, "time_masks_per_frame is -0.1, but it must be between 0 and 1."),
        ({"frequency_masks": None}, "frequency_masks is None, but it must be a whole number."),
        ({"frequency_mask_width": -2}, "frequency_mask_width is -2, but it must be at least 0."),
        ({"time_warp": True}, "time_warp is True, but it must be a whole number."),
        ({"mask_value": "maen"}, "mask_value is 'maen', but it must be a number or 'mean'."),
        ({"mask_value": float("nan")}, "mask_value is nan, but it must be a number or 'mean'."),
        ({"mask_value": -1e39}, "mask_value is -1e+39, but float32 holds 3.4e+38 at most."),
    ],
)
def test_a_mistake_gets_one_sentence(arguments, said):
    with pytest.raises(ChainError) as caught:
        SpecAugment(**arguments)
    assert str(caught.value) == f"SpecAugment: {said}"
