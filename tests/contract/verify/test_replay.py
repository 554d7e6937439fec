from dataclasses import dataclass, replace

import numpy as np
import pytest

from audioaug import ops
from audioaug.core import REGISTRY, Chain, Op
from audioaug.errors import ChainError
from audioaug.ops import _torch_reference
from audioaug.verify import material
from audioaug.verify import replay as replay_module
from audioaug.verify.replay import cases, replay, verify_op

RATE = 16000


def test_mono_and_stereo_signals_are_as_long_as_promised() -> None:
    for rate in (8000, 44100):
        mono, stereo = material.signals(rate), material.signals(rate, 2)
        assert [clip.shape[1] for clip in mono] == [clip.shape[1] for clip in stereo]
        assert min(clip.shape[1] for clip in mono) == rate // 10
        assert {len(clip) for clip in stereo} == {2}
        assert all(clip.dtype == np.float32 for clip in (*mono, *stereo))
        assert max(np.abs(clip).max() for clip in mono) > 2 > np.abs(mono[0]).max()
        assert not mono[3].any() and np.abs(mono[4]).max() == 1.0 and np.ptp(mono[5]) == 0.0


def test_equal_lengths_wraps_and_cuts() -> None:
    short, long = material.equal_lengths([np.ones((1, 3), np.float32), np.ones((1, 9), np.float32)], 5)
    assert short.tolist() == long.tolist() == [[1.0] * 5]


def test_every_switch_and_option_is_tried() -> None:
    found = list(material.variants(ops.Shift))
    assert {op.shift_unit for op in found} == {"fraction", "samples", "seconds"}
    assert {op.rollover for op in found} == {True, False}
    assert {op.shuffle for op in material.variants(ops.Compose)} == {True, False}
    assert {op.leave_length_unchanged for op in material.variants(ops.ApplyImpulseResponse)} == {True, False}


def test_the_cases_cover_rates_channels_padding_and_probability() -> None:
    every = list(cases(ops.Gain))
    assert {case.sample_rate for case in every} == {8000, 16000, 44100}
    assert {(case.channels, case.ragged) for case in every} == {(1, True), (1, False), (2, True), (2, False)}
    assert {case.op.p for case in every} == {0.5, 1.0}
    assert {case.channels for case in cases(ops.AddBackgroundNoise)} == {1}


def test_argument_unknown_to_verify_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audioaug.core.op.REGISTRY", dict(REGISTRY))  # the class below registers itself

    @dataclass(frozen=True, kw_only=True)
    class Unheard(Op):
        colour: str

    with pytest.raises(ChainError, match="'colour'"):
        verify_op(Unheard)


def test_an_op_whose_reference_is_not_installed_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_reference, "why_unavailable", lambda: "it cannot be imported.")
    for kind in (ops.Identity, ops.SpliceOut):
        verdict = verify_op(kind)
        assert verdict.status == "skipped" and "it cannot be imported" in verdict.reason


def test_a_cut_runs_the_first_ops_in_the_worker() -> None:
    chain = Chain([ops.Gain(p=1.0), ops.Mp3Compression(p=1.0), ops.Reverse(p=1.0)], RATE)
    clips = material.signals(RATE)[:2]
    dry, reference, built = replay(chain, clips, RATE, cut=2)
    assert dry is clips
    assert all(np.array_equal(a, b) for a, b in zip(reference, built))


def test_epochs_and_seeds_draw_anew() -> None:
    clips = material.signals(RATE)[:1]
    results = [
        replay(ops.Gain(p=1.0), clips, RATE, seed=seed, epoch=epoch).built[0]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert len({float(np.abs(result).max()) for result in results}) == 3


def test_intended_levels_are_the_reference_parameters() -> None:
    clips = material.signals(RATE)[:3]
    op = ops.AddGaussianNoise(min_amplitude=0.01, max_amplitude=0.01, p=1.0)
    assert replay_module.intended_levels(op, clips, RATE, seed=0) == [0.01] * 3


def test_op_whose_draws_repeat_every_epoch_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Chain.draw
    monkeypatch.setattr(Chain, "draw", lambda self, indices, epoch=0, seed=0: draw(self, indices, 0, seed))
    verdict = verify_op(ops.Gain, sample_rates=(RATE,))
    assert verdict.status == "failed" and "0:gain_db are the same in two epochs" in verdict.reason


class TestStock:
    """The torch-audiomentations engine is described, not judged."""

    def test_none(self) -> None:
        assert verify_op(ops.Clip, "torch-audiomentations").status == "none"
        assert verify_op(ops.Mp3Compression, "torch-audiomentations").status == "none"

    def test_unavailable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replay_module, "why_unavailable", lambda: "it does not import.")
        verdict = verify_op(ops.Gain, "torch-audiomentations")
        assert (verdict.status, verdict.reason) == ("unavailable", "it does not import.")

    def test_same_and_differs(self) -> None:
        pytest.importorskip("torchaudio")
        pytest.importorskip("torch_audiomentations", exc_type=ImportError)
        assert verify_op(ops.Gain, "torch-audiomentations", sample_rates=(RATE,)).status == "same"
        shift = verify_op(ops.Shift, "torch-audiomentations", sample_rates=(RATE,))
        assert shift.status == "differs"
        assert shift.reason.startswith("no fade at the stitch; clip ")
        reverse = verify_op(ops.Reverse, "torch-audiomentations", sample_rates=(RATE,))
        assert "in padded batches only" in reverse.reason

    def test_one_that_raises_differs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch_audiomentations", exc_type=ImportError)
        broken = replace(ops.Gain().torch_audiomentations(), arguments={"no_such_argument": 1})
        monkeypatch.setattr(ops.Gain, "torch_audiomentations", lambda self: broken)
        verdict = verify_op(ops.Gain, "torch-audiomentations", sample_rates=(RATE,))
        assert verdict.status == "differs" and "raises TypeError" in verdict.reason
