"""Labels that follow the audio through the Loader: with any cut, in every form, and mixed with it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import audioaug
from audioaug import Chain, Frames, Label, Loader, Plan, Segments, Stamps, ops
from audioaug.errors import DataError, PlanError, UsageError
from audioaug.loader.targets import Ragged

RATE, HOP = 16000, 0.01
COUNT = 6


def moving(*more: Any) -> Chain:
    """Return ops that change timing in every way, none of which hides a click."""
    repeat = ops.RepeatPart(min_part_duration=0.1, max_part_duration=0.3, max_repeats=2, p=0.6)
    inner = ops.SomeOf((1, None), [ops.Reverse(p=0.7), ops.Shift(p=0.8)])
    return Chain([ops.Gain(p=0.5), *more, repeat, inner, ops.Resample(min_sample_rate=12000, p=0.6)], RATE)


CHAIN = moving()


class Clicked:
    """Clips of about 0.6 s with one click each, labelled in every way, as dicts or tuples."""

    def __init__(self, form: str = "dict", padded_to: int = 0) -> None:
        rng = np.random.default_rng(8)
        self.form, self.padded_to = form, padded_to
        self.lengths = rng.integers(8000, 11000, COUNT).tolist()
        self.places = [int(samples * share) for samples, share in zip(self.lengths, rng.uniform(0.2, 0.8, COUNT))]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        samples, place = self.lengths[index], self.places[index]
        wave = np.zeros(max(samples, self.padded_to), np.float32)
        wave[place - 8 : place + 8] = np.hanning(16)
        second = place / RATE
        active = np.zeros(samples // 160, np.float32)
        active[place // 160] = 1.0
        labels = {"click": [second], "around": [(second - 0.02, second + 0.02, f"click {index}")], "active": active}
        if self.form == "dict":
            return {"audio": wave, **labels, "index": index, "samples": samples}
        return (wave, *labels.values(), index)


TARGETS: dict[str | int, Any] = {"click": Stamps(), "around": Segments(), "active": Frames(HOP)}


def loader_of(dataset: Any, chain: Chain = CHAIN, plan: Plan | None = None, **options: Any) -> Loader:
    settings = {"batch_size": 4, "device": "cpu", "pad": True, "seed": 3, "targets": TARGETS}
    return Loader(dataset, chain, plan, **{**settings, **options})


def heard(wave_T: torch.Tensor) -> list[float]:
    """Return when clicks sound, in seconds."""
    power_T, found = wave_T.square().clone(), []
    while power_T.max() > 0.1 * wave_T.square().max() > 0:
        place = int(power_T.argmax())
        found.append((place + 0.5) / RATE)
        power_T[max(0, place - 100) : place + 100] = 0.0
    return sorted(found)


Followed = dict[int, tuple[torch.Tensor, list[float], list[Any], torch.Tensor]]


def followed(loader: Loader) -> Followed:
    """Run an epoch; return each example's audio, stamps, segments and frames, without padding."""
    found = {}
    for batch in loader:
        frames_BF, counts_B = batch["active"]
        for row, index in enumerate(batch["index"].tolist()):
            wave_T = batch["audio"][row, : batch["lengths"][row]]
            frames_F = frames_BF[row, : counts_B[row]]
            assert not frames_BF[row, counts_B[row] :].any()
            found[index] = wave_T, batch["click"][row].tolist(), batch["around"][row], frames_F
    return found


def test_labels_follow_the_audio() -> None:
    doubled = lost = strange = 0
    for seed in range(8):
        for wave_T, stamps, segments, frames_F in followed(loader_of(Clicked(), seed=seed)).values():
            assert stamps == pytest.approx(heard(wave_T), abs=0.002)
            assert all(any(start <= stamp <= end for start, end, _ in segments) for stamp in stamps)
            assert all(0.0 <= start < end <= len(wave_T) / RATE for start, end, _ in segments)
            active = np.flatnonzero(frames_F.numpy())
            near = [min(abs((place + 0.5) * HOP - stamp) for stamp in stamps) < 0.03 for place in active]
            strange += len(near) - sum(near)  # a frame whose centre is on one side of a seam, its click on the other
            assert len(near) or len(stamps) == 1
            assert len(frames_F) == pytest.approx(len(wave_T) / 160, abs=1)
            doubled += len(stamps) > 1
            lost += not stamps
    assert doubled > 3 and not lost and strange <= 2


PLANS = [Plan(cut=cut, worker_engine=engine) for cut in range(5) for engine in ("audiomentations", "batched")]


@pytest.mark.parametrize(
    "plan", [*PLANS, Plan(cut=2, num_workers=2)], ids=lambda plan: f"{plan.cut} {plan.worker_engine}"
)
def test_labels_do_not_depend_on_the_cut(plan: Plan) -> None:
    expected = followed(loader_of(Clicked(), plan=Plan(cut=4)))
    found = followed(loader_of(Clicked(), plan=plan, batch_size=3))
    for index, (wave_T, stamps, segments, frames_F) in expected.items():
        assert found[index][0].shape == wave_T.shape
        assert found[index][1:3] == (stamps, segments) and torch.equal(found[index][3], frames_F)


def test_segments_as_arrays_in_tuples() -> None:
    class Arrays(Clicked):
        def __getitem__(self, index: int) -> Any:
            wave, click, around, active, _ = super().__getitem__(index)
            return wave, torch.tensor(click), np.asarray([[*around[0][:2], index]]), active, index

    places = {place: TARGETS[name] for place, name in enumerate(("click", "around", "active"), start=1)}
    batch = next(iter(loader_of(Arrays("tuple"), targets=places)))
    named = next(iter(loader_of(Clicked())))
    for here, there in zip(batch[1], named["click"], strict=True):
        torch.testing.assert_close(here, there)
    assert [each.shape[1] for each in batch[2]] == [3] * 4
    assert batch[2][0][0].tolist() == pytest.approx([*named["around"][0][0][:2], 0])
    assert torch.equal(batch[3][0], named["active"][0]) and torch.equal(batch[5], named["lengths"])


def test_without_augmentation_labels_are_only_collated() -> None:
    dataset = Clicked()
    for index, (_, stamps, segments, frames_F) in followed(loader_of(dataset, augment=False)).items():
        example = dataset[index]
        assert stamps == pytest.approx(example["click"]) and torch.equal(frames_F, torch.tensor(example["active"]))
        assert segments[0][:2] == pytest.approx(example["around"][0][:2]) and segments[0][2] == f"click {index}"


def test_frames_of_equal_length_without_padding() -> None:
    dataset = [(torch.ones(3200), torch.arange(20)) for _ in range(4)]
    chain = Chain([ops.Reverse(p=1.0), ops.AdjustDuration(duration_samples=4000, p=1.0)], RATE)
    frames = next(iter(loader_of(dataset, chain, pad=False, targets={1: Frames(HOP, fill=-1)})))[1]
    assert frames.tolist() == [[*range(19, -1, -1), *[-1] * 5]] * 4


class Streamed(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([Clicked()[index] for index in range(COUNT)])


def test_labels_of_a_stream_follow_the_audio() -> None:
    expected, found = followed(loader_of(Clicked())), followed(loader_of(Streamed()))
    assert sorted(found) == list(range(COUNT))
    assert all(found[index][1:3] == expected[index][1:3] for index in found)


@pytest.mark.parametrize("workers", [0, 1])
def test_ragged_labels_are_sent_as_one_tensor(workers: int) -> None:
    loader = loader_of(Clicked(), plan=Plan(cut=4, num_workers=workers))
    message = next(loader.worker_batches())
    assert isinstance(message.batch["click"], Ragged) and message.batch["click"].flat.ndim == 1
    batch = next(iter(loader))
    assert isinstance(batch["click"], list) and [len(each) for each in batch["click"]] == message.batch["click"].counts


@pytest.mark.parametrize("pad", [False, True])
def test_negative_positions(pad: bool) -> None:
    dataset = [(torch.ones(1600), [0.02, 0.05])] * 2
    chain = Chain([ops.Reverse(p=1.0)], RATE)
    batch = next(iter(loader_of(dataset, chain, pad=pad, targets={-1: Stamps()})))
    assert len(batch) == (3 if pad else 2)
    for times in batch[1]:
        assert times.tolist() == pytest.approx([0.05, 0.08])


# Trim


def test_trim_is_followed_in_workers() -> None:
    chain = moving(ops.Trim(p=1.0))
    default = loader_of(Clicked(), chain)
    assert default.plan.cut == 2
    batched = loader_of(Clicked(), chain, Plan(cut=4, worker_engine="batched"))
    for loader in (default, batched):
        for wave_T, stamps, _, _ in followed(loader).values():
            assert stamps == pytest.approx(heard(wave_T), abs=0.002)
    chain = Chain([ops.Gain(), ops.Trim(), ops.Reverse()], RATE)
    with pytest.raises(PlanError, match=r"Targets cannot follow Trim on the device .* Cut the chain at 2 or later"):
        loader_of(Clicked(), chain, Plan(cut=1))
    assert loader_of(Clicked(), chain, targets=None).plan.cut == 0


def test_trim_after_a_device_only_op_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Targets cannot follow Trim .* And it cannot run in a worker: Mix"):
        loader_of(Clicked(), Chain([ops.Mix(), ops.Trim()], RATE))


# Mixing


def impulses(count: int = 5) -> list[dict[str, Any]]:
    """Return clips of 1000 samples; that number k has its impulse at 100 + 150 k, and every label says so."""
    examples = []
    for k in range(count):
        wave, place = torch.zeros(1000), 100 + 150 * k
        wave[place] = 1.0
        rows = torch.zeros(10, count)
        rows[place // 100, k] = 1.0
        stamp = (place + 0.5) / 1000
        examples.append(
            {"audio": wave, "at": [stamp], "seg": [(stamp - 0.02, stamp + 0.02, k)], "rows": rows, "class": k}
        )
    return examples


MIXED: dict[str | int, Any] = {
    "at": Stamps(),
    "seg": Segments(),
    "rows": Frames(0.1),
    "class": Label(5),
}


def mixed(chain: Chain, seed: int = 2, **targets: Any) -> Any:
    return next(iter(Loader(impulses(), chain, batch_size=5, device="cpu", seed=seed, targets={**MIXED, **targets})))


@pytest.mark.parametrize("before", [[], [ops.Shift(p=0.7, fade_duration=0.0)]], ids=["first", "after a shift"])
@pytest.mark.parametrize("behind", [[], [ops.Reverse(p=0.7)]], ids=["last", "before reverse"])
def test_mix_combines_labels(before: list[Any], behind: list[Any]) -> None:
    batch = mixed(Chain([*before, ops.Mix(p=0.8), *behind], 1000))
    pairs = 0
    for row, wave_T in enumerate(batch["audio"]):
        places = wave_T.nonzero().flatten().tolist()
        assert batch["at"][row].tolist() == pytest.approx([(place + 0.5) / 1000 for place in places])
        classes = {label for _, _, label in batch["seg"][row]}
        assert row in classes and set(batch["class"][row].nonzero().flatten().tolist()) == classes
        assert set(batch["rows"][row].amax(dim=0).nonzero().flatten().tolist()) == classes
        assert batch["rows"][row].sum() == len(classes)
        pairs += len(places) == 2
    assert pairs >= 2


def test_mix_takes_the_maximum_of_equal_labels() -> None:
    example = {"audio": torch.ones(1000), "rows": torch.full((10, 2), 0.75), "class": 3}
    targets = {"rows": Frames(0.1), "class": Label(5)}
    chain = Chain([ops.Mix(p=1.0)], 1000)
    (batch,) = Loader([example] * 4, chain, batch_size=4, device="cpu", targets=targets)
    assert torch.equal(batch["class"], torch.eye(5)[[3] * 4])
    assert torch.equal(batch["rows"], torch.full((4, 10, 2), 0.75))


def test_mix_keeps_original_labels_or_weights_soft_ones() -> None:
    kept = mixed(Chain([ops.Mix(mix_target="original", p=1.0)], 1000))
    assert torch.equal(kept["class"], torch.eye(5)) and [len(each) for each in kept["at"]] == [1] * 5
    assert (kept["audio"] > 0).sum() > 5
    soft = mixed(Chain([ops.Mix(p=1.0)], 1000), **{"class": Label(5, soft=True)})
    for row, wave_T in enumerate(soft["audio"]):
        energy = wave_T.square()
        own = energy[100 + 150 * row] / energy.sum()
        assert soft["class"][row, row].item() == pytest.approx(own.item(), rel=1e-4)
        assert soft["class"][row].sum() == pytest.approx(1.0)


def test_mix_cuts_labels_of_a_longer_partner() -> None:
    short = {"audio": torch.ones(400), "at": [0.1]}
    long = {"audio": torch.ones(1000), "at": [0.3, 0.8]}
    options = {"batch_size": 2, "device": "cpu", "pad": True, "targets": {"at": Stamps()}}
    found = set()
    for seed in range(6):
        chain = Chain([ops.Mix(p=1.0)], 1000)
        for batch in Loader([short, long], chain, seed=seed, **options):
            found |= {(row, tuple(np.round(each.tolist(), 3))) for row, each in enumerate(batch["at"])}
    assert found == {(0, (0.1,)), (0, (0.1, 0.3)), (1, (0.3, 0.8)), (1, (0.1, 0.3, 0.8))}


def test_mix_in_a_container_combines_labels() -> None:
    counts = set()
    for seed in range(4):
        batch = mixed(Chain([ops.OneOf([ops.Mix(p=1.0), ops.Reverse(p=1.0)])], 1000), seed)
        sounding = [(wave_T.nonzero().flatten().numpy() + 0.5) / 1000 for wave_T in batch["audio"]]
        for stamps, times in zip(batch["at"], sounding, strict=True):
            assert stamps.tolist() == pytest.approx(times.tolist())
        counts |= {len(times) for times in sounding}
    assert counts == {1, 2}


def test_mix_refuses_class_indices_of_frames() -> None:
    dataset = [{"audio": torch.ones(1000), "phone": np.arange(10)} for _ in range(3)]
    loader = Loader(
        dataset, Chain([ops.Mix(p=1.0)], 1000), batch_size=3, device="cpu", seed=1, targets={"phone": Frames(0.1)}
    )
    with pytest.raises(DataError, match="class indices: those of two examples cannot be combined"):
        list(loader)


# Padded datasets


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=4), Plan(cut=4, worker_engine="batched")])
def test_padding_in_the_dataset_is_removed(plan: Plan) -> None:
    expected = followed(loader_of(Clicked(), plan=plan))
    batches = list(loader_of(Clicked(padded_to=16000), plan=plan, pad=False, lengths="samples"))
    for batch in batches:
        assert "lengths" not in batch
        for row, index in enumerate(batch["index"].tolist()):
            wave_T = batch["audio"][row, : batch["samples"][row]]
            assert torch.equal(wave_T, expected[index][0]) and not batch["audio"][row, batch["samples"][row] :].any()
            assert batch["click"][row].tolist() == expected[index][1]
    mask = torch.arange(batches[0]["audio"].shape[-1]) < batches[0]["samples"][:, None]  # the README's mask
    assert not batches[0]["audio"][~mask].any()


def test_collate_fn_gets_current_lengths() -> None:
    expected = followed(loader_of(Clicked(), plan=Plan(cut=4)))

    def listed(examples: list[Any]) -> Any:
        audio = torch.nn.utils.rnn.pad_sequence([each["audio"] for each in examples], batch_first=True)
        return {"audio": audio, "samples": [each["samples"] for each in examples], "index": [0]}

    loader = loader_of(Clicked(padded_to=16000), plan=Plan(cut=4), collate_fn=listed, lengths="samples")
    assert [n for batch in loader for n in batch["samples"]] == [len(expected[k][0]) for k in range(COUNT)]


@pytest.mark.parametrize("length", [9000, -1, 2.5, "long"])
def test_invalid_length_is_refused(length: Any) -> None:
    loader = loader_of([{"audio": torch.ones(800), "n": length}], lengths="n", targets=None, on_error="raise")
    with pytest.raises(DataError, match="an integer from 0 to 800"):
        list(loader)


# Custom collate_fn and DataLoader


def test_collate_fn_gets_transformed_labels() -> None:
    chain = Chain([ops.Reverse(p=0.5), ops.Shift(p=1.0)], RATE)

    def listed(examples: list[Any]) -> Any:
        waves = torch.nn.utils.rnn.pad_sequence([each["audio"] for each in examples], batch_first=True)
        return {"audio": waves, "click": [each["click"].tolist() for each in examples]}

    for plan in (Plan(cut=0), Plan(cut=2)):
        ours = next(iter(loader_of(Clicked(), chain, plan)))
        theirs = next(iter(loader_of(Clicked(), chain, plan, collate_fn=listed)))
        assert theirs["click"] == [each.tolist() for each in ours["click"]]
        assert torch.equal(theirs["audio"], ours["audio"])

    def cut(examples: list[Any]) -> Any:
        return {"audio": torch.stack([each["audio"][:7000] for each in examples])}

    with pytest.raises(DataError, match=r"collate_fn cut a clip of .*, which targets cannot follow"):
        list(loader_of(Clicked(), chain, collate_fn=cut))


class Own:
    """A custom dataset, in which the worker part transforms the stamps."""

    def __init__(self, worker: Any) -> None:
        self.dataset, self.worker = Clicked(), worker

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        example = self.dataset[index]
        wave, timeline = self.worker.follow(example["audio"], key=index, epoch=1)
        click = timeline.stamps(np.asarray(example["click"]) * RATE)[0] / RATE
        return {"audio": torch.from_numpy(wave), "n": len(wave), "click": click.tolist(), "index": index}


def padded(examples: list[Any]) -> Any:
    waves = torch.nn.utils.rnn.pad_sequence([each["audio"] for each in examples], batch_first=True)
    columns = {name: torch.tensor([each[name] for each in examples]) for name in ("n", "index")}
    return {"audio": waves, "click": [each["click"] for each in examples], **columns}


@pytest.mark.parametrize("cut", [0, 2, 4])
def test_worker_follow_covers_the_whole_chain(cut: int) -> None:
    worker, module = audioaug.split(CHAIN, Plan(cut=cut), seed=3)
    batches = DataLoader(Own(worker), batch_size=3, collate_fn=padded)
    ours = loader_of(Clicked(), plan=Plan(cut=cut))
    ours.set_epoch(1)
    expected = followed(ours)
    for batch in audioaug.prefetch(batches, "cpu", module, key="index", epoch=1, lengths="n"):
        for row, index in enumerate(batch["index"].tolist()):
            assert batch["click"][row] == pytest.approx(expected[index][1])
            assert batch["n"][row] == len(expected[index][0])


def doubled(samples: np.ndarray, sample_rate: int) -> np.ndarray:
    return np.concatenate([samples, samples])


def test_custom_op_that_changes_lengths_is_refused() -> None:
    chain = Chain([ops.Lambda(transform=doubled, p=1.0)], RATE)
    with pytest.raises(DataError, match="Your code has changed a clip's length"):
        list(loader_of(Clicked(), chain))


def test_labels_of_skipped_examples_are_skipped() -> None:
    class Broken(Clicked):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise DataError("Broken.")
            return super().__getitem__(index)

    with pytest.warns(audioaug.errors.AudioaugWarning, match="Broken"):
        found = followed(loader_of(Broken(), on_error="skip"))
    expected = followed(loader_of(Clicked()))
    assert sorted(found) == [0, 2, 3, 4, 5]
    assert all(found[index][1] == expected[index][1] for index in found)


# Invalid labels


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (["click"], "Expected targets to map keys or positions"),
        ({"click": Stamps}, "Expected targets to map keys or positions"),
    ],
)
def test_invalid_targets_are_refused(targets: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        loader_of(Clicked(), targets=targets)


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ({"clack": Stamps()}, "An example has no field 'clack': it is a dict with 'audio' "),
        ({3: Stamps()}, "no field 3"),
        ({"around": Stamps()}, "Stamps: expected seconds, got "),
        ({"click": Segments()}, r"Segments: expected rows \(start, end, ...\) with both in seconds, got "),
        ({"index": Segments()}, r"Segments: expected a list of rows \(start, end, ...\), got 0"),
        ({"around": Frames(HOP)}, "Frames: expected a number or a row for each frame, got "),
        ({"index": Frames(HOP)}, "got the single number 0"),
        ({"index": Label(2)}, "Label: expected a class index from 0 to 1 or 2 numbers, got 2"),
        ({"click": Label(3)}, "Label: expected a class index"),
    ],
)
def test_labels_of_wrong_form_are_refused(targets: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        list(loader_of(Clicked(), targets=targets))


def test_fill_must_fit_the_type_of_frames() -> None:
    dataset = [{"audio": torch.ones(1600), "f": np.zeros(10, np.uint8)}]
    chain = Chain([ops.Reverse(p=1.0)], RATE)
    with pytest.raises(DataError, match=r"Frames: fill is -1, which uint8 cannot hold\. Use another"):
        list(loader_of(dataset, chain, targets={"f": Frames(HOP, fill=-1)}))
    with pytest.raises(DataError, match=r"Frames: fill is 0\.5, which uint8 cannot hold"):
        list(loader_of(dataset, chain, targets={"f": Frames(HOP, fill=0.5)}))


def test_read_only_labels() -> None:
    active = np.ones(10, np.float32)
    active.flags.writeable = False
    [batch] = loader_of([{"audio": torch.ones(1600), "f": active}], targets={"f": Frames(HOP)}, augment=False)
    assert torch.equal(batch["f"][0][0], torch.ones(10))


def test_frames_of_unequal_length_need_padding() -> None:
    dataset = [{"audio": torch.ones(1600), "f": torch.ones(count)} for count in (9, 10)]
    with pytest.raises(DataError, match=r"9 and 10 frames cannot be one batch. Give Loader pad=True"):
        list(loader_of(dataset, pad=False, targets={"f": Frames(HOP)}, augment=False))


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (lambda: Frames(0), "Frames: expected hop_seconds as a finite number above 0, got 0."),
        (lambda: Frames("x"), "Frames: expected hop_seconds as a finite number above 0, got 'x'."),
        (lambda: Frames(float("inf")), "Frames: expected hop_seconds as a finite number above 0, got inf."),
        (lambda: Frames(HOP, fill="x"), "Frames: expected fill as a number, got 'x'."),
        (lambda: Label(3.0), "Label: expected classes as an integer above 0, got 3.0."),
        (lambda: Label("3"), "Label: expected classes as an integer above 0, got '3'."),
        (lambda: Label(0), "Label: expected classes as an integer above 0, got 0."),
    ],
)
def test_invalid_arguments_of_label_transforms_are_refused(declare: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        declare()
    assert str(caught.value) == sentence


SECOND = torch.ones(RATE)


def labelled(values: list[Any], transform: Any, *chain: Any, **options: Any) -> Any:
    """Return the labels of one batch of clips of a second."""
    dataset = [(SECOND, value) for value in values]
    return next(iter(loader_of(dataset, Chain(chain, RATE), pad=False, targets={1: transform}, **options)))[1]


@pytest.mark.parametrize(
    ("value", "hop"),
    [
        (np.arange(100), 160),
        (np.zeros((4, 100)), 0.01),
        (np.arange(100), 0.02),
        (np.arange(130), 0.01),
        (np.arange(70), 0.01),
        ([], 0.01),
    ],
    ids=["hop in samples", "classes first", "twice the hop", "too many", "too few", "none"],
)
def test_frames_must_span_their_clip(value: Any, hop: float) -> None:
    sentence = (
        rf"Frames: {len(value)} rows with a hop of {hop:g} s span {len(value) * hop:g} s, but the clip lasts 1 s\."
    )
    with pytest.raises(DataError, match=sentence):
        labelled([value], Frames(hop), ops.Reverse(p=1.0))


@pytest.mark.parametrize("count", [71, 98, 100, 101, 129])
def test_frames_may_differ_from_their_clip_by_a_quarter_and_4(count: int) -> None:
    assert labelled([np.ones(count)], Frames(0.01), ops.Reverse(p=1.0)).shape == (1, count)


def test_clips_without_samples_may_have_any_frames() -> None:
    loader = loader_of([(torch.ones(0), np.ones(9))], Chain([], RATE), targets={1: Frames(HOP)})
    assert next(iter(loader))[1][0].shape == (1, 9)


@pytest.mark.parametrize(("given", "kept"), [(">f4", torch.float32), (">i2", torch.int16), ("g", torch.float64)])
def test_frames_of_types_unknown_to_torch_are_converted(given: str, kept: torch.dtype) -> None:
    found = labelled([np.arange(100).astype(given)], Frames(HOP), ops.Reverse(p=1.0))
    assert found.dtype == kept and found[0].tolist() == list(range(99, -1, -1))


@pytest.mark.parametrize(
    ("chain", "augment", "at"),
    [([], True, 0.25), ([ops.Reverse(p=1.0)], False, 0.25), ([ops.Reverse(p=1.0)], True, 0.75)],
)
def test_segments_without_duration_are_kept_like_stamps(chain: list[Any], augment: bool, at: float) -> None:
    assert labelled([[(0.25, 0.25, "click")]], Segments(), *chain, augment=augment) == [[(at, at, "click")]]
    assert labelled([[0.25]], Stamps(), *chain, augment=augment)[0].tolist() == [at]


def test_times_may_be_infinite() -> None:
    """A segment may last until the end, whatever that is."""
    assert labelled([[(0.5, math.inf, "a")]], Segments()) == [[(0.5, 1.0, "a")]]
    assert labelled([[-math.inf, 0.5, math.inf]], Stamps())[0].tolist() == [0.5]


@pytest.mark.parametrize(
    ("transform", "value", "found"),
    [
        (Segments(), [(0.1, 0.2, "a"), (0.5, 0.3, "b")], r"start no later than end, got \(0\.5, 0\.3, 'b'\)"),
        (Segments(), [(float("nan"), 0.3)], r"got \(nan, 0\.3\)"),
        (Segments(), np.array([[0.1, np.nan, 2.0]]), r"got \(0\.1, nan, 2\.0\)"),
        (Stamps(), [0.5, float("nan")], "expected seconds, got NaN at position 1"),
        (Segments(), np.array(3.0), "expected a list of rows"),
    ],
)
def test_times_that_cannot_be_are_refused(transform: Any, value: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        labelled([value], transform)


def test_times_outside_of_the_clip_are_dropped() -> None:
    assert labelled([[-1.0, 0.5, 1.5]], Stamps())[0].tolist() == [0.5]
    assert labelled([[(-1.0, 0.5), (0.5, 3.0), (2.0, 3.0)]], Segments()) == [[(0.0, 0.5), (0.5, 1.0)]]


ROW = [0.25, 0.5, 7.0]
NO_SEGMENTS = [np.zeros((0, 2)), np.zeros(0), [], torch.zeros(0, 3)]


@pytest.mark.parametrize("empty", NO_SEGMENTS, ids=["(0, 2)", "(0,)", "list", "(0, 3)"])
@pytest.mark.parametrize("chain", [[], [ops.Mix(p=1.0)]], ids=["alone", "mixed"])
def test_examples_without_segments_take_the_columns_of_others(chain: list[Any], empty: Any) -> None:
    found = labelled([empty, np.array([ROW]), empty, np.array([ROW])], Segments(), *chain)
    assert [each.shape[1] for each in found] == [3] * 4
    assert {tuple(row) for each in found for row in each.tolist()} == {tuple(ROW)}
    assert chain or [len(each) for each in found] == [0, 1, 0, 1]


@pytest.mark.parametrize("empty", NO_SEGMENTS[:3])
def test_examples_without_segments_take_the_form_of_others(empty: Any) -> None:
    found = labelled([empty, [(0.25, 0.5, "a")]] * 2, Segments(), ops.Mix(mix_target="union", p=1.0), seed=1)
    assert all(list(each) in ([], [(0.25, 0.5, "a")], [(0.25, 0.5, "a")] * 2) for each in found)
    assert all(each.shape == (0, 3) for each in labelled([torch.zeros(0, 3), np.zeros(0)], Segments()))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ([(0.1, 0.2, "a")], r"an array holds numbers only, got the row \(0\.1, 0\.2, 'a'\)"),
        (np.array([[0.1, 0.2]]), "Segments with 2 and 3 columns cannot be one array"),
    ],
)
def test_segments_that_cannot_be_mixed_are_refused(other: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        labelled([np.array([ROW]), other] * 2, Segments(), ops.Mix(p=1.0))


def test_torch_audiomentations_is_refused_if_its_timing_differs() -> None:
    with pytest.raises(PlanError, match="Targets cannot follow Reverse of torch-audiomentations"):
        loader_of(Clicked(), Chain([ops.Reverse()], RATE), Plan(cut=0, device_engine="torch-audiomentations"))
