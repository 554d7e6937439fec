"""Rows in turn: all of them, a few at a time on a CPU."""

import pytest
import torch

from audioaug.dsp.rows import CACHED, in_turn


@pytest.mark.parametrize(
    ("samples", "at_once"), [(0, [7]), (1, [7]), (CACHED // 3, [3, 3, 1]), (CACHED, [1] * 7), (2 * CACHED, [1] * 7)]
)
def test_few_rows_at_a_time_are_all_of_them(samples, at_once):
    x, seen = torch.arange(7.0), []

    def doubled(some):
        seen.append(len(x[some]))
        return 2 * x[some]

    assert in_turn(doubled, 7, samples, x.device).equal(2 * x)
    assert seen == at_once
    assert in_turn(lambda some: some, 7, 2 * CACHED, torch.device("cuda")) == slice(0, 7)


@pytest.mark.parametrize(
    ("samples", "at_once"), [(CACHED // 5, [4, 3]), (CACHED // 3, [2, 2, 2, 1]), (CACHED, [2, 2, 2, 1])]
)
def test_each_thread_gets_as_many_rows(samples, at_once, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    seen = []
    in_turn(lambda some: seen.append(len(range(7)[some])) or torch.zeros(1), 7, samples, torch.device("cpu"))
    assert seen == at_once
