"""The four ops whose reference is torch-audiomentations: what the generic tests do not say of them."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from audioaug import build_cpu, build_device, ops
from audioaug.core import BatchInfo, Chain, Op
from audioaug.core.params import of_one
from audioaug.decide.shortlist import all_candidates
from audioaug.errors import ChainError, PlanError, UsageError
from audioaug.ops import _torch_reference
from audioaug.ops._torch_reference import why_unavailable
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay, verify_op
from tests.helpers.planted_reports import planted_report

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

RATE = 16000
MIX = ops.Mix(p=1.0)
OURS = ("Identity", "Mix", "ShuffleChannels", "SpliceOut")


# All


@pytest.mark.parametrize("name", OURS)
def test_missing_library_is_one_clear_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_reference, "why_unavailable", lambda: "it cannot be imported.")
    monkeypatch.setattr(_torch_reference, "how_to_install", lambda: "Install torch 2.11.0 with torchaudio 2.11.0.")
    op: Op = getattr(ops, name)(p=1.0)
    with pytest.raises(UsageError) as caught:
        op.reference()
    assert str(caught.value) == (
        f"{name} is a transform of torch-audiomentations, and it cannot be imported. "
        "Install torch 2.11.0 with torchaudio 2.11.0."
    )
    build_device(Chain([op], RATE))(torch.ones(2, 2, 9))  # which needs no reference


@pytest.mark.parametrize(
    ("spec", "said"),
    [(None, "Install audioaug[torch-audiomentations]."), (object(), "Install torch 2.11.0 with torchaudio 2.11.0.")],
)
def test_the_extra_is_named_if_the_library_is_not_installed(spec, said, monkeypatch):
    monkeypatch.setattr(_torch_reference.importlib.util, "find_spec", lambda name: spec)
    assert _torch_reference.how_to_install() == said


def test_library_transforms_are_not_taken_for_audiomentations() -> None:
    with pytest.raises(ChainError, match="Identity is not a transform of audiomentations"):
        Chain.from_audiomentations([ops.Identity().reference().transform], RATE)


# ShuffleChannels


def test_every_order_of_the_channels_is_equally_likely() -> None:
    op = ops.ShuffleChannels(p=1.0)
    chain, host = Chain([op], RATE), BatchInfo(RATE, np.full(6000, 8), channels=3)
    orders = op.resolve({"order_key": chain.draw(range(6000))["0:order_key"]}, host)["orders"].reshape(-1, 3)
    counts = [int((orders == order).all(axis=1).sum()) for order in itertools.permutations(range(3))]
    assert sum(counts) == 6000 and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_shuffling_in_a_worker_leaves_the_clip_alone() -> None:
    samples = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    before, worker = samples.copy(), build_cpu(Chain([ops.ShuffleChannels(p=1.0)], RATE))
    results = [worker(samples, key=index) for index in range(8)]
    assert np.array_equal(samples, before) and not all(np.array_equal(result, before) for result in results)
    assert all(sorted(map(tuple, result)) == sorted(map(tuple, before)) for result in results)


# SpliceOut


def spliced(samples: int, **changes: Any) -> tuple[ops.SpliceOut, dict[str, Any]]:
    op = ops.SpliceOut(p=1.0, **changes)
    chain = Chain([op], RATE)
    draw = {name: chain.draw(range(200))[f"0:{name}"] for name in chain.nodes[0].distributions}
    return op, dict(op.resolve(draw, BatchInfo(RATE, np.full(200, samples))))


def test_a_splice_that_does_not_fit_is_left_out() -> None:
    op, params = spliced(5000)
    widths = params["widths"].reshape(-1, 8)
    wanted = np.floor(np.stack([params[f"width_share_{n}"] for n in range(8)], axis=1) * 6400)
    for width_N, wanted_N in zip(widths, wanted):
        left = 5000
        for width, asked in zip(width_N, wanted_N):
            assert width == (asked if asked < left else 0)
            left -= (width + 1) // 2
    assert (widths == 0).any() and (widths > 0).any()
    reference = op.reference()
    reference.parameters = {"should_apply": True, **{f"splice_lengths_{n}": 6000 for n in range(8)}}
    with pytest.raises(RuntimeError, match="from"):  # the library itself
        reference(np.zeros(5000, np.float32), RATE)


def test_the_audio_gets_shorter_by_half_of_every_splice() -> None:
    op, params = spliced(40000, num_time_intervals=3, max_width=100)
    x = torch.ones(200, 1, 40000)
    y = build_device(Chain([op], RATE))(x, draws=Chain([op], RATE).draw(range(200)))
    lost = ((params["widths"].reshape(-1, 3) + 1) // 2).sum(axis=1)
    for row, silence in enumerate(lost.tolist()):
        assert not y[row, 0, 40000 - silence :].any()
        assert torch.allclose(y[row, 0, : 40000 - silence], torch.tensor(1.0))  # the crossfade keeps a constant


def test_seam_of_a_splice_is_in_the_middle_of_its_crossfade() -> None:
    op, params = spliced(40000, num_time_intervals=1)
    for row in range(20):
        own = of_one({name: value[[row]] if isinstance(value, np.ndarray) else value for name, value in params.items()})
        start, half = own["starts"], (own["widths"] + 1) // 2
        (_, cut_at, _, seam), (goes_on_at, *_) = op.timeline(own, 40000, RATE).pieces[:2]
        assert [cut_at, seam, goes_on_at] == pytest.approx([start + half / 2, start + half / 2, start + 1.5 * half])


def test_splicing_uses_no_global_generator() -> None:
    before, worker = torch.get_rng_state(), build_cpu(Chain([ops.SpliceOut(p=1.0)], RATE))
    samples = material.signals(RATE)[0][0]
    first = worker(samples, key=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert np.array_equal(worker(samples, key=0), first)


# Mix


def test_a_batch_is_mixed_as_the_library_mixes_its_touched_rows() -> None:
    chain = Chain([ops.Mix(p=0.6)], RATE)
    clips = material.equal_lengths(material.signals(RATE, 2), 6000)
    draws = chain.draw(range(8), seed=4)
    touched = np.flatnonzero(draws["0:apply"])
    assert 2 < len(touched) < 8
    x_BCT = torch.from_numpy(np.stack(clips))
    parameters = {
        "snr_in_db": torch.from_numpy(draws["0:snr_in_db"][touched]).float(),
        "sample_idx": torch.from_numpy((draws["0:partner_share"][touched] * len(touched)).astype(int)),
    }
    expected = x_BCT.clone()
    expected[touched] = ops.Mix().reference().on_batch(x_BCT[touched], parameters, RATE)
    built = build_device(chain)(x_BCT, draws=draws)
    torch.testing.assert_close(built, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert len(set(parameters["sample_idx"].tolist())) > 1


def test_shares_of_mixed_examples_are_those_of_their_energies() -> None:
    chain, x_BCT = Chain([MIX], RATE), torch.randn(8, 1, 4000, generator=torch.Generator().manual_seed(0))
    draws = chain.draw(range(8))
    _, share_B = MIX.mixing(chain.nodes[0].drawn(draws, np.arange(8)), BatchInfo(RATE, np.full(8, 4000)))
    mixed_in_BCT = build_device(chain)(x_BCT, draws=draws) - x_BCT
    own_B, other_B = (each.square().sum(dim=(1, 2)).numpy() for each in (x_BCT, mixed_in_BCT))
    assert share_B == pytest.approx(own_B / (own_B + other_B), rel=1e-4)


def test_every_touched_example_is_an_equally_likely_partner() -> None:
    draws = Chain([MIX], RATE).draw(range(8000))
    partners = MIX.resolve(
        {name: draws[f"0:{name}"] for name in ("snr_in_db", "partner_share")}, BatchInfo(RATE, np.full(8000, 9))
    )["partner"]
    counts = np.histogram(partners, bins=8, range=(0, 8000))[0]
    assert partners.min() >= 0 and partners.max() < 8000 and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_samples_after_the_partners_end_are_not_mixed_in() -> None:
    chain = Chain([MIX], RATE)
    draws = chain.draw(range(8))
    lengths = [4000, 3000, 2000, 1000, 500, 100, 1, 0]
    x_BCT = torch.randn(8, 1, 4000, generator=torch.Generator().manual_seed(0))
    inside = torch.arange(4000) < torch.tensor(lengths)[:, None, None]
    clean = build_device(chain)(x_BCT * inside, lengths=lengths, draws=draws)
    assert torch.equal(build_device(chain)(x_BCT, lengths=lengths, draws=draws), clean)
    assert not clean[~inside].any() and not torch.equal(clean, x_BCT * inside)


def test_a_worker_cannot_mix() -> None:
    chain = Chain([ops.Gain(), MIX, ops.Reverse()], RATE)
    sentence = "Mix: it mixes examples of one batch, and a worker sees one example at a time."
    assert (chain.device_from, chain.worker_until) == (0, 1)
    assert [chain.why_not_cut(cut) for cut in range(4)] == ["", "", sentence, sentence]
    with pytest.raises(PlanError) as caught:
        build_cpu(chain)
    assert str(caught.value) == f"The chain cannot be cut at 3. {sentence} Cut at 0 to 1."
    assert build_cpu(chain, cut=1) and build_device(chain, start=1)
    assert Chain([ops.OneOf([ops.Gain(), MIX])], RATE).worker_until == 0


def test_a_chain_that_can_run_nowhere_is_refused() -> None:
    with pytest.raises(ChainError) as caught:
        Chain([MIX, ops.Mp3Compression()], RATE)
    assert str(caught.value) == (
        "This chain cannot be cut anywhere. Mp3Compression: LAME encodes one clip at a time, on the CPU. Mix: it mixes "
        "examples of one batch, and a worker sees one example at a time. Put what has to run in a worker before what "
        "has to run on the device."
    )
    assert Chain([ops.Mp3Compression(), MIX], RATE).worker_until == 1


def test_the_advisor_knows_where_it_cannot_be_cut() -> None:
    import dataclasses

    report = planted_report()
    facts = dataclasses.replace(report.chain, worker_until=1, worker_until_reason="Op1: it mixes")
    candidates = all_candidates(dataclasses.replace(report, chain=facts), (0, 2), pin_memory=False)
    impossible = {
        candidate.cut: (candidate.placement, candidate.reason)
        for candidate in candidates
        if candidate.status == "infeasible"
    }
    assert impossible == {2: ("split", "Op1: it mixes"), 3: ("cpu", "Op1: it mixes")}
    assert {candidate.cut for candidate in candidates if candidate.status != "infeasible"} == {0, 1}


@pytest.mark.parametrize("fault", ["partner", "level", "own level", "silence"])
def test_a_fault_in_the_mix_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ops.Mix.batched

    def faulty(self: ops.Mix, x: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
        if fault == "partner":
            params = {**params, "partner": params["partner"].roll(1)}
        if fault == "level":
            params = {**params, "ratio": params["ratio"] * 0.999}
        if fault == "own level":
            clips = type(clips)(clips.sample_rate, torch.full_like(clips.lengths_B, x.shape[-1]), clips.padded_to)
            return honest(self, x * 1.00001, params, clips)
        mixed = honest(self, x, params, clips)
        return mixed if fault != "silence" else torch.where(x.abs().amax(-1, keepdim=True) > 0, mixed, 1e-3)

    monkeypatch.setattr(ops.Mix, "batched", faulty)
    assert verify_op(ops.Mix, sample_rates=(RATE,)).status == "failed"


@pytest.mark.parametrize("samples", [1, 2, 37])
def test_the_shortest_clips_are_mixed_and_spliced_too(samples: int) -> None:
    clips = [np.random.default_rng(n).normal(0.0, 0.1, (2, samples + n)).astype(np.float32) for n in range(5)]
    for op in (MIX, ops.SpliceOut(p=1.0), ops.ShuffleChannels(p=1.0)):
        verdict = check(op.contract, *replay(op, clips, RATE))
        assert verdict.status == "passed", verdict.reason
