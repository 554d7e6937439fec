"""Ops that make clips longer or shorter: what comes behind them sees the new lengths, wherever the chain is cut."""

import dataclasses

import numpy as np
import pytest
import torch

from audioaug import build_device, ops
from audioaug.core import (
    LENGTHS,
    REGISTRY,
    BatchInfo,
    Capabilities,
    Chain,
    Contract,
    Op,
    why_not_in_worker,
    why_not_on_device,
)
from audioaug.errors import PlanError
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay

RATE = 16000
SOUNDS = (0, 1, 2, 7)
LEAVES = [
    dataclasses.replace(next(material.variants(kind)), p=1.0)
    for _, kind in sorted(REGISTRY.items())
    if kind.contract.kind == "exact" and "transforms" not in kind.__dataclass_fields__
]
LEAVES = [op for op in LEAVES if not why_not_on_device(op) and not why_not_in_worker(op)]
FIRST = {
    "Trim": ops.Trim(top_db=20.0, p=0.8),
    "AdjustDuration": ops.AdjustDuration(duration_seconds=0.4, p=0.6),
    "RepeatPart": ops.RepeatPart(min_part_duration=0.05, max_part_duration=0.2, p=0.7),
}


def verdict_of(chain: Chain, cut: int = 0) -> str:
    clips = [material.signals(RATE)[place] for place in SOUNDS]
    tolerance = 2 * max(node.op.contract.tolerance for node in chain.nodes)
    return check(Contract.exact(tolerance), *replay(chain, clips, RATE, cut=cut, seed=4)).reason


@pytest.mark.parametrize("op", LEAVES, ids=lambda op: op.name)
@pytest.mark.parametrize("first", FIRST)
def test_every_op_works_after_one_that_changes_lengths(first: str, op: Op) -> None:
    chain = Chain([FIRST[first], op], RATE)
    if first == "Trim" and op.capabilities.needs_length:
        with pytest.raises(PlanError, match=f"{op.name} needs each clip's length on the host, but Trim finds it on"):
            build_device(chain)
        assert chain.device_from == 1
    else:
        assert verdict_of(chain) == ""


def test_wrong_needs_length_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.Shift, "capabilities", Capabilities(changes_timing=True))
    assert "off by" in verdict_of(Chain([FIRST["Trim"], ops.Shift(p=1.0)], RATE))


def test_in_a_container_any_op_may_come_before_any_other() -> None:
    inside = Chain([ops.SomeOf((1, None), [ops.Shift(), ops.Trim()]), ops.Gain()], RATE)
    assert inside.why_not_cut(0).startswith("Shift needs each clip's length")
    assert inside.device_from == 1
    assert Chain([ops.OneOf([ops.Gain(), ops.Trim()]), ops.Reverse()], RATE).device_from == 0


@pytest.mark.parametrize("channels", [1, 2])
def test_the_tail_of_a_room_is_kept_where_it_is_asked_for(channels: int) -> None:
    op = ops.ApplyImpulseResponse(ir_path=material.folder_at("rooms", RATE), leave_length_unchanged=False, p=0.7)
    clips = material.signals(RATE, channels)
    replayed = replay(op, clips, RATE, seed=2)
    assert check(op.contract, *replayed).status == "passed"
    assert max(len(y_CT.T) - len(x_CT.T) for x_CT, y_CT in zip(clips, replayed.reference)) > 1000


def test_some_rows_get_the_lengths_that_an_op_has_measured() -> None:
    module, x_BCT = build_device(Chain([ops.Trim(p=1.0), ops.Reverse(p=0.5)], RATE)), torch.randn(8, 1, 12000)
    for row in range(8):
        x_BCT[row, :, 12000 - 1000 * row :] = 0.0
    y_BCT, length_B = module(x_BCT, key=range(8), return_lengths=True)
    assert len(set(length_B.tolist())) > 4
    for row, length in enumerate(length_B.tolist()):
        alone_BCT, found_B = module(x_BCT[row : row + 1], key=[row], return_lengths=True)
        assert found_B.tolist() == [length] and torch.equal(alone_BCT[0, :, :length], y_BCT[row, :, :length])


def test_a_batch_is_as_wide_as_its_longest_clip() -> None:
    module = build_device(Chain([ops.AdjustDuration(duration_samples=700, p=0.5)], RATE))
    draws = module.chain.draw(np.arange(8))
    y_BCT, length_B = module(torch.ones(8, 1, 500), draws=draws, return_lengths=True)
    applied = draws["0:apply"] > 0
    assert applied.any() and not applied.all()
    assert y_BCT.shape == (8, 1, 700) and length_B.tolist() == np.where(applied, 700, 500).tolist()


@pytest.mark.parametrize(("mode", "enough"), [("insert", 1681), ("replace", 1680)])
def test_part_that_just_fits_is_repeated(mode: str, enough: int) -> None:
    """A part of 1600 samples, half a crossfade of 80 on either side, and one more sample where it is inserted."""
    op = ops.RepeatPart(min_part_duration=0.1, max_part_duration=0.1, mode=mode, p=1.0)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    clips = [rng.normal(0.0, 0.1, (1, samples)).astype(np.float32) for samples in (enough - 1, enough)]
    replayed = replay(op, clips, RATE)
    assert check(op.contract, *replayed).status == "passed"
    assert np.array_equal(replayed.built[0], clips[0]) and not np.array_equal(replayed.built[1], clips[1])


EVERY = [variant for _, kind in sorted(REGISTRY.items()) for variant in material.variants(kind) if not variant.children]


@pytest.mark.parametrize("op", EVERY, ids=lambda op: op.name)
def test_declared_length_changes_match_the_results(op: Op) -> None:
    node = Chain([op], RATE).nodes[0]
    params = node.resolve(Chain([op], RATE).draw(range(4)), np.arange(4), BatchInfo(RATE, np.full(4, RATE // 2), 1))
    resolved = any(node.param_types[name] == LENGTHS for name in params)
    assert op.capabilities.changes_length == (op.capabilities.length_depends_on_audio or resolved)


def test_there_are_ops_of_both_kinds() -> None:
    assert {op.name for op in EVERY if op.capabilities.changes_length} == {
        "AdjustDuration",
        "ApplyImpulseResponse",
        "LogMel",  # frames in place of samples
        "RepeatPart",
        "Resample",
        "RoomSimulator",
        "Speed",
        "TimeStretch",
        "Trim",
    }
    assert {op.name for op in EVERY if not op.capabilities.changes_length} > {
        "ApplyImpulseResponse",
        "RepeatPart",
        "Reverse",
        "TimeStretch",
    }
