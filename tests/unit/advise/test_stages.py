"""The loaders that are timed, their order, and the number of cached batches."""

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.candidates import CACHED, FEW_CACHED
from audioaug.advise.model_file import load_training_job
from audioaug.advise.progress import Progress
from audioaug.advise.schedule import Budget
from audioaug.advise.stages import (
    CLIPS,
    DRAWS,
    Bench,
    augmentation_in_model,
    contention_names,
    decoder_stages,
    device_works,
    loaders_to_time,
    worker_stage,
    worker_works,
)
from audioaug.advise.survey import Options, Survey
from audioaug.audio.folder import AudioFolder
from audioaug.engine import DeviceChain
from audioaug.errors import DataError
from audioaug.loader.examples import samples_of
from audioaug.measure import FakeClock
from audioaug.records import StageCost, Timing
from tests.helpers.planted_reports import planted_report
from tests.helpers.planted_time import CLOCK, LOOK

THREE = "from audioaug import ops\naugment = [ops.Gain(p=1.0), ops.PolarityInversion(p=1.0), ops.Gain(p=1.0)]\n"
FAST = planted_report(batched=(1.0, 1.0, 1.0))
"""Of a machine where batched workers take less time for the whole chain."""

NEEDED = [
    (0, "audiomentations", 0),
    (0, "audiomentations", 2),
    (3, "audiomentations", 0),
    (3, "batched", 1),
    (3, "batched", 2),
]
OTHERS = [(0, "audiomentations", 1), (3, "audiomentations", 1), (3, "audiomentations", 2)]


def places(candidates) -> list[tuple[int, str, int]]:
    return [(it.cut, it.worker_engine, it.num_workers) for it in candidates]


def survey_of(name: str, budget: float) -> Survey:
    job = load_training_job(name, torch.device("cpu"))
    return Survey(job, Options(budget, workers=(0, 1, 2)), Progress(quiet=True), lambda _: None)


def test_the_loaders_that_predictions_need_come_first() -> None:
    chain = Chain([ops.Gain()] * 3, 16000)
    needed, others = loaders_to_time(FAST, chain, (0, 1, 2))
    assert (places(needed), places(others)) == (NEEDED, OTHERS)
    assert contention_names(FAST, [*needed, *others]) == {it.name for it in needed[-2:]}
    needed, others = loaders_to_time(planted_report(), chain, (0, 1, 2))
    assert {it.worker_engine for it in (*needed, *others)} == {"audiomentations"}
    assert places(others) == OTHERS[:1]


INSIDE = """
import audioaug


class Masking(Tiny):
    def __init__(self):
        super().__init__()
        self.mask = nn.ModuleDict({name: audioaug.SpecAugment() for name in ("first", "second", "never")})
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x_BCT):
        frames_BFN = self.gain * x_BCT.unflatten(-1, (40, -1))[:, 0]
        masked = self.mask["second"](x=self.mask["first"](frames_BFN), key=range(len(x_BCT)))
        return super().forward(masked.flatten(1)[:, None])


model = Masking()
"""


def bench_of(name: str, few_steps: bool = False) -> Bench:
    return Bench(load_training_job(name, torch.device("cpu")), FakeClock(), [torch.ones(4, 1, 4000)], 0.0, few_steps)


def test_spec_augment_inside_the_model_is_timed_alone_on_what_it_gets(model, monkeypatch) -> None:
    bench, given = bench_of(model(INSIDE)), []

    def interleave(self, works, seconds, tick=None):
        for work in works.values():
            given.append((work.args, work.keywords, work()))
        return {name: Timing((0.001 * len(name), 0.003)) for name in works}

    monkeypatch.setattr(Bench, "interleave", interleave)
    found = augmentation_in_model(bench, 1, 0.1)
    assert [(it.name, it.where, it.op, it.engine) for it in found] == [
        ("SpecAugment", "device", None, "mask.first"),
        ("SpecAugment", "device", None, "mask.second"),
    ]
    assert found[1].ms_per_batch == pytest.approx(0.5 * (11 + 3))
    assert given[0][0][0].shape == (4, 40, 100) and given[1][1]["key"] == range(4)
    assert all(masked.shape == (4, 40, 100) and not masked.requires_grad for _, _, masked in given)
    assert not any(module._forward_pre_hooks for module in bench.job.model.modules())


def test_models_without_it_and_slow_steps_have_no_such_stage(model) -> None:
    assert augmentation_in_model(bench_of(model("")), 1, 0.1) == ()
    assert augmentation_in_model(bench_of(model(INSIDE, "slow.py"), few_steps=True), 1, 0.1) == ()


@pytest.mark.parametrize(("seconds", "timed"), [(0.0, NEEDED), (1e6, NEEDED + OTHERS)])
def test_other_loaders_are_timed_while_there_is_time(model, monkeypatch, seconds, timed) -> None:
    survey = survey_of(model(THREE), 1.0)
    survey.report = replace(FAST, chain=survey.report.chain)
    survey.budget = Budget(seconds, FakeClock())
    asked = []
    monkeypatch.setattr(survey, "_measure_loader", lambda candidate, share, contention: asked.append(candidate))
    survey._measure_loaders()
    assert places(asked) == timed


@pytest.mark.parametrize(("budget", "batches"), [(6.0, FEW_CACHED), (112.0, CACHED)])
def test_fewer_batches_are_kept_under_a_small_budget(model, monkeypatch, budget, batches) -> None:
    def load(job, candidate, count, seconds):
        assert seconds == pytest.approx(0.25 * budget)
        raise DataError(f"{count} batches")

    monkeypatch.setattr("audioaug.advise.survey.cached_batches", load)
    with pytest.raises(DataError, match=f"^{batches} batches"):
        survey_of(model(THREE), budget).run()


def test_a_workers_stage_is_scaled_to_a_batch_and_to_the_probability_of_its_op() -> None:
    job = SimpleNamespace(batch_size=2 * CLIPS, chain=Chain([ops.Gain(p=1.0), ops.Reverse(p=0.25)], 16000))
    timing = Timing((0.010, 0.012, 0.014))
    decode, op = (worker_stage(job, name, timing) for name in ("decode", "1"))
    assert (decode.name, decode.op, decode.engine) == ("decode", None, "")
    assert (op.name, op.op, op.engine) == ("Reverse", 1, "audiomentations")
    for stage, factor in ((decode, 2.0), (op, 0.5)):
        assert stage.ms_per_batch == pytest.approx(12 * factor)
        assert stage.ci_ms == pytest.approx((10 * factor, 14 * factor))
        assert stage.samples_ms == pytest.approx([10 * factor, 12 * factor, 14 * factor])


DEMO = Path(__file__).parents[3] / "datasets" / "demo"
FILES = AudioFolder(DEMO / "rooms", 16000, seconds=0.1)
ENCODED = [{"audio": {"bytes": Path(file).read_bytes(), "path": None}} for file in FILES.files]


def job_on(dataset) -> SimpleNamespace:
    """A job on these clips, in batches of 8."""
    clip_of = partial(samples_of, sample_rate=16000)
    return SimpleNamespace(
        dataset=dataset, batch_size=8, chain=Chain([ops.Gain()], 16000), clip_of=clip_of, audio_key=None
    )


@pytest.mark.parametrize("dataset", [FILES, ENCODED])
@pytest.mark.parametrize(("batch_ms", "clips"), [(320.0, 2), (0.8, len(ENCODED))])
def test_decoders_are_timed_on_a_few_clips_and_nothing_is_left(monkeypatch, tmp_path, dataset, batch_ms, clips) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torchcodec", None)  # not installed
    slow = [StageCost("decode", "worker", batch_ms), StageCost("Gain", "worker", 0.5, op=0)]
    found = decoder_stages(Bench(job_on(dataset), CLOCK), slow)
    assert [(it.name, it.where, it.engine) for it in found] == [
        ("decode", "comparison", "soundfile"),
        ("decode", "comparison", "WAV copies at 16 kHz"),
    ]
    assert [it.ms_per_batch for it in found] == pytest.approx([1e3 * LOOK * 8 / clips] * 2)
    assert list(tmp_path.iterdir()) == []


class Decodes(AudioFolder):
    """A dataset of the user, which decodes in its own way."""


@pytest.mark.parametrize(
    ("dataset", "decode_ms"),
    [
        (FILES, 0.1),  # not the largest stage
        (FILES, 10_000.0),  # reading a clip again and again would take seconds
        (Decodes(DEMO / "rooms", 16000, 0.1), 80.0),
        ([torch.ones(1, 1600)] * 8, 80.0),
    ],
)
def test_decoders_are_not_timed_for_nothing(dataset, decode_ms) -> None:
    stages = [StageCost("decode", "worker", decode_ms), StageCost("Gain", "worker", 0.5, op=0)]
    assert decoder_stages(Bench(job_on(dataset), CLOCK), stages) == ()


def test_decoding_undecoded_audio_is_part_of_the_decode_stage() -> None:
    decoded = []
    job = job_on(ENCODED)
    job.clip_of = lambda example: decoded.append(example) or samples_of(example, 16000)
    vars(job).update(least_cut=0, targets=None, lengths=None, collate_fn=None, pad=True)
    works = worker_works(job)
    decoded.clear()
    works["decode"]()
    assert len(decoded) == CLIPS


def test_decoders_are_among_the_stages_of_the_report(model, monkeypatch) -> None:
    decode, other = StageCost("decode", "worker", 5.0), StageCost("decode", "comparison", 1.0, engine="torchcodec")
    monkeypatch.setattr("audioaug.advise.survey.worker_stages", lambda *_: ((decode,), ()))
    monkeypatch.setattr("audioaug.advise.survey.decoder_stages", lambda bench, stages: (other,) * len(stages))
    survey = survey_of(model(THREE), 1.0)
    survey._measure_workers()
    assert survey.report.stages == (decode, other)


def test_on_a_gpu_all_draws_that_are_timed_have_run_before(monkeypatch) -> None:
    ran = []
    monkeypatch.setattr(DeviceChain, "augment", lambda self, wave, prepared: (ran.append(id(prepared)) or wave, None))
    job = SimpleNamespace(chain=Chain([ops.Gain(p=1.0)], 16000), least_cut=0)
    [work] = device_works(job, torch.zeros(2, 1, 100)).values()
    assert not ran
    [work] = device_works(job, torch.zeros(2, 1, 100, device="meta")).values()
    warmed = [*ran]
    assert len(set(warmed)) == DRAWS
    for _ in range(DRAWS):
        work()
    assert ran == 2 * warmed
