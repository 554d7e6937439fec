"""A run that stops in the middle of an epoch and resumes from a checkpoint yields the same batches."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler, IterableDataset

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import AudioaugWarning, DataError, UsageError
from audioaug.loader import loader as loader_module
from tests.integration.loader.material import RATE

CHAIN = Chain([ops.Gain(p=1.0), ops.TimeMask(p=0.5), ops.Reverse(p=0.5)], RATE)
PLANS = [Plan(cut=1), Plan(cut=1, num_workers=2), Plan(cut=3, num_workers=1, persistent_workers=False)]
LAYOUT = {"offset": 0, "seed": 6, "batches": 7, "batch_size": 3, "ranks": 1, "examples": 20, "order": "shuffle"}
EVERY_PLAN = pytest.mark.parametrize("plan", PLANS, ids=["here", "workers", "short-lived worker"])


class Waves:
    """Twenty waves and their indices; records which were read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.reads.append(index)
        return torch.linspace(1.0, 2.0, 50) + index, index


class Streamed(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(Waves().__getitem__, range(start, 20, step))


def loader_of(plan: Plan, dataset: Any = None, **options: Any) -> Loader:
    ways = {"batch_size": 3, "seed": 6, "device": "cpu", "shuffle": dataset is None, **options}
    return Loader(dataset or Waves(), CHAIN, plan, **ways)


def rows(batches: Any) -> list[tuple[list[int], list[list[float]]]]:
    return [(index.tolist(), wave.tolist()) for wave, index in batches]


def saved(loader: Loader) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


@EVERY_PLAN
@pytest.mark.parametrize("kind", [Waves, Streamed])
@pytest.mark.parametrize("done", [0, 1, 4, 7])
def test_resume_mid_epoch_yields_same_batches(plan, kind, done):
    dataset = None if kind is Waves else Streamed()
    loader = loader_of(plan, dataset)
    whole, third = [rows(loader) for _ in range(3)][1:]
    assert whole != third and len(whole) >= 7
    loader = loader_of(plan, dataset)
    loader.set_epoch(1)
    first = rows(islice(loader, done))
    again = loader_of(plan, dataset)
    again.load_state_dict(saved(loader) if done else {**saved(loader), "epoch": 1})
    assert first + rows(again) == whole
    assert rows(again) == third


def test_resume_does_not_read_earlier_examples():
    dataset, loader = Waves(), loader_of(PLANS[0])
    seen = [index for batch in islice(loader, 5) for index in batch[1].tolist()]
    again = loader_of(PLANS[0], dataset, shuffle=True)
    again.load_state_dict(saved(loader))
    assert len(list(again)) == 2
    assert sorted(dataset.reads + seen) == list(range(20))


def test_resume_with_another_plan():
    whole = rows(loader_of(PLANS[0]))
    loader = loader_of(PLANS[0])
    first = rows(islice(loader, 3))
    again = loader_of(Plan(cut=0, num_workers=1))
    again.load_state_dict(saved(loader))
    for (index, wave), (expected_index, expected) in zip(first + rows(again), whole, strict=True):
        assert index == expected_index
        torch.testing.assert_close(torch.tensor(wave), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def one_ahead(batches: Any, device: torch.device, finish: Any) -> Iterator[Any]:
    """Finish the next batch before this one is yielded, as on CUDA."""
    launched = None
    for batch in batches:
        launched, ready = finish(batch), launched
        if ready is not None:
            yield ready
    if launched is not None:
        yield launched


def test_prefetched_batches_are_not_in_the_state(monkeypatch):
    monkeypatch.setattr(loader_module, "run_ahead", one_ahead)
    loader, places = loader_of(PLANS[1]), []
    for _ in loader:
        places.append((loader.state_dict()["epoch"], loader.state_dict()["batch"]))
    assert places == [(0, done) for done in range(1, 8)]
    assert loader.state_dict() == {"epoch": 1, "batch": 0, **LAYOUT}


def test_set_epoch_keeps_a_resumed_position_of_the_same_epoch():
    whole = [rows(loader_of(PLANS[0]))]
    loader = loader_of(PLANS[0])
    next(iter(loader))
    state = saved(loader)
    loader.load_state_dict(state)
    loader.set_epoch(0)  # as at the top of every training loop
    assert rows(loader) == whole[0][1:]
    loader.load_state_dict(state)
    loader.set_epoch(3)
    loader.set_epoch(0)
    assert saved(loader)["batch"] == 0 and rows(loader) == whole[0]


def test_break_keeps_position_until_next_epoch():
    loader = loader_of(PLANS[0])
    with pytest.raises(KeyboardInterrupt):
        for step, _ in enumerate(loader):
            if step == 2:
                raise KeyboardInterrupt
    assert saved(loader) == {"epoch": 0, "batch": 3, **LAYOUT}
    next(iter(loader))
    assert saved(loader) == {"epoch": 1, "batch": 1, **LAYOUT}


def test_resume_with_custom_sampler():
    sampler = DistributedSampler(Waves(), num_replicas=2, rank=1)
    whole = rows(loader_of(PLANS[0], Waves(), sampler=sampler))
    loader = loader_of(PLANS[0], Waves(), sampler=sampler)
    first = rows(islice(loader, 2))
    again = loader_of(PLANS[1], Waves(), sampler=sampler)
    again.load_state_dict(saved(loader))
    assert first + rows(again) == whole and len(whole) == 4


class Holes(Waves):
    """Most examples are broken: the second batch and the last ones have no usable example."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index not in (1, 6, 7, 8):
            raise DataError(f"no. {index} is broken.")
        return super().__getitem__(index)


def test_batches_without_usable_example_count_in_the_state():
    loader = loader_of(PLANS[0], Holes(), on_error="skip")
    with pytest.warns(AudioaugWarning):
        whole = rows(loader)
    assert [index for index, _ in whole] == [[1], [6, 7, 8]]
    for done, place in ((1, 1), (2, 3)):
        loader, again = loader_of(PLANS[0], Holes(), on_error="skip"), loader_of(PLANS[0], Holes(), on_error="skip")
        with pytest.warns(AudioaugWarning):
            first = rows(islice(loader, done))
        assert saved(loader)["batch"] == place
        again.load_state_dict(saved(loader))
        with pytest.warns(AudioaugWarning):
            assert first + rows(again) == whole


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 7}, "The state is of a Loader with seed 7, but this one has seed 6. Give Loader the same seed."),
        (
            {"examples": 9},
            "The state is in the middle of an epoch with examples=9, but this Loader has examples=20.",
        ),
        (None, "Expected the state of a Loader, with epoch, batch, seed and batches, got 'model', 'step'."),
        ({}, None),
        ({"batch": 0, "examples": 9}, None),
    ],
)
def test_invalid_state_is_refused(change, sentence):
    loader = loader_of(PLANS[0])
    next(iter(loader))
    state = {"model": 1, "step": 2} if change is None else {**saved(loader), **change}
    if sentence is None:
        loader.load_state_dict(state)
        return
    with pytest.raises(UsageError) as caught:
        loader.load_state_dict(state)
    assert str(caught.value).startswith(sentence)
