"""A run resumes in the middle of an epoch with another number of ranks or another batch size: no example is lost."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import UsageError
from audioaug.loader import sampling
from tests.integration.loader.material import RATE

CHAIN = Chain([ops.Gain(p=1.0), ops.TimeMask(p=0.5), ops.Reverse(p=0.5)], RATE)
SEED, EPOCH = 6, 3


class Waves:
    """Waves and their indices."""

    def __init__(self, count: int = 23) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.linspace(1.0, 2.0, 50) + index, index


class Streamed(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return map(Waves().__getitem__, range(23))


def loader_of(dataset: Any = None, **options: Any) -> Loader:
    return Loader(dataset or Waves(), CHAIN, Plan(cut=3), device="cpu", **{"batch_size": 2, "seed": SEED, **options})


def ranks_of(count: int, examples: int, batch_size: int, **options: Any) -> list[Loader]:
    """Return the Loaders of all ranks, as if each ran in a process of its own."""
    samplers = (DistributedSampler(range(examples), count, rank, **options) for rank in range(count))
    return [loader_of(Waves(examples), batch_size=batch_size, sampler=sampler) for sampler in samplers]


def run(loaders: list[Loader], state: Any, most: int | None = None) -> tuple[list[list[list[int]]], Any]:
    """Run all ranks from a state for at most some batches; return the indices in each one's batches, and its state."""
    found = []
    for loader in loaders:
        if state:
            loader.load_state_dict(state)
        loader.set_epoch(EPOCH)
        found.append([index.tolist() for _, index in islice(loader, most)])
    states = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
    assert all(state == states[0] for state in states)
    return found, states[0]


def random_runs(seed: int) -> tuple[int, list[tuple[int, int, int]], dict[str, bool]]:
    """Return a number of examples, the ranks, batch size and batches of each run, and the sampler's options."""
    choose = random.Random(seed)
    runs = [(choose.randint(1, 5), choose.randint(1, 4), choose.randint(1, 5)) for _ in range(choose.randint(2, 4))]
    return choose.randint(5, 40), runs, {"shuffle": choose.random() < 0.7, "drop_last": choose.random() < 0.3}


@pytest.mark.parametrize("seed", range(40))
def test_no_example_is_lost_or_repeated_whatever_the_ranks(seed):
    examples, runs, options = random_runs(seed)
    state, seen = None, Counter[int]()
    for ranks, batch_size, most in [*runs[:-1], (*runs[-1][:2], None)]:
        rest, loaders = (examples - seen.total()) % ranks, ranks_of(ranks, examples, batch_size, **options)
        found, state = run(loaders, state, most)
        assert len({len(batches) for batches in found}) == 1
        seen.update(index for batches in found for batch in batches for index in batch)
        if state["epoch"] > EPOCH or state["batch"] == len(loaders[0]):
            break
    extra = -rest if options["drop_last"] else (ranks - rest) % ranks
    assert seen.total() == examples + extra and len(seen) == examples + min(0, extra)


def audio(loaders: Any) -> dict[int, list[float]]:
    """Return the audio of each example."""
    batches = chain.from_iterable(loaders)
    return {k: wave.tolist() for waves, indices in batches for k, wave in zip(indices.tolist(), waves)}


def joined(batches: list[list[int]]) -> list[int]:
    return [*chain.from_iterable(batches)]


def test_audio_is_that_of_an_uninterrupted_run():
    whole = loader_of()
    whole.set_epoch(EPOCH)
    loaders = ranks_of(4, 23, 2)
    for loader in loaders:
        loader.set_epoch(EPOCH)
    first = audio([islice(loader, 2) for loader in loaders])
    again = ranks_of(3, 23, 4)
    for loader in again:
        loader.load_state_dict(loaders[0].state_dict())
    rest = audio(again)
    assert len(first) == 16 and len(rest) == 7 + 2  # padded to nine
    assert {**first, **rest} == audio([whole])


def test_length_of_the_resumed_epoch_and_the_next_ones():
    [loader] = ranks_of(1, 23, 1)
    assert len(list(islice(loader, 11))) == 11
    again = ranks_of(3, 23, 2)[0]
    assert len(again) == 4
    again.load_state_dict(loader.state_dict())
    assert again.state_dict()["batch"] == 1 and len(again) == 3  # 12 are left: four for each, two batches
    assert len(list(again)) == 2
    assert len(again) == len(list(again)) == 4
    again.load_state_dict(loader.state_dict())
    next(iter(again))  # the rest of that epoch is left out
    assert len(again) == len(list(again)) == 4
    again.load_state_dict(loader.state_dict())
    again.set_epoch(9)
    assert len(again) == len(list(again)) == 4


def test_a_finished_epoch_has_no_rest():
    _, state = run(ranks_of(4, 23, 4), None, 2)  # each rank has six
    [again] = ranks_of(1, 23, 2)
    again.load_state_dict(state)
    assert again.state_dict()["batch"] == len(again) == 11 and list(again) == []
    assert len(list(again)) == 12


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batch_size_may_change_in_one_process(shuffle, drop_last):
    [found], state = run([loader_of(shuffle=shuffle)], None, 4)
    [rest], _ = run([loader_of(shuffle=shuffle, batch_size=6, drop_last=drop_last)], state)
    assert [len(batch) for batch in rest] == ([6, 6] if drop_last else [6, 6, 3])
    [whole], _ = run([loader_of(shuffle=shuffle)], None)
    assert joined(found + rest) == joined(whole)[: 8 + len(joined(rest))]


def test_plan_auto_resumes_with_another_batch_size():
    [found], state = run([loader_of(Waves(400))], None, 3)
    again = Loader(Waves(400), CHAIN, "auto", device="cpu", seed=SEED, batch_size=4)
    [more], state = run([again], state, 17)
    [rest], _ = run([loader_of(Waves(400), batch_size=3)], state)
    assert joined(found + more + rest) == list(range(400)) and len(more) == 17


def sampler_of_two(rank: int = 0) -> Any:
    return DistributedSampler(Waves(), 2, rank)


class Own(DistributedSampler):  # type: ignore[type-arg]
    """A sampler of the user's, whose order is unknown."""


def test_a_batch_sampler_of_torch_is_fine():
    loader = loader_of(batch_size=1, batch_sampler=BatchSampler(sampler_of_two(), 3, False))
    _, state = run([loader], None, 1)
    assert sum(len(batch) for batches in run(ranks_of(3, 23, 2), state)[0] for batch in batches) == 18  # 17, padded


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            {"sampler": Own(Waves(), 2, 0)},
            {"sampler": Own(Waves(), 3, 0)},
            "batches=6, but this Loader has batches=4. Use the same",
        ),
        ({"dataset": Streamed()}, {"dataset": Streamed(), "batch_size": 3}, "batch_size=2, but this Loader has batch"),
        (
            {"batch_sampler": [[0], [1, 2]], "batch_size": 1},
            {"batch_sampler": [[0]], "batch_size": 1},
            "batches=2, but this Loader has batches=1. Use the same",
        ),
        (
            {"sampler": sampler_of_two()},
            {"shuffle": True},
            "batches=6, ranks=2, order='DistributedSampler(seed=0)', but this Loader has batches=12, ranks=1, "
            "order='shuffle'. Use the same dataset, sampler, batch size and number of processes, or start the next ",
        ),
        ({"dataset": Waves(24)}, {}, "examples=24, but this Loader has examples=23. Use the same dataset"),
        ({"shuffle": True}, {"shuffle": False}, "order='shuffle', but this Loader has order='sequential'. Use"),
    ],
    ids=["own sampler", "stream", "batch_sampler", "other order", "other dataset", "not shuffled"],
)
def test_what_cannot_be_continued_is_refused(before, after, sentence):
    loader = loader_of(**before)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(UsageError) as caught:
        loader_of(**after).load_state_dict(state)
    assert str(caught.value).startswith(f"The state is in the middle of an epoch with {sentence}")
    loader_of(**before).load_state_dict(state)


def test_a_stream_of_other_ranks_is_refused(monkeypatch):
    loader = loader_of(Streamed())
    next(iter(loader))
    state = loader.state_dict()
    monkeypatch.setattr(sampling, "rank_and_size", lambda: (0, 2))
    with pytest.raises(UsageError, match=r"in the middle of an epoch with ranks=1, but this Loader has ranks=2\. Use "):
        loader_of(Streamed()).load_state_dict(state)


def test_checkpoints_of_earlier_versions_are_loaded():
    state = {"epoch": EPOCH, "batch": 2, "seed": SEED, "batches": 6}
    [loader] = ranks_of(2, 23, 2)[:1]
    [rest], _ = run([loader], state)
    [whole], _ = run([loader], None)
    assert rest == whole[2:]
    with pytest.raises(UsageError, match="in the middle of an epoch with batches=6, but this Loader has batches=4"):
        ranks_of(3, 23, 2)[0].load_state_dict(state)
