"""BucketBatchSampler: every example once over all ranks, no batch too long, the same batches after a resume."""

import json
from collections import Counter
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
import torch
from bench_buckets import padding_of, speech_lengths
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

from audioaug import BucketBatchSampler, Chain, Loader, Plan, batching, ops
from audioaug.batching import expected_padding, make_buckets
from audioaug.errors import DataError, UsageError
from audioaug.loader import buckets as module

RATE = 16000
CHAIN = Chain([ops.Gain(p=1.0)], RATE)
EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True)


def of_ranks(ranks: int, lengths: Any, epoch: int = 0, **options: Any) -> list[list[list[int]]]:
    """Return the batches of each rank in an epoch."""
    found = []
    for rank in range(ranks):
        sampler = BucketBatchSampler(lengths, num_replicas=ranks, rank=rank, **options)
        sampler.set_epoch(epoch)
        found.append(list(sampler))
        assert len(found[-1]) == len(sampler)
    return found


SETUPS = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 60), min_size=1, max_size=90),
        "ranks": st.integers(1, 5),
        "batch_size": st.one_of(st.none(), st.integers(1, 9)),
        "max_batch_length": st.one_of(st.none(), st.integers(60, 400)),
        "num_buckets": st.integers(1, 12),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 3),
        "epoch": st.integers(0, 3),
    }
).filter(lambda setup: setup["batch_size"] or setup["max_batch_length"])


@EXAMPLES
@given(SETUPS)
def test_every_example_is_in_one_batch_of_one_rank(setup):
    ranks, count = setup["ranks"], len(setup["lengths"])
    found = of_ranks(**setup)
    seen = Counter(chain.from_iterable(chain.from_iterable(found)))
    assert set(seen) == set(range(count)) and all(batch for batches in found for batch in batches)
    assert len({len(batches) for batches in found}) == 1
    assert seen.total() - count < ranks


@EXAMPLES
@given(SETUPS)
def test_no_batch_is_too_long_or_too_large(setup):
    length_N = np.array(setup["lengths"])
    for batch in chain.from_iterable(of_ranks(**setup)):
        assert len(batch) <= (setup["batch_size"] or np.inf) and len(set(batch)) == len(batch)
        assert len(batch) * length_N[batch].max() <= (setup["max_batch_length"] or np.inf)


@EXAMPLES
@given(SETUPS)
def test_batches_of_a_step_are_of_one_bucket_and_size(setup):
    buckets = make_buckets(
        np.array(setup["lengths"]),
        setup["batch_size"],
        setup["max_batch_length"],
        setup["num_buckets"],
        setup["ranks"],
    )
    assert len(buckets.batch_sizes) <= setup["num_buckets"]
    bucket_of = np.empty(len(setup["lengths"]), int)
    for number, (start, end) in enumerate(zip(buckets.bounds, buckets.bounds[1:])):
        bucket_of[buckets.order_N[start:end]] = number
    smaller = 0
    for step in zip(*of_ranks(**setup)):
        [bucket] = {bucket_of[index] for batch in step for index in batch}
        sizes = [len(batch) for batch in step]
        assert max(sizes) - min(sizes) <= 1
        smaller += min(sizes) < buckets.batch_sizes[bucket]
    assert smaller <= 1


@EXAMPLES
@given(SETUPS)
def test_drop_last_repeats_nothing_and_gives_full_batches_only(setup):
    count, ranks = len(setup["lengths"]), setup["ranks"]
    buckets = make_buckets(
        np.array(setup["lengths"]), setup["batch_size"], setup["max_batch_length"], setup["num_buckets"], ranks
    )
    kept = count - buckets.left_over
    if not kept:
        with pytest.raises(UsageError, match="cannot fill a batch of"):
            of_ranks(**setup, drop_last=True)
        return
    found = of_ranks(**setup, drop_last=True)
    seen = Counter(chain.from_iterable(chain.from_iterable(found)))
    assert seen.total() == len(seen) == kept > count - ranks * buckets.batch_sizes[-1]
    assert len({len(batches) for batches in found}) == 1
    assert {len(batch) for batches in found for batch in batches} <= set(buckets.batch_sizes)


def test_order_is_a_function_of_seed_and_epoch():
    lengths = speech_lengths(300)
    torch.manual_seed(1), np.random.seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first = of_ranks(2, lengths, batch_size=8, seed=3)
    assert first == of_ranks(2, lengths, batch_size=8, seed=3)
    assert torch.equal(before[0], torch.random.get_rng_state()) and (before[1] == np.random.get_state()[1]).all()
    others = [of_ranks(2, lengths, batch_size=8, seed=seed, epoch=epoch) for seed, epoch in ((4, 0), (3, 1))]
    batches = [{tuple(sorted(batch)) for batch in chain.from_iterable(ranks)} for ranks in (first, *others)]
    assert all(len(batches[0] & each) < 5 for each in batches[1:]) and len(batches[0]) == 38


def test_batches_are_in_no_order_of_length():
    lengths = speech_lengths(4000)
    means = np.array([lengths[batch].mean() for batch in BucketBatchSampler(lengths, 16)])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.25
    unshuffled = [lengths[batch].max() for batch in BucketBatchSampler(lengths, 16, shuffle=False)]
    assert unshuffled == sorted(unshuffled, reverse=True)


@pytest.mark.parametrize("kind", [list, np.array])
def test_order_follows_keys_instead_of_indices(kind):
    lengths = speech_lengths(500) // 4000  # many are of equal length
    keys = [f"utterance {number}" for number in range(500)] if kind is list else np.arange(500) * 7
    moved = np.random.default_rng(5).permutation(500)
    here = list(BucketBatchSampler(lengths, 8, keys=keys))
    there = list(BucketBatchSampler(lengths[moved], 8, keys=kind([keys[place] for place in moved])))
    assert [[keys[index] for index in batch] for batch in here] == [
        [keys[moved[index]] for index in batch] for batch in there
    ]
    assert here != list(BucketBatchSampler(lengths, 8, keys=kind([key * 2 for key in keys])))


def test_padding_of_speech_with_and_without_buckets():
    lengths = speech_lengths(4000)
    random = np.random.default_rng(1).permutation(len(lengths))
    without = padding_of(np.array_split(random, 125), lengths)
    samplers = [BucketBatchSampler(lengths, 32), BucketBatchSampler(lengths, max_batch_length=32 * 16 * RATE)]
    found = [padding_of(list(sampler), lengths) for sampler in samplers]
    assert 0.28 < without < 0.33
    assert all(share < 0.04 for share in found)
    assert [sampler.padding for sampler in samplers] == pytest.approx(found, abs=0.003)


@pytest.mark.parametrize(("ranks", "size"), [(1, 7), (3, 4), (4, 1), (7, 20)])
def test_expected_padding_is_the_mean_of_many_epochs(ranks, size):
    lengths = speech_lengths(101)
    sampler = BucketBatchSampler(lengths, size, num_buckets=3, num_replicas=ranks, rank=0)
    audio = padded = 0.0
    for epoch in range(150):
        for batch in chain.from_iterable(of_ranks(ranks, lengths, epoch, batch_size=size, num_buckets=3)):
            audio, padded = audio + lengths[batch].sum(), padded + len(batch) * lengths[batch].max()
    assert sampler.padding == pytest.approx(1 - audio / padded, abs=0.004)
    assert expected_padding(np.zeros(3, np.int64), make_buckets(np.zeros(3, np.int64), 2)) == 0.0


@pytest.mark.parametrize(("ranks", "size"), [(1, 7), (3, 4), (4, 1), (7, 20), (40, 3)])
def test_padding_of_the_sorted_order_is_exact(ranks, size):
    lengths = speech_lengths(101)
    batches = list(chain.from_iterable(of_ranks(ranks, lengths, batch_size=size, shuffle=False)))
    sampler = BucketBatchSampler(lengths, size, shuffle=False, num_replicas=ranks, rank=0)
    assert sampler.padding == pytest.approx(padding_of(batches, lengths), abs=1e-9)


def test_expected_padding_of_many_lengths_is_computed_from_some(monkeypatch):
    lengths, sizes = speech_lengths(50_000), (2, 32)
    exact = [expected_padding(lengths, make_buckets(lengths, size, num_buckets=2)) for size in sizes]
    monkeypatch.setattr(batching, "ENOUGH", 2000)
    found = [expected_padding(lengths, make_buckets(lengths, size, num_buckets=2)) for size in sizes]
    assert found != exact and found == pytest.approx(exact, abs=0.002)
    assert expected_padding(np.full(999, 7), make_buckets(np.full(999, 7), 8)) == 0.0


class Clips:
    """Clips of these lengths, and their indices."""

    def __init__(self, lengths: Any) -> None:
        self.lengths_N = np.asarray(lengths)

    def lengths(self) -> np.ndarray:
        return self.lengths_N

    def __len__(self) -> int:
        return len(self.lengths_N)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((int(self.lengths_N[index]),), 0.5), index


CLIPS = Clips(speech_lengths(61, seed=2) // 2000)


def loader_of(ranks: int = 1, rank: int = 0, plan: Plan | None = None, clips: Clips = CLIPS, **options: Any) -> Loader:
    options = {"max_batch_length": 700, **options}
    sampler = BucketBatchSampler(clips, num_replicas=ranks, rank=rank, **options)
    return Loader(clips, CHAIN, plan or Plan(cut=1), batch_sampler=sampler, pad=True, device="cpu")


def indices(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def test_loader_yields_the_batches_of_the_sampler():
    loader, sampler = loader_of(), BucketBatchSampler(CLIPS, max_batch_length=700)
    assert loader.batch_size is None and len(loader) == len(sampler)
    for epoch in (0, 1, 5):
        loader.set_epoch(epoch)
        sampler.set_epoch(epoch)
        batches = list(loader)
        assert indices(batches) == list(sampler) == list(DataLoader(range(61), batch_sampler=sampler, collate_fn=list))
        assert all(wave.numel() <= 700 and wave.shape[-1] == length.max() for wave, _, length in batches)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("plan", [Plan(cut=1), Plan(cut=0, num_workers=1)], ids=["here", "worker"])
def test_resume_at_every_position(rank, plan):
    loader = loader_of(3, rank, plan)
    loader.set_epoch(1)
    states, whole = [], []
    for batch in loader:
        whole += indices([batch])
        states.append(json.loads(json.dumps(loader.state_dict())))
    following = indices(loader)
    for done, state in enumerate(states[:: 1 if plan.num_workers == 0 else 4]):
        again = loader_of(3, rank)
        again.load_state_dict(state)
        assert len(again) == len(whole)
        assert indices(again) == whole[1 + done * (1 if plan.num_workers == 0 else 4) :]
        assert indices(again) == following


def test_resume_in_the_middle_of_an_epoch_with_another_order_is_refused():
    loader = loader_of(2)
    next(iter(loader))
    state = loader.state_dict()
    for changed in (
        loader_of(3),
        loader_of(1),
        loader_of(2, seed=1),
        loader_of(2, num_buckets=5),
        loader_of(2, keys=range(61)),
        loader_of(2, clips=Clips(CLIPS.lengths_N[::-1])),
    ):
        with pytest.raises(UsageError, match=r"The state is in the middle of an epoch with .*(ranks=2|order=)"):
            changed.load_state_dict(state)
        changed.load_state_dict({**state, "batch": 0})  # at the start of an epoch, any is fine
    loader_of(2, rank=1).load_state_dict(state)
    with pytest.raises(UsageError, match=r"this Loader has .*ranks=3, and with that BucketBatchSampler makes other"):
        loader_of(3).load_state_dict(state)


ACCEPTED = "Give an array of numbers of shape (N,), an AudioFolder, or a Subset of one."


class Unreadable:
    """A dataset that must not be read to find out the lengths."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> None:
        raise AssertionError("It was read.")


@pytest.mark.parametrize(
    ("lengths", "options", "error", "sentence"),
    [
        ([1, 2], {}, UsageError, "BucketBatchSampler needs batch_size, max_batch_length or both."),
        ([1, 2], {"batch_size": 0}, UsageError, "Expected batch_size to be an integer of at least 1, got 0."),
        ([1, 2], {"batch_size": 2.0}, UsageError, "Expected batch_size to be an integer of at least 1, got 2.0."),
        (
            [1],
            {"batch_size": 1, "num_buckets": 0},
            UsageError,
            "Expected num_buckets to be an integer of at least 1, got 0.",
        ),
        (
            [1],
            {"max_batch_length": float("nan")},
            UsageError,
            "Expected max_batch_length to be a finite number above 0, got nan.",
        ),
        (
            [1, 9],
            {"max_batch_length": 7},
            UsageError,
            "1 of 2 examples is longer than max_batch_length=7; the longest has 9. Raise max_batch_length, or leave "
            "out or cut long examples.",
        ),
        (
            [1, 9, 8],
            {"max_batch_length": 7},
            UsageError,
            "2 of 3 examples are longer than max_batch_length=7; the longest has 9. Raise max_batch_length, or leave "
            "out or cut long examples.",
        ),
        (
            [1, 2],
            {"batch_size": 3, "drop_last": True},
            UsageError,
            "2 examples cannot fill a batch of 3 on 1 rank, and drop_last=True leaves out incomplete ones. Use "
            "drop_last=False or smaller batches.",
        ),
        (
            [1],
            {"batch_size": 1, "rank": 2, "num_replicas": 2},
            UsageError,
            "Expected rank to be from 0 to num_replicas - 1, got rank=2 and num_replicas=2.",
        ),
        ([1.0, 0.0], {"batch_size": 1}, DataError, "Expected finite lengths above 0, but that of example 1 is 0.0."),
        (
            [1.0, float("nan")],
            {"batch_size": 1},
            DataError,
            "Expected finite lengths above 0, but that of example 1 is nan.",
        ),
        (
            [[1, 2]],
            {"batch_size": 1},
            DataError,
            f"Expected one length for each example, got int64 of shape (1, 2). {ACCEPTED}",
        ),
        (
            [[1], [1, 2]],
            {},
            DataError,
            f"Expected one length for each example, got sequences of several sizes. {ACCEPTED}",
        ),
        ("12", {}, DataError, f"Expected one length for each example, got str. {ACCEPTED}"),
        (Unreadable(), {}, DataError, f"Expected one length for each example, got Unreadable. {ACCEPTED}"),
        (Subset(Unreadable(), [0]), {}, DataError, f"Expected one length for each example, got Unreadable. {ACCEPTED}"),
        ([1, 2], {"batch_size": 1, "keys": ["a"]}, DataError, "There are 2 lengths, but 1 key."),
    ],
)
def test_mistakes_are_one_sentence(lengths, options, error, sentence):
    with pytest.raises(error) as caught:
        BucketBatchSampler(lengths, **({"batch_size": 1} if error is DataError else {}) | options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "lengths",
    [
        (3, 1, 2, 3),
        torch.tensor([3, 1, 2, 3]),
        np.array([3, 1, 2, 3], np.uint8),
        np.array([3, 1, 2, 3], np.float32),
        Clips([3, 1, 2, 3]),
        Subset(Clips([1, 3, 1, 2, 3, 9]), [1, 2, 3, 4]),
        Subset(Subset(Clips([1, 3, 1, 2, 3, 9]), range(1, 6)), [0, 1, 2, 3]),
    ],
)
def test_lengths_may_be_an_array_or_a_dataset_that_knows_them(lengths):
    assert list(BucketBatchSampler(lengths, 2, shuffle=False)) == [[0, 3], [2, 1]]


@pytest.mark.parametrize(("count", "size", "ranks"), [(240, 8, 1), (241, 8, 2), (90, 30, 1), (4000, 32, 1)])
def test_batches_of_small_datasets_change_with_the_epoch(count, size, ranks):
    sampler = BucketBatchSampler(speech_lengths(count), size, num_replicas=ranks, rank=0)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append([frozenset(batch) for batch in sampler])
    assert len(set(epochs[0]) & set(epochs[1])) <= 0.2 * len(sampler)
    many = BucketBatchSampler(speech_lengths(count), size, num_replicas=ranks, rank=0, num_buckets=count)
    assert many.padding <= sampler.padding


def test_ranks_are_those_of_the_process_group(monkeypatch):
    monkeypatch.setattr(module, "rank_and_size", lambda: (1, 3))
    expected = BucketBatchSampler(range(1, 40), 2, rank=1, num_replicas=3)
    assert list(BucketBatchSampler(range(1, 40), 2)) == list(expected) and len(expected) == 7


def test_other_dataset_is_refused():
    with pytest.raises(UsageError, match=r"BucketBatchSampler has 5 lengths, but the dataset has 61 examples."):
        Loader(CLIPS, CHAIN, batch_sampler=BucketBatchSampler([1] * 5, 2), pad=True, device="cpu")


def test_resume_does_not_need_the_same_rank_count_between_epochs():
    loader = loader_of(2)
    list(islice(loader, len(loader)))
    list(loader)
    again = loader_of(3)
    again.load_state_dict(loader.state_dict())
    assert again.state_dict()["batch"] == 0
