"""Order statistics by the loop: what sorting gives, whatever the values are."""

import numpy as np
import pytest
import torch

from audioaug.dsp.levels.percentile import SAMPLE, STEP, _narrow, at_rank, ranked

ROWS = 11
LENGTHS = (1, 2, SAMPLE, SAMPLE + 1, 3000, 70_000)
TINY = 1e-42
"""Less than the smallest normal number."""
LEAST = 2e-45
"""One step of denormal numbers."""


def quantised(random: np.random.Generator, n: int) -> np.ndarray:
    return np.round(random.laplace(size=n) * 3) / 32768


VALUES = {
    "noise": lambda random, n: random.normal(size=n),
    "rare peaks": lambda random, n: random.normal(size=n) ** 9,
    "silence": lambda random, n: np.zeros(n),
    "half of it silence": lambda random, n: random.normal(size=n) * (random.random(n) < 0.5),
    "both zeros": lambda random, n: np.where(random.random(n) < 0.5, 0.0, -0.0),
    "few levels": quantised,
    "a tone": lambda random, n: np.sin(np.arange(n) * 2 * np.pi / 250),
    "a square wave": lambda random, n: np.sign(np.sin(np.arange(n) * 2 * np.pi / 250 + 0.1)),
    "denormal": lambda random, n: random.integers(-20, 20, n) * TINY,
    "infinite ends": lambda random, n: np.where(random.random(n) < 0.2, np.inf, random.normal(size=n) ** 9 * 1e30),
}


@pytest.fixture(params=[False, True], ids=["", "denormal numbers are 0"])
def flushed(request: pytest.FixtureRequest):
    torch.set_flush_denormal(request.param)
    yield request.param
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", VALUES)
def test_at_rank_equals_sorting(name, flushed):
    random, atol = np.random.default_rng(4), 30 * TINY if flushed else LEAST
    for count in LENGTHS:
        x_RN = np.stack([VALUES[name](random, count) for _ in range(ROWS)]).astype(np.float32)
        share_R = np.asarray([0.0, 1.0, 0.5, 0.01, 0.99, 0.24, 0.76, *random.random(4)])
        where = ranked(share_R, np.full(ROWS, count))
        where["fraction"][-4:] = 0.0
        low_R, high_R = (np.sort(x_RN)[range(ROWS), np.minimum(where["rank"] + n, count - 1)] for n in (0, 1))
        with np.errstate(invalid="ignore"):
            between_R = low_R + (high_R - low_R) * where["fraction"]
        expected_R = np.where((where["fraction"] == 0) | (low_R == high_R), low_R, between_R)
        rank_R, fraction_R = torch.from_numpy(where["rank"]), torch.from_numpy(where["fraction"]).float()
        found_R = at_rank(torch.from_numpy(x_RN), rank_R, fraction_R, where["lowest"], where["highest"]).numpy()
        with np.errstate(invalid="ignore"):
            close_R = abs(found_R - expected_R) <= 1e-6 * np.maximum(abs(low_R), abs(high_R)) + atol
        assert ((found_R == expected_R) | close_R).all()


def test_a_sample_of_only_zeros(flushed):
    x_N = abs(np.random.default_rng(6).normal(size=3000)).astype(np.float32) + 0.1
    x_N[(np.arange(1, SAMPLE + 1) * int(STEP) % 2**32 * len(x_N)) >> 32] = 0.0
    rank_R, fraction_R = torch.arange(len(x_N)), torch.zeros(len(x_N))
    found_R = at_rank(torch.from_numpy(x_N).expand(len(x_N), -1), rank_R, fraction_R, 0, len(x_N) - 1)
    assert np.array_equal(found_R.numpy(), np.sort(x_N))


def test_absolute_values(flushed):
    x_N = np.random.default_rng(7).normal(size=3000).astype(np.float32)
    rank_R, fraction_R = torch.arange(0, 3000, 7), torch.linspace(0.0, 0.9, 429)
    found_R = at_rank(torch.from_numpy(x_N).expand(429, -1), rank_R, fraction_R, 0, 2999, absolute=True)
    wanted_R = at_rank(torch.from_numpy(abs(x_N)).expand(429, -1), rank_R, fraction_R, 0, 2999)
    assert torch.equal(found_R, wanted_R)


def test_the_next_of_many_equal_absolute_values():
    x_RN = torch.ones(1, 3000)
    x_RN[:, ::2] = -2.0
    assert at_rank(x_RN, torch.tensor([1499]), torch.tensor([0.5]), 1499, 1499, absolute=True).item() == 1.5


@pytest.mark.parametrize("others", [None, np.inf, 0.0], ids=["noise", "padded", "half of it silence"])
def test_few_values_are_left_to_be_sorted(others):
    x_N, sample_S = np.random.default_rng(5).normal(size=2**16).astype(np.float32), np.empty(SAMPLE, np.float32)
    if others is not None:
        x_N = abs(x_N)
        x_N[::2] = others
    left = []
    for rank in [*range(0, 2**16, 2**10), *(2**15 + np.arange(-100, 101, 20))]:
        low, high, below, up_to = _narrow(x_N, rank, sample_S)
        inside = (x_N >= low) & (x_N <= high)
        assert inside.sum() == up_to - below and (x_N < low).sum() == below and below <= rank < up_to
        left.append(inside.sum() if low < high else 1)
    assert np.mean(left) < 1000 and max(left) < 2**14


def test_selection_ends_with_nan():
    x_RN = torch.full((2, 5000), torch.nan)
    x_RN[1, ::2] = torch.linspace(-1, 1, 2500)
    rank_R, fraction_R = torch.tensor([2500, 4999]), torch.tensor([0.5, 0.0])
    assert torch.isnan(at_rank(x_RN, rank_R, fraction_R, 2500, 4999)).all()
