"""Iterable datasets: the audio of an example depends on its index in the stream, not on the workers."""

import copy
import pickle
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from audioaug import Chain, Loader, Plan, build_cpu, ops
from audioaug.errors import AudioaugWarning, DataError, UsageError
from audioaug.loader import sampling
from tests.integration.loader.material import RATE, Words, assert_same_audio, by_index, exact_chain

CHAIN, SEED = exact_chain(), 4


class Dealt(IterableDataset):  # type: ignore[type-arg]
    """Ten words, dealt out to the workers in turn."""

    def __iter__(self) -> Iterator[Any]:
        worker, words = get_worker_info(), Words(10)
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (words[index] for index in range(start, 10, step))

    def __len__(self) -> int:
        return 10


class Files(Dealt):
    """Ten words in two files of five; the first worker gets the first file."""

    def __iter__(self) -> Iterator[Any]:
        worker, words = get_worker_info(), Words(10)
        assert worker is not None
        return (words[5 * worker.id + place] for place in range(5))


def loader_of(dataset: Any, plan: Plan | None = None, **options: Any) -> Loader:
    return Loader(dataset, CHAIN, plan or Plan(cut=3), device="cpu", **{"batch_size": 3, "seed": SEED, **options})


def expected(epoch: int, numbers: Any = range(10)) -> dict[int, np.ndarray]:
    """Return the words, augmented by audiomentations, with the draws of these indices."""
    alone, words = build_cpu(CHAIN, seed=SEED), Words(10)
    return {k: alone(words[k][0], key=number, epoch=epoch) for k, number in enumerate(numbers)}


@pytest.mark.parametrize("cut", [0, 3, len(CHAIN)])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_stream_audio_does_not_depend_on_number_of_workers(cut, workers):
    loader = loader_of(Dealt(), Plan(cut=cut, num_workers=workers))
    for epoch in (0, 1):
        assert_same_audio(by_index(loader), expected(epoch), 5e-5)
    loader.set_epoch(0)
    assert_same_audio(by_index(loader), expected(0), 5e-5)


@pytest.mark.parametrize("knobs", [{"persistent_workers": False}, {"start_method": "spawn"}], ids=["fork", "spawn"])
def test_workers_get_the_epoch(knobs):
    loader = loader_of(Dealt(), Plan(cut=3, num_workers=2, **knobs))
    for epoch in (0, 1, 5):
        loader.set_epoch(epoch)
        assert_same_audio(by_index(loader), expected(epoch), 5e-5)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_persistent_workers_of_a_copy_get_the_epoch(copied):
    loader = copied(loader_of(Dealt(), Plan(cut=3, num_workers=2)))
    for epoch in (0, 1):
        assert_same_audio(by_index(loader), expected(epoch), 5e-5)


def test_break_with_persistent_workers():
    loader = loader_of(Dealt(), Plan(cut=3, num_workers=2))
    next(iter(loader))
    next(iter(loader))
    assert_same_audio(by_index(loader), expected(2), 5e-5)


def test_shards_of_whole_files_have_unique_indices():
    found = by_index(loader_of(Files(), Plan(cut=3, num_workers=2)))
    assert_same_audio(found, expected(0, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]), 5e-5)


def test_processes_have_unique_indices(monkeypatch):
    class Half(Dealt):
        def __iter__(self) -> Iterator[Any]:
            worker, words = get_worker_info(), Words(10)
            start, step = (2 + worker.id, 4) if worker else (1, 2)  # what rank 1 of 2 reads
            return islice((words[k] for k in range(10)), start, None, step)

    monkeypatch.setattr(sampling, "rank_and_size", lambda: (1, 2))
    for workers, mine in ((0, {1, 3, 5, 7, 9}), (2, {2, 3, 6, 7})):
        found = by_index(loader_of(Half(), Plan(cut=3, num_workers=workers)))
        assert_same_audio(found, {k: wave for k, wave in expected(0).items() if k in mine}, 5e-5)


def test_batches_len_and_drop_last():
    sizes = [len(batch[0]) for batch in loader_of(Dealt())]
    assert sizes == [3, 3, 3, 1] and len(loader_of(Dealt())) == 4
    loader = loader_of(Dealt(), drop_last=True)
    assert [len(batch[0]) for batch in loader] == [3, 3, 3] and len(loader) == 3
    batches = [batch[2].tolist() for batch in loader_of(Dealt(), Plan(num_workers=2))]
    assert batches == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]  # each worker makes its own


class Plain:
    """An iterable that is not an IterableDataset, without a length; records its epochs."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        for index, (wave, label, _) in enumerate(map(Words(4).__getitem__, range(4))):
            yield {"audio": wave, "more": {"index": index, "pair": (label, "x")}}


def test_any_iterable_is_a_stream_and_gets_the_epoch():
    dataset = Plain()
    loader = loader_of(dataset, augment=False, collate_fn=default_collate)
    for _ in range(2):
        waves = [wave for batch in loader for wave in batch["audio"].numpy()]
        assert all(np.array_equal(wave, Words(4)[k][0]) for k, wave in enumerate(waves)) and len(waves) == 4
    assert dataset.epochs == [0, 1]
    with pytest.raises(TypeError, match="Plain"):
        len(loader)


def test_two_epochs_of_a_stream_interleaved():
    loader = loader_of(Dealt())
    first, second = {}, {}
    for one, other in zip(loader, loader, strict=True):
        first |= dict(zip(one[2].tolist(), one[0].numpy()))
        second |= dict(zip(other[2].tolist(), other[0].numpy()))
    assert_same_audio(first, expected(0), 5e-5)
    assert_same_audio(second, expected(1), 5e-5)


class Broken(Dealt):
    """Raises after four waves, of which the second is given."""

    def __init__(self, error: Exception, second: torch.Tensor) -> None:
        self.error, self.second = error, second

    def __iter__(self) -> Iterator[Any]:
        yield from (torch.ones(100), self.second, torch.ones(100), torch.ones(100))
        raise self.error


@pytest.mark.parametrize("workers", [0, 1])
def test_invalid_examples_are_skipped_but_a_failing_stream_raises(workers):
    chain = Chain([ops.Gain(p=1.0)], RATE)
    dataset = Broken(OSError("disk gone.\nmore"), torch.ones(100, dtype=torch.int16))
    loader = Loader(dataset, chain, Plan(num_workers=workers), batch_size=2, device="cpu", on_error="skip")
    sizes: list[int] = []
    with pytest.raises(DataError) as caught, pytest.warns(AudioaugWarning, match="type int16"):
        sizes.extend(len(batch) for batch in loader)
    assert re.fullmatch(
        r"The dataset is iterable and cannot be read further: OSError: disk gone \(line \d+ of "
        r"test_sampling_streams\.py\)\. Leave out broken examples in the dataset\.",
        str(caught.value),
    )
    assert loader.skipped == 1 and sizes == [1, 2]


@pytest.mark.filterwarnings("ignore::audioaug.errors.AudioaugWarning")
def test_replacement_comes_from_the_same_batch():
    class Two(Dealt):
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.ones(100), torch.ones(100, dtype=torch.int16)])

    dataset = Two()
    loader = loader_of(dataset, augment=False, on_error="replace")
    assert [len(batch) for batch in loader] == [2] and loader.skipped == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_exception_of_the_stream_is_raised(workers):
    plan = Plan(num_workers=workers)
    with pytest.raises(OSError, match="disk gone"):
        list(loader_of(Broken(OSError("disk gone"), torch.ones(100)), plan=plan, augment=False))
    with pytest.raises(ValueError, match="wrong"):
        list(loader_of(Broken(ValueError("wrong"), torch.ones(100)), plan=plan, augment=False, on_error="skip"))
    with pytest.raises(DataError) as caught:
        list(loader_of(Broken(DataError("a.wav is broken."), torch.ones(100)), plan=plan, augment=False))
    assert str(caught.value) == "a.wav is broken."


@pytest.mark.parametrize("option", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_stream_refuses_samplers_and_shuffle(option):
    with pytest.raises(UsageError, match=r"Dealt is iterable and defines its own order: .* Shuffle in the dataset"):
        loader_of(Dealt(), **option)
