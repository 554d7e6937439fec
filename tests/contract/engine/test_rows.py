"""Rows of a batch: the same whether they are in one tensor or where ops have put them, and nothing that is kept."""

import pytest
import torch

from audioaug.dsp.dispatch import backend
from audioaug.engine.rows import RowsApart, RowsTogether, rows_of

KINDS = pytest.mark.parametrize("kind", [RowsApart, RowsTogether])


def numbered(rows, samples=4):
    return torch.arange(1.0, rows + 1)[:, None, None].expand(rows, 2, samples).clone()


def test_a_cpu_leaves_rows_apart_where_loops_run():
    x = numbered(3)
    assert isinstance(rows_of(x, x), RowsApart)
    assert isinstance(rows_of(x.clone().requires_grad_(), x), RowsTogether)
    with backend("torch"):
        assert isinstance(rows_of(x, x), RowsTogether)


@KINDS
def test_rows_come_back_where_they_were(kind):
    x = numbered(5)
    before, batch = x.clone(), kind(x, x)
    for some in ([1, 3], [3, 4], [0]):
        rows = torch.tensor(some)
        taken, free = batch.take(rows)
        assert free and taken[:, 0, 0].tolist() == batch.whole()[rows, 0, 0].tolist()
        batch.put(rows, taken.mul_(10.0))
    assert batch.whole()[:, 1, 2].tolist() == [10.0, 20.0, 3.0, 400.0, 50.0]
    assert torch.equal(x, before)


@KINDS
@pytest.mark.parametrize("width", [2, 4, 7])
def test_the_other_rows_are_cut_or_padded_like_those_put_back(kind, width):
    x = numbered(3)
    batch = kind(x, x)
    batch.put(torch.tensor([1]), torch.full((1, 2, width), 9.0))
    taken, _ = batch.take(torch.tensor([0, 1]))
    assert batch.whole().shape == (3, 2, width)
    assert batch.whole()[1].eq(9.0).all()
    assert batch.whole()[2, 0].tolist() == [3.0] * min(width, 4) + [0.0] * max(0, width - 4)
    assert torch.equal(taken, batch.whole()[:2])


@KINDS
def test_all_rows_may_be_written_over_once_they_are_not_the_input(kind):
    x = numbered(3)
    batch = kind(x, x)
    taken, free = batch.take(None)
    assert taken is x and not free
    batch.put(None, x * 2.0)
    assert batch.take(None)[1]
    assert kind(x, x.new_empty(0)).take(None)[1]


@KINDS
def test_a_gradient_forbids_writing_over(kind):
    x, weight = numbered(3), torch.ones(1, requires_grad=True)
    batch = kind(x, x)
    batch.put(torch.tensor([0]), x[:1] * weight)
    taken, free = batch.take(torch.tensor([0, 1]))
    assert taken.requires_grad and not free
    batch.put(torch.tensor([0, 1]), taken * 2.0)
    batch.whole().sum().backward()
    assert weight.grad == 2 * x[0].sum()


def test_rows_apart_are_put_together_once():
    x = numbered(3)
    batch = RowsApart(x, x)
    assert batch.whole() is x
    batch.put(torch.tensor([2]), x[:1])
    together = batch.whole()
    assert together[:, 0, 0].tolist() == [1.0, 2.0, 1.0] and batch.whole() is together
