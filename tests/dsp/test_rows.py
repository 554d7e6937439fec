"""Rows in turn: all of them, a few at a time on a CPU."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from audioaug.dsp.rows import CACHED, in_turn
from audioaug.measure import trace

ROWS = 7


def seen_at_once(samples, x=None):
    """Return how many rows are worked on at a time; all of them are."""
    x, seen = torch.arange(float(ROWS)) if x is None else x, []

    def doubled(some):
        seen.append(len(range(ROWS)[some]))
        return 2 * x[some]

    assert in_turn(doubled, x, samples).shape == x.shape
    return seen


@pytest.mark.parametrize(
    ("samples", "at_once"), [(0, [7]), (1, [7]), (CACHED // 3, [3, 3, 1]), (CACHED, [1] * 7), (2 * CACHED, [1] * 7)]
)
def test_few_rows_at_a_time_are_all_of_them(samples, at_once):
    x = torch.arange(float(ROWS))
    assert in_turn(lambda some: 2 * x[some], x, samples).equal(2 * x)
    assert seen_at_once(samples) == at_once


@pytest.mark.parametrize(
    ("samples", "at_once"), [(CACHED // 5, [4, 3]), (CACHED // 3, [2, 2, 2, 1]), (CACHED, [2, 2, 2, 1])]
)
def test_each_thread_gets_as_many_rows(samples, at_once, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert seen_at_once(samples) == at_once


def test_elsewhere_and_for_a_tracer_it_is_all_at_once():
    try:
        with FakeTensorMode():
            2 * torch.empty(2, device="cuda")[:1]
    except RuntimeError:
        pytest.skip(f"without a GPU, torch {torch.__version__} has no fake tensors on one")
    with FakeTensorMode():
        assert seen_at_once(2 * CACHED, torch.empty(ROWS, device="cuda")) == [ROWS]
    traced = []
    trace(lambda: traced.extend(seen_at_once(2 * CACHED)), torch.device("cpu"))
    assert traced == [ROWS]
