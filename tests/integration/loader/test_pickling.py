"""How a batch leaves its worker: small tensors by value, large ones through shared memory."""

import tracemalloc
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import reduce_tensor

from audioaug import Chain, Loader, Plan, ops
from audioaug.loader.pickling import SMALL, why_not_picklable
from tests.integration.loader.material import RATE

BY_VALUE = {
    "labels": torch.tensor([3, 1, 2]),
    "number": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 4),
    "flags": torch.tensor([True, False]),
    "half": torch.linspace(0.0, 1.0, 5, dtype=torch.float16),
    "complex": torch.tensor([1 + 2j]),
    "transposed": torch.arange(6).view(2, 3).T,
    "part of more": torch.arange(10_000)[4:9],
    "the largest": torch.arange(SMALL, dtype=torch.uint8),
}
BY_SHARED_MEMORY = {
    "large": torch.arange(SMALL + 1).to(torch.uint8),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    "parameter": torch.nn.Parameter(torch.ones(3)),
    "with gradient": torch.ones(3).requires_grad_(),
    "storage": torch.ones(3).untyped_storage(),
}


def sent_with(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a batch from a worker, with these fields beside the audio."""

    def collate(examples: list[torch.Tensor]) -> dict[str, Any]:
        return {"audio": torch.stack(examples), **fields}

    chain, plan = Chain([ops.Gain(p=1.0)], RATE), Plan(cut=1, num_workers=1)
    return next(iter(Loader([torch.ones(9)] * 2, chain, plan, batch_size=2, device="cpu", collate_fn=collate)))


@pytest.fixture(scope="module")
def batch() -> dict[str, Any]:
    return sent_with({**BY_VALUE, **BY_SHARED_MEMORY})


@pytest.mark.parametrize("name", BY_VALUE)
def test_small_tensors_are_pickled_by_value(name, batch):
    sent, found = BY_VALUE[name], batch[name]
    assert not found.is_shared()
    assert found.dtype == sent.dtype and torch.equal(found, sent)
    found.zero_()  # it may be written to
    assert not found.any()


@pytest.mark.parametrize("name", BY_SHARED_MEMORY)
def test_other_tensors_use_shared_memory(name, batch):
    sent, found = BY_SHARED_MEMORY[name], batch[name]
    assert found.is_shared() and type(found) is type(sent)
    assert list(found) == list(sent)
    assert getattr(found, "requires_grad", False) == getattr(sent, "requires_grad", False)


@pytest.mark.parametrize("count", [9, SMALL])
def test_lazy_conjugates_and_negatives_arrive_resolved(count):
    spectrum = torch.complex(torch.arange(count) * 1.0, torch.ones(count))
    found = sent_with({"conjugate": spectrum.conj(), "negative": spectrum.conj().imag})
    assert torch.equal(found["conjugate"], spectrum.conj()) and torch.equal(found["negative"], -torch.ones(count))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:The PyTorch API of nested tensors")
def test_sparse_and_nested_tensors_arrive_unchanged():
    found = sent_with({"sparse": torch.eye(2).to_sparse(), "nested": torch.nested.nested_tensor([torch.ones(2)])})
    assert found["sparse"].is_sparse and torch.equal(found["sparse"].to_dense(), torch.eye(2))
    assert found["nested"].is_nested and torch.equal(found["nested"][0], torch.ones(2))


def test_global_pickling_of_tensors_is_unchanged(batch):
    assert ForkingPickler._extra_reducers[torch.Tensor] is reduce_tensor  # type: ignore[attr-defined]


def test_arrays_are_not_copied_to_see_whether_they_can_be_sent():
    dataset = [np.zeros(10**6), torch.zeros(10**6)]
    tracemalloc.start()
    try:
        assert why_not_picklable({"dataset": dataset}) == "" and tracemalloc.get_traced_memory()[1] < 10**6
        assert why_not_picklable({"dataset": [*dataset, np.array([lambda: 0])]}).startswith("`dataset[2]` (ndarray)")
    finally:
        tracemalloc.stop()
    assert not dataset[1].is_shared()
