"""The Loader with every form of dataset, every way to batch, every lifetime of workers, and invalid arguments."""

import copy
import gc
import pickle
import random
import sys
from collections import namedtuple
from dataclasses import replace
from typing import Any

import audiomentations
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, default_collate

from audioaug import AudioFolder, Chain, Loader, Plan, build_cpu, ops
from audioaug.audio import bank
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import AudioaugWarning, ChainError, DataError, PlanError, UsageError
from audioaug.loader.examples import get_wave
from tests.integration.loader.material import DEMO, RATE, Words, assert_same_audio, by_index, exact_chain

Pair = namedtuple("Pair", ["wave", "label"])

GAIN = Chain([ops.Gain(p=1.0)], sample_rate=RATE)
GAIN_AND_MASK = Chain([ops.Gain(p=1.0), ops.TimeMask(p=1.0)], sample_rate=RATE)


def tones(count: int = 6, shape: tuple[int, ...] = (400,)) -> list[torch.Tensor]:
    """Return waves that are never zero; example k is k + 1 loud."""
    return [torch.full(shape, float(k + 1)) for k in range(count)]


def loader_of(dataset: Any, chain: Chain = GAIN, plan: Plan | None = None, **options: Any) -> Loader:
    return Loader(dataset, chain, plan or Plan(cut=0), device="cpu", **{"batch_size": 3, **options})


def gains(loader: Loader, dataset: list[torch.Tensor]) -> list[float]:
    """Run an epoch in order; return the gain of each tone."""
    loudness = [wave.flatten()[0].item() for batch in loader for wave in batch]
    return [out / wave.flatten()[0].item() for out, wave in zip(loudness, dataset, strict=True)]


def expected_gains(chain: Chain, indices: Any, epoch: int = 0, seed: int = 0) -> list[float]:
    return (10 ** (chain.draw(indices, epoch, seed)["0:gain_db"] / 20)).tolist()


# Forms of examples


class Decoder:
    """Like the decoder of Hugging Face ``datasets`` 4: it can be indexed, but is not a mapping."""

    def __init__(self, array: np.ndarray, sampling_rate: int) -> None:
        self.content = {"array": array, "sampling_rate": sampling_rate}

    def __getitem__(self, key: str) -> Any:
        return self.content[key]


FORMS = {
    "bare wave": lambda wave, label: wave,
    "tuple": lambda wave, label: (wave, label),
    "list": lambda wave, label: [wave, label],
    "namedtuple": lambda wave, label: Pair(wave, label),
    "dict": lambda wave, label: {"label": label, "audio": wave},
    "hugging face": lambda wave, label: {
        "audio": {"path": None, "array": np.asarray(wave), "sampling_rate": RATE},
        "label": label,
    },
    "hugging face 4": lambda wave, label: {"audio": Decoder(np.asarray(wave), RATE), "label": label},
}


def parts(batch: Any) -> tuple[torch.Tensor, list[int] | None]:
    if isinstance(batch, torch.Tensor):
        return batch, None
    wave, label = (batch["audio"], batch["label"]) if isinstance(batch, dict) else batch
    return wave, label.tolist()


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray])
@pytest.mark.parametrize("shape", [(400,), (1, 400), (2, 400)])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_example_is_augmented(form, shape, kind, cut):
    waves = [wave if kind is torch.Tensor else wave.numpy().astype(np.float64) for wave in tones(shape=shape)]
    dataset = [FORMS[form](wave, 10 + place) for place, wave in enumerate(waves)]
    expected = expected_gains(GAIN, range(6))
    for start, batch in zip((0, 3), loader_of(dataset, plan=Plan(cut=cut)), strict=True):
        wave, label = parts(batch)
        assert wave.shape == (3, *shape) and wave.dtype == torch.float32
        if form != "bare wave":
            assert label == [10 + start, 11 + start, 12 + start]
        for row, out in enumerate(wave):
            np.testing.assert_allclose(out, (start + row + 1) * expected[start + row], rtol=1e-5)


@pytest.mark.parametrize(("form", "kind"), [("namedtuple", Pair), ("dict", dict), ("tuple", list)])
def test_batch_has_the_same_form_as_in_torch(form, kind):
    dataset = [FORMS[form](wave, 0) for wave in tones()]
    assert type(next(iter(DataLoader(dataset, batch_size=3)))) is kind
    assert type(next(iter(loader_of(dataset)))) is kind


@pytest.mark.parametrize("cut", [0, 1])
def test_dataset_is_not_modified(cut):
    frozen = [wave.numpy() for wave in tones()]
    for wave in frozen:
        wave.setflags(write=False)
    waves = tones()
    chain = Chain([ops.Gain(p=0.5), ops.TimeMask(p=0.5), ops.Reverse(p=0.5), ops.Normalize(p=0.5)], RATE)
    for dataset in (waves, frozen):
        out = torch.cat(list(loader_of(dataset, chain, Plan(cut=4 * cut))))
        assert not torch.equal(out, torch.stack(tones()))
        assert all(np.array_equal(wave, tone) for wave, tone in zip(dataset, tones()))
    for form in ("list", "dict"):
        examples = [FORMS[form](wave, 0) for wave in waves]
        assert len(list(loader_of(examples, chain, Plan(cut=4 * cut)))) == 2
        assert all(get_wave(example) is wave for example, wave in zip(examples, waves))


# Lengths


LENGTHS = [8000, 3001, 5003, 7000, 1200, 6400]
SHAPED = Chain(
    [
        ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=0.8),
        ops.LowPassFilter(p=0.7),
        ops.Shift(p=0.8),
        ops.Reverse(p=0.5),
        ops.Normalize(p=0.5),
        ops.TimeMask(p=0.8),
    ],
    sample_rate=RATE,
)


BATCHED = {cut: Plan(cut=cut, worker_engine="batched") for cut in range(1, 7)}
"""Plans that run the first part of a chain with our ops, on the collated batch."""


def uneven() -> list[tuple[np.ndarray, int]]:
    words = Words(6, seconds=0.5)
    return [(words[place][0][:, :length], place) for place, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=2), Plan(cut=6), BATCHED[2], BATCHED[6]])
@pytest.mark.parametrize("form", ["bare wave", "tuple", "dict"])
def test_padded_clips_match_single_clips(form, plan):
    clips = uneven()
    loader = loader_of([FORMS[form](*clip) for clip in clips], SHAPED, plan, pad=True)
    alone, place = build_cpu(SHAPED), 0
    for batch in loader:
        lengths = batch["lengths"] if form == "dict" else batch[-1]
        wave = batch["audio"] if form == "dict" else batch[0]
        assert lengths.tolist() == LENGTHS[place : place + 3] and wave.shape == (3, 1, max(lengths.tolist()))
        if form != "bare wave":
            assert (batch["label"] if form == "dict" else batch[1]).tolist() == [place, place + 1, place + 2]
        for out, length in zip(wave.numpy(), lengths.tolist()):
            expected = alone(clips[place][0], key=place)
            assert_same_audio({0: out[:, :length]}, {0: expected}, 5e-5)
            assert not out[:, length:].any()
            place += 1
    assert place == 6


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=6), BATCHED[6]])
def test_different_lengths_need_pad(plan):
    with pytest.raises(DataError) as caught:
        list(loader_of(uneven(), SHAPED, plan))
    assert str(caught.value) == (
        "Clips of different lengths (3001 and 8000 samples) cannot be one batch. "
        "Set pad=True (in Loader, or in a model file), or cut them to one length."
    )


ONE_LENGTH = Chain([ops.Gain(p=0.5), ops.AdjustDuration(duration_samples=4000, p=1.0)], sample_rate=RATE)
MANY_LENGTHS = Chain([ops.AdjustDuration(duration_samples=4000), ops.Reverse(), ops.Trim(p=0.7)], sample_rate=RATE)


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1), Plan(cut=2), BATCHED[1], BATCHED[2]])
@pytest.mark.parametrize("pad", [True, False])
def test_clips_cut_to_one_length_need_no_pad(plan, pad):
    (wave, *_), last = list(loader_of(uneven(), ONE_LENGTH, plan, pad=pad))
    assert wave.shape == (3, 1, 4000) and len(last) == (3 if pad else 2)
    assert not pad or last[-1].tolist() == [4000] * 3
    expected = build_cpu(ONE_LENGTH)(uneven()[0][0], key=0)
    assert_same_audio({0: wave[0].numpy()}, {0: expected}, 1e-6)


@pytest.mark.parametrize("plan", [*(Plan(cut=cut) for cut in range(4)), BATCHED[1], BATCHED[2], BATCHED[3]])
@pytest.mark.parametrize("form", ["bare wave", "tuple", "dict"])
def test_batch_has_new_lengths(form, plan):
    clips, alone, place = uneven(), build_cpu(MANY_LENGTHS), 0
    for batch in loader_of([FORMS[form](*clip) for clip in clips], MANY_LENGTHS, plan, pad=True):
        lengths = batch["lengths"] if form == "dict" else batch[-1]
        wave = batch["audio"] if form == "dict" else batch[0]
        for out, length in zip(wave.numpy(), lengths.tolist(), strict=True):
            assert_same_audio({0: out[:, :length]}, {0: alone(clips[place][0], key=place)}, 1e-6)
            assert not out[:, length:].any()
            place += 1
    assert place == 6


def test_unreported_lengths_are_refused():
    even = [torch.ones(5000) for _ in range(6)]
    for plan in (Plan(cut=0), BATCHED[3]):
        with pytest.raises(DataError, match="Ops after collation would give the clips different lengths"):
            list(loader_of(even, MANY_LENGTHS, plan))
    for plan in (Plan(cut=0), Plan(cut=1), BATCHED[1]):
        with pytest.raises(DataError, match=r"which collate_fn cannot take into account\. Cut the chain after"):
            list(loader_of(even, ONE_LENGTH, plan, collate_fn=default_collate))


@pytest.mark.parametrize("plan", [None, Plan(cut=2), Plan(cut=2, num_workers=1), BATCHED[2], "auto"])
def test_collate_fn_runs_after_ops_that_change_lengths(plan):
    def named(examples: list[Any]) -> dict[str, Any]:
        return {"audio": torch.stack([wave for wave, _ in examples]), "name": [f"no. {k}" for _, k in examples]}

    loader = Loader(uneven(), ONE_LENGTH, plan, device="cpu", batch_size=3, collate_fn=named)
    assert loader.plan.cut == 2
    batches = list(loader)
    assert [name for batch in batches for name in batch["name"]] == [f"no. {k}" for k in range(6)]
    for place, wave in enumerate(wave for batch in batches for wave in batch["audio"]):
        assert_same_audio({0: wave.numpy()}, {0: build_cpu(ONE_LENGTH)(uneven()[place][0], key=place)}, 1e-6)


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1, worker_engine="batched")], ids=["device", "worker"])
def test_a_batch_of_your_own_is_not_written_over(plan):
    dataset = tones(shape=(4000,))
    chain = Chain([ops.TimeMask(p=1.0)], sample_rate=RATE)
    batches = list(loader_of(dataset, chain, plan, batch_size=1, collate_fn=lambda examples: examples[0][None]))
    assert all((batch == 0).any() for batch in batches) and not any((wave == 0).any() for wave in dataset)


def test_collate_fn_before_batched_op_that_changes_lengths_is_refused():
    mixed = Chain([ops.Mix(), ops.AdjustDuration(duration_samples=4000, p=1.0)], RATE)
    loader = Loader([torch.ones(5000)] * 6, mixed, device="cpu", batch_size=3, collate_fn=default_collate)
    assert loader.plan.cut == 0
    with pytest.raises(DataError, match="which collate_fn cannot take into account"):
        list(loader)


def test_different_channels_are_refused():
    with pytest.raises(DataError, match=r"Clips with channel shapes \[\(\), \(2,\)\] cannot be one batch"):
        list(loader_of([torch.ones(400), torch.ones(2, 400)]))


def cut_to_shortest(examples: list[Any]) -> dict[str, Any]:
    shortest = min(wave.shape[-1] for wave, _ in examples)
    return {
        "audio": torch.stack([wave[:, :shortest] for wave, _ in examples]),
        "name": [f"no. {k}" for _, k in examples],
    }


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1), BATCHED[1]])
def test_custom_collate_fn(plan):
    batches = list(loader_of(uneven(), GAIN, plan, collate_fn=cut_to_shortest))
    assert [batch["name"] for batch in batches] == [["no. 0", "no. 1", "no. 2"], ["no. 3", "no. 4", "no. 5"]]
    assert [batch["audio"].shape for batch in batches] == [(3, 1, 3001), (3, 1, 1200)]
    expected = [gain * wave[:, :1200] for gain, (wave, _) in zip(expected_gains(GAIN, range(6)), uneven())]
    np.testing.assert_allclose(batches[1]["audio"], np.stack(expected[3:]), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1, num_workers=1)], ids=["0", "worker"])
def test_nested_batches(plan):
    examples = [
        {"audio": wave, "more": {"pair": (k, [wave[:2], "x"]), "at": Pair(k, {"s": 0.5})}}
        for k, wave in enumerate(tones())
    ]
    first, _ = loader_of(examples, GAIN, plan, collate_fn=default_collate)
    assert first["audio"][:, 0].tolist() == pytest.approx(
        [(k + 1) * gain for k, gain in enumerate(expected_gains(GAIN, range(3)))], rel=1e-5
    )
    number, (waves, names) = first["more"]["pair"]
    assert number.tolist() == [0, 1, 2] and waves.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert list(names) == ["x"] * 3
    assert type(first["more"]["at"]) is Pair and first["more"]["at"].label["s"].tolist() == [0.5] * 3


def lengths_bucketed(lengths: list[int], size: int) -> list[list[int]]:
    """Return batches of clips of similar length, like a batch sampler with buckets."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + size] for start in range(0, len(order), size)]


@pytest.mark.parametrize("cut", [0, 2, 6])
def test_bucketing_by_length_does_not_change_clips(cut):
    batches = lengths_bucketed(LENGTHS, 2)
    loader = Loader(uneven(), SHAPED, Plan(cut=cut, num_workers=1), device="cpu", pad=True, batch_sampler=batches)
    clips, alone = uneven(), build_cpu(SHAPED)
    for batch, indices in zip(loader, batches, strict=True):
        assert batch[1].tolist() == indices and batch[2].tolist() == [LENGTHS[index] for index in indices]
        for wave, index in zip(batch[0].numpy(), indices):
            expected = {0: alone(clips[index][0], key=index)}
            assert_same_audio({0: wave[:, : LENGTHS[index]]}, expected, 5e-5)


def test_collate_fn_without_stacked_audio_is_refused():
    with pytest.raises(DataError, match=r"Expected collate_fn to stack 3 clips to one tensor, .*, got list \(\)"):
        list(loader_of(tones(), collate_fn=lambda examples: (examples, 0)))
    with pytest.raises(
        DataError, match=r"Expected collate_fn to stack 3 clips to one tensor, .*, got Tensor \(2, 400\)"
    ):
        list(loader_of(tones(), collate_fn=lambda examples: default_collate(examples[:2])))


@pytest.mark.parametrize("workers", [0, 2])
def test_bank_over_the_limit_yields_same_batches(workers, monkeypatch):
    chain = Chain([ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=0.8)], sample_rate=RATE)
    options = {"dataset": Words(6), "chain": chain, "plan": Plan(cut=0, num_workers=workers)}
    expected = [batch[0] for batch in loader_of(**options)]
    monkeypatch.setattr(bank, "MOST_BYTES", 1000)
    bank._warn_of_size.cache_clear()
    with pytest.warns(AudioaugWarning, match="its excerpts are read from the files"):
        found = [batch[0] for batch in loader_of(**options)]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


# Which examples, in which order


def test_len_and_drop_last():
    for drop_last, sizes in ((False, [4, 4, 2]), (True, [4, 4])):
        loader = loader_of(tones(10), batch_size=4, drop_last=drop_last)
        assert len(loader) == len(sizes) and [len(batch) for batch in loader] == sizes
    assert list(loader_of(tones(3), batch_size=4, drop_last=True)) == []


def test_draws_follow_the_example_with_any_sampler():
    waves = tones(10)
    expected = [(k + 1) * gain for k, gain in enumerate(expected_gains(GAIN, range(10)))]
    picked, again = [7, 2, 2, 9], 3 * expected_gains(GAIN, ["2#2"])[0]
    loader = loader_of(waves, sampler=picked, batch_size=3)
    assert len(loader) == 2
    found = torch.cat(list(loader))[:, 0].tolist()
    assert found == pytest.approx([expected[7], expected[2], again, expected[9]], rel=1e-5)
    loader = loader_of(waves, batch_size=1, batch_sampler=[[9, 0], [4], [1, 2, 3]])
    assert len(loader) == 3 and [len(batch) for batch in loader] == [2, 1, 3]
    assert torch.cat(list(loader_of(waves, batch_size=1, batch_sampler=[[9, 0], [4]])))[:, 0].tolist() == pytest.approx(
        [expected[k] for k in (9, 0, 4)], rel=1e-5
    )


def orders(seed: int, epochs: Any) -> list[list[int]]:
    """Return the order of the indices in several epochs."""
    loader = loader_of([(torch.ones(4), k) for k in range(20)], shuffle=True, seed=seed)
    found = []
    for epoch in epochs:
        if epoch is not None:
            loader.set_epoch(epoch)
        found.append([index for _, indices in loader for index in indices.tolist()])
    return found


def test_shuffle_changes_order_every_epoch():
    first, second, third = orders(seed=1, epochs=[None] * 3)
    assert sorted(first) == sorted(second) == list(range(20)) and len({*map(tuple, (first, second, third))}) == 3
    assert orders(seed=1, epochs=[2, 0, None]) == [third, first, second]
    assert orders(seed=2, epochs=[0]) != [first]


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1), Plan(cut=1, num_workers=1)], ids=["0", "1", "worker"])
def test_set_epoch_repeats_an_epoch(plan):
    waves = tones()
    loader = loader_of(waves, plan=plan, seed=3)
    runs = [gains(loader, waves) for _ in range(3)]
    for epoch, run in enumerate(runs):
        assert run == pytest.approx(expected_gains(GAIN, range(6), epoch, seed=3), rel=1e-5)
    assert len({gain for run in runs for gain in run}) == 18
    loader.set_epoch(1)
    assert gains(loader, waves) == runs[1] and gains(loader, waves) == runs[2]


def test_iter_alone_does_not_begin_an_epoch():
    waves = tones()
    loader = loader_of(waves)
    iter(loader)  # as Lightning does, to check that it can be iterated over
    dropped = iter(loader)
    loader.set_epoch(2)
    assert gains(loader, waves) == pytest.approx(expected_gains(GAIN, range(6), epoch=2), rel=1e-5)
    loader.batch_sampler.sampler.set_epoch(4)  # as Lightning does, too
    assert next(dropped)[0, 0].item() == pytest.approx(expected_gains(GAIN, [0], epoch=4)[0], rel=1e-5)


def test_augment_false_leaves_audio_unchanged():
    words = Words(4)
    chain = exact_chain()
    plan = Plan(cut=3, chain_hash=chain.hash)
    dry = by_index(Loader(words, chain, plan, batch_size=4, device="cpu", augment=False))
    assert all(np.array_equal(dry[index], words[index][0]) for index in range(4))
    (batch,) = loader_of(uneven(), SHAPED, augment=False, pad=True, batch_size=6)
    assert batch[-1].tolist() == LENGTHS and np.array_equal(batch[0][4, :, :1200], uneven()[4][0])


# Workers and iterators


@pytest.mark.parametrize("persistent", [True, False])
def test_break_then_next_epoch(persistent):
    waves = tones(12)
    loader = loader_of(waves, plan=Plan(cut=1, num_workers=1, persistent_workers=persistent))
    for batch in loader:
        assert batch[0, 0].item() == pytest.approx(expected_gains(GAIN, [0])[0], rel=1e-5)
        break
    assert gains(loader, waves) == pytest.approx(expected_gains(GAIN, range(12), epoch=1), rel=1e-5)
    assert gains(loader, waves) == pytest.approx(expected_gains(GAIN, range(12), epoch=2), rel=1e-5)


def pickled(loader: Loader) -> Any:
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1, num_workers=1)], ids=["no workers", "persistent worker"])
def test_copy_continues_with_workers_of_its_own(plan, copied):
    waves = tones(12)
    loader = loader_of(waves, plan=plan)
    next(iter(loader))
    copies = [copied(loader) for _ in range(2)]
    for epoch in (1, 2):
        for each in (loader, *copies):
            assert gains(each, waves) == pytest.approx(expected_gains(GAIN, range(12), epoch=epoch), rel=1e-5)
    assert len({*loader.workers, *copies[0].workers, *copies[1].workers}) == 3 * plan.num_workers


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copy_in_the_middle_of_an_epoch_shuffles_as_before(copied):
    loader = loader_of(tones(12), shuffle=True)
    iterator = iter(loader)
    next(iterator)
    same = copied(loader)
    same.load_state_dict(loader.state_dict())
    rest = zip(iterator, same, strict=True)
    assert [torch.equal(one, other) for one, other in rest] == [True] * 3


def test_two_loaders_interleaved():
    waves = tones()
    plan = Plan(cut=1, num_workers=1)
    training, validation = loader_of(waves, plan=plan), loader_of(waves, plan=plan, augment=False)
    rounds = list(zip(training, validation, strict=True))
    for out, dry in zip(rounds, (waves[:3], waves[3:])):
        assert torch.equal(out[1], torch.stack(dry)) and not torch.equal(out[0], out[1])
    expected = expected_gains(GAIN, range(6))
    assert (torch.cat([a for a, _ in rounds]) / torch.stack(waves))[:, 0].tolist() == pytest.approx(expected, rel=1e-5)


class Collecting:
    """Examples that run the garbage collector, and hold the number of exceptions that this raised."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raised: list[Any] = []
        sys.unraisablehook, before = raised.append, sys.unraisablehook
        gc.collect()
        sys.unraisablehook = before
        return torch.ones(9), len(raised)


def test_worker_does_not_collect_garbage_of_training_process():
    plan = Plan(cut=1, num_workers=1)
    gc.disable()
    try:
        old = loader_of(tones(), plan=plan)
        batches: Any = [old, iter(old)]
        next(batches[1])
        batches.append(batches)  # a reference cycle, as frameworks make them
        del old, batches
        assert not any(count.any() for _, count in loader_of(Collecting(), plan=plan))
    finally:
        gc.enable()
        gc.collect()


def test_two_iterators_are_two_epochs():
    loader = loader_of([(torch.ones(4), k) for k in range(6)], shuffle=True)
    first, second = iter(loader), iter(loader)
    mixed = [(next(first), next(second)) for _ in range(2)]
    for place, epoch in enumerate((0, 1)):
        loader.set_epoch(epoch)
        for (wave, index), pair in zip(loader, mixed, strict=True):
            assert torch.equal(wave, pair[place][0]) and torch.equal(index, pair[place][1])


@pytest.mark.parametrize("plan", [Plan(num_workers=1), "auto"], ids=["workers that live on", "auto"])
def test_iteration_raises_after_its_workers_were_taken_over(plan):
    loader = Loader([(torch.ones(4), k) for k in range(60)], GAIN, plan, batch_size=2, device="cpu")
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    with pytest.raises(UsageError, match=r"iteration cannot continue: a later iteration .* Make a second Loader"):
        next(first)
    assert [index.tolist() for _, index in second] == [[k, k + 1] for k in range(2, 60, 2)]


@pytest.mark.parametrize("cut", [0, 8])
def test_global_random_state_is_unchanged(cut):
    chain = Chain([*exact_chain().ops, ops.AddGaussianNoise(p=1.0)], RATE)
    loader = loader_of(Words(6), chain, Plan(cut=cut), shuffle=True)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert len(list(loader)) == 2
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


@pytest.mark.parametrize("engine", ["audiomentations", "batched"])
def test_spawned_workers(engine):
    plan = Plan(cut=3, worker_engine=engine, num_workers=2, start_method="spawn")
    found = by_index(loader_of(Words(4), exact_chain(), plan, batch_size=2))
    assert_same_audio(found, by_index(loader_of(Words(4), exact_chain(), Plan(cut=3))), 1e-5)


# Engines


def add_threads(op: ops.Gain, x_RCT: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
    """Gain as a probe: silence becomes the number of torch's threads."""
    return x_RCT + torch.get_num_threads()


@pytest.mark.parametrize(("workers", "threads"), [(0, 2), (1, 1)])
def test_threads_of_batched_worker_engine(workers, threads, monkeypatch):
    monkeypatch.setattr(ops.Gain, "batched", add_threads)
    plan, before = replace(BATCHED[1], num_workers=workers, start_method="fork"), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = torch.cat(list(loader_of([torch.zeros(100)] * 6, GAIN, plan)))
        assert torch.equal(found, torch.full((6, 100), float(threads)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [0, 1])
def test_plan_threads_are_set_during_iteration_and_restored(workers):
    loader, before = loader_of(tones(), plan=Plan(num_workers=workers, threads=3)), torch.get_num_threads()
    assert before != 3
    assert [torch.get_num_threads() for _ in loader] == [3, 3]
    assert torch.get_num_threads() == before
    batches = iter(loader)
    next(batches)
    assert torch.get_num_threads() == 3
    del batches
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("workers", [0, 1])
def test_ops_before_one_without_batched_build_run_on_clips(workers, monkeypatch):
    chain = Chain([ops.Reverse(p=1.0), ops.Mp3Compression(p=1.0), ops.Gain(p=1.0), ops.TimeMask(p=1.0)], RATE)
    expected = by_index(loader_of(Words(6), chain, Plan(cut=4)))
    for op in (ops.Gain, ops.TimeMask):
        monkeypatch.setattr(op, "reference", None)  # they must not run clip by clip
    monkeypatch.setattr(ops.Reverse, "batched", None)
    for cut in (3, 4):
        found = by_index(loader_of(Words(6), chain, replace(BATCHED[cut], num_workers=workers, start_method="fork")))
        assert_same_audio(found, expected, 1e-5)


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
@pytest.mark.parametrize("workers", [0, 1])
def test_torch_audiomentations_engine(workers):
    waves = [torch.sin(torch.arange(4000) / (9 + place))[None] for place in range(6)]
    chain = Chain([ops.TimeMask(p=0.5), ops.Gain(p=1.0), ops.PolarityInversion(p=0.5)], RATE)
    plan = Plan(cut=1, device_engine="torch-audiomentations", num_workers=workers)
    loader = loader_of(waves, chain, plan)
    for epoch in range(2):
        loader.set_epoch(epoch)
        stock = dict(enumerate(torch.cat(list(loader)).numpy()))
        alone = build_cpu(chain)
        assert_same_audio(stock, {k: alone(wave.numpy(), key=k, epoch=epoch) for k, wave in enumerate(waves)}, 1e-5)


LIBRARY = Plan(cut=0, device_engine="torch-audiomentations")
LIBRARY_NOISE = Chain([ops.AddGaussianSNR(min_snr_db=10.0, max_snr_db=10.0, p=1.0)], RATE)


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_torch_audiomentations_engine_keeps_global_random_state():
    loader, state = loader_of(Words(4), LIBRARY_NOISE, LIBRARY), torch.get_rng_state()
    assert len(list(loader)) == 2
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_torch_audiomentations_engine_draws_new_noise_for_every_batch():
    first, second = loader_of([torch.ones(1, 400)] * 4, LIBRARY_NOISE, LIBRARY, batch_size=2)
    assert not torch.allclose(first, second)


# Invalid arguments


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan(cut=0, chain_hash="0" * 16), "This plan was made for the chain 0000000000000000, but this chain is"),
        (Plan(cut=3), "The chain cannot be cut at 3. The chain has 2 ops"),
        (Plan(cut=0), "The chain cannot be cut at 0. Mp3Compression: LAME encodes one clip at a time"),
        (Plan(cut=2, worker_engine="batchd"), "There is no worker engine 'batchd'. Did you mean batched?"),  # type: ignore[arg-type]
        (Plan(cut=2, device_engine="batchd"), "There is no device engine 'batchd'. Did you mean batched?"),  # type: ignore[arg-type]
    ],
)
def test_plan_for_another_chain_is_refused(plan, sentence):
    chain = Chain([ops.Mp3Compression(), ops.Gain()], RATE)
    with pytest.raises(PlanError) as caught:
        Loader(tones(), chain, plan, device="cpu")
    assert str(caught.value).startswith(sentence)


def test_default_plan_runs_on_the_device():
    assert Loader(tones(), GAIN_AND_MASK, device="cpu").plan == Plan(cut=0)
    assert Loader(tones(), Chain([ops.Gain(), ops.Mp3Compression(), ops.Gain()], RATE), device="cpu").plan.cut == 2


class NoLength:
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4)


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ([], "The dataset is empty."),
        (iter(tones()), "list_iterator is an iterator, which is exhausted after one epoch. Give Loader a dataset"),
        (NoLength(), "Expected a dataset with __getitem__ and __len__, or with __iter__, got NoLength."),
        (7, "Expected a dataset with __getitem__ and __len__, or with __iter__, got int."),
    ],
)
def test_invalid_dataset_is_refused(dataset, sentence):
    with pytest.raises(DataError) as caught:
        loader_of(dataset)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("on_error", ["skip", "raise"])
@pytest.mark.parametrize(
    ("example", "sentence"),
    [
        (torch.ones(400, dtype=torch.int16), "Example N: A clip has type int16, but must be floating point"),
        (np.ones((1, 1, 400)), "A clip has shape (1, 1, 400) and type float64, but must be"),
        (np.ones((400, 2)), "A clip has shape (400, 2): channels come first"),
        ("clip.wav", "Example N is a str: expected a wave, a tuple that starts with one"),
        (
            ("clip.wav", 3),
            "Expected the audio of an example to be a wave, or to have 'array' and 'sampling_rate', got str.",
        ),
        ((3.5, 3), "A clip has shape () and type float64, but must be"),
        (None, "Example N is None."),
        (
            {"wave": torch.arange(4), "y": 1},
            "Example N is a dict with 'wave' (int64, (4,)), 'y' (int): no field can be audio",
        ),
        (
            {"audio": {"path": "x.wav"}},
            "Expected the audio of an example to be a wave, or to have 'array' and 'sampling_rate', got dict.",
        ),
        (
            {"audio": {"path": "x.wav", "bytes": b"no audio"}},
            "x.wav cannot be decoded: ",
        ),
        (
            {"audio": {"path": None, "bytes": None}},
            "The audio of an example has neither 'bytes' nor a 'path'.",
        ),
        (
            {"audio": {"array": np.ones(400), "sampling_rate": 44100}},
            "The chain is for 16 kHz, but an example has a sample rate of 44.1 kHz. Convert the dataset",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::audioaug.errors.AudioaugWarning")
def test_examples_without_audio_are_refused(example, sentence, on_error):
    with pytest.raises(DataError) as caught:
        list(loader_of([example] * 4, on_error=on_error))
    named = sentence.replace("Example N", "Example 0" if on_error == "raise" else "The last one: Example 3")
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_name_the_example(workers):
    examples = [(torch.ones(400), 0), None, (torch.ones(400, 2), 1)]
    plan = Plan(num_workers=workers)
    with pytest.raises(DataError, match=r"^Example 1 is None\. on_error='skip' leaves it out\.$"):
        list(loader_of(examples, plan=plan))
    with pytest.raises(DataError, match=r"^Example 2: A clip has shape \(400, 2\): channels come first"):
        list(loader_of(examples, plan=plan, sampler=[0, 2]))
    stereo = [torch.ones(400), torch.ones(2, 400)]
    chain = Chain([ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=1.0)], RATE)
    with pytest.raises(DataError, match=r"^Augmenting example 1: AddBackgroundNoise takes mono audio only"):
        list(Loader(stereo, chain, Plan(cut=1, num_workers=workers), batch_size=1, device="cpu"))


def test_folder_with_another_sample_rate_is_refused():
    folder = AudioFolder(DEMO / "speech", 8000, seconds=0.1)
    for dataset in (folder, torch.utils.data.Subset(folder, [0])):
        with pytest.raises(DataError, match=r"^The chain is for 16 kHz, but the AudioFolder returns clips at 8 kHz\."):
            loader_of(dataset)


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=1), BATCHED[1]])
def test_mono_op_refuses_several_channels(plan):
    chain = Chain([ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=1.0)], RATE)
    with pytest.raises(DataError, match="AddBackgroundNoise takes mono audio only, but this clip has 2 channels"):
        list(loader_of(tones(shape=(2, 400)), chain, plan))


def test_exclusive_options_are_refused():
    for options in ({"shuffle": True, "sampler": [1]}, {"sampler": [1], "batch_sampler": [[1]]}):
        with pytest.raises(UsageError, match="only one of shuffle, sampler and batch_sampler"):
            loader_of(tones(), **options)
    for options in ({"batch_size": 2}, {"drop_last": True}):
        with pytest.raises(UsageError, match="neither batch_size nor drop_last with a batch_sampler"):
            Loader(tones(), GAIN, device="cpu", batch_sampler=[[1]], **options)
    with pytest.raises(UsageError, match="Expected on_error to be 'skip', 'replace' or 'raise', got 'ignore'"):
        loader_of(tones(), on_error="ignore")


@pytest.mark.parametrize(
    "augmentation",
    [
        audiomentations.Compose([audiomentations.Gain(p=1.0), audiomentations.Clip(p=1.0)]),
        [audiomentations.Gain(p=1.0), audiomentations.Clip(p=1.0)],
        [ops.Gain(p=1.0), ops.Clip(p=1.0)],
        (ops.Gain(p=1.0), audiomentations.Clip(p=1.0)),
        ops.Compose([ops.Gain(p=1.0), ops.Clip(p=1.0)], p=1.0),
    ],
    ids=["Compose", "transforms", "ops", "both", "one op"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_audiomentations_and_lists_become_chains(augmentation, workers):
    chain = Chain([ops.Gain(p=1.0), ops.Clip(p=1.0)], RATE)
    plan = Plan(cut=1, num_workers=workers, chain_hash=chain.hash)
    found = Loader(tones(), augmentation, plan, sample_rate=RATE, device="cpu", batch_size=3)
    expected = Loader(tones(), chain, plan, sample_rate=RATE, device="cpu", batch_size=3)
    assert all(torch.equal(wave, other) for wave, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("augmentation", "sample_rate", "sentence"),
    [
        (audiomentations.Compose([audiomentations.Gain()]), None, "Compose does not have a sample rate. Give the rate"),
        ([ops.Gain()], None, "list does not have a sample rate."),
        (
            [ops.Gain()],
            16000.5,
            "The chain's sample_rate is 16000.5, but it must be a whole number of hertz, at least 1.",
        ),
        (Chain([ops.Gain()], 44100), 16000, "The chain is for 44100 Hz, but sample_rate is 16000. Leave it out"),
        (None, 16000, "builtins.NoneType is not a transform of audiomentations."),
        (torch.nn.Identity(), None, "torch.nn.modules.linear.Identity is not a transform of audiomentations."),
        ("chain.yaml", None, "builtins.str is not a transform of audiomentations."),
    ],
)
@pytest.mark.parametrize("augment", [True, False])
def test_invalid_augmentation_is_refused(augmentation, sample_rate, sentence, augment):
    with pytest.raises(ChainError) as caught:
        Loader(tones(), augmentation, sample_rate=sample_rate, device="cpu", augment=augment)
    assert str(caught.value).startswith(sentence)


# Attributes of a DataLoader


@pytest.mark.parametrize("workers", [0, 2])
def test_attributes_match_data_loader(workers):
    waves, plan = tones(), Plan(num_workers=workers)
    mine = DistributedSampler(waves, num_replicas=2, rank=0)
    for options in ({"shuffle": True}, {}, {"sampler": mine}, {"batch_sampler": [[0, 1, 2], [3, 4, 5]]}):
        batches = options if "batch_sampler" in options else {**options, "batch_size": 4, "drop_last": True}
        found = Loader(waves, GAIN, plan, device="cpu", **batches)  # type: ignore[arg-type]
        same = DataLoader(waves, num_workers=workers, **batches)  # type: ignore[arg-type, var-annotated]
        for name in ("dataset", "batch_size", "num_workers", "prefetch_factor", "drop_last"):
            assert getattr(found, name) == getattr(same, name)
        assert type(found.sampler) is type(same.sampler) and len(found.sampler) == len(same.sampler)  # type: ignore[arg-type]
        assert len(found) == len(found.batch_sampler) == len(same) == len(same.batch_sampler)  # type: ignore[arg-type]
        assert found.sampler is mine or "sampler" not in options


class Streamed(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):
        return iter(tones())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [tones(), Streamed()], ids=["map-style", "stream"])
def test_data_loader_made_of_its_attributes_is_refused(dataset, workers):
    loader = loader_of(dataset, plan=Plan(num_workers=workers))
    with pytest.raises(UsageError, match=r"would not augment\. .* give the Loader its state \(load_state_dict\)"):
        list(DataLoader(loader.dataset, batch_size=2, num_workers=workers, collate_fn=loader.collate_fn))


def test_stream_has_no_sampler():
    loader = loader_of(Streamed())
    assert loader.dataset is not None and loader.batch_size == 3 and not hasattr(loader, "sampler")
