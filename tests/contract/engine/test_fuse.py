"""Neighbouring gains and filters, fused: the same result as one by one."""

import numpy as np
import pytest
import torch

from audioaug import Chain, build_device, ops
from audioaug.core import Linear, Op
from audioaug.engine import Prepared, Preparer
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.ops.fused import Fused

RATE, BATCH, SAMPLES = 16000, 24, 12000
LENGTHS = [SAMPLES - 400 * row for row in range(BATCH)]
LINEAR: list[Op] = [
    ops.Gain(p=0.7),
    ops.SevenBandParametricEQ(p=0.5),
    ops.PolarityInversion(p=0.5),
    ops.HighPassFilter(p=0.5),
    ops.BandStopFilter(p=0.5),
    ops.LowShelfFilter(p=0.6),
]


def batch(channels: int = 2) -> torch.Tensor:
    """Return noise on a constant, which shows whether the filters start in their steady state."""
    noise = torch.randn(BATCH, channels, SAMPLES, generator=torch.Generator().manual_seed(1))
    return noise * 0.1 + torch.linspace(-0.5, 0.5, BATCH)[:, None, None]


def both(chain: Chain, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor, Prepared]:
    """Return what the chain makes of a batch, fused and one by one, and the fused steps."""
    module, draws, x = build_device(chain, seed=0), chain.draw(np.arange(BATCH), epoch, 3), batch()
    prepared = module.prepare(draws, tuple(x.shape), lengths=LENGTHS)
    fused, _ = module.augment(x, prepared)
    module.prepare = Preparer(chain, 0, fused=False)
    single, _ = module.augment(x, module.prepare(draws, tuple(x.shape), lengths=LENGTHS))
    return fused, single, prepared


@pytest.mark.parametrize("epoch", range(3))
@pytest.mark.parametrize("count", [2, 4, 6])
def test_fused_neighbours_match_one_by_one(count: int, epoch: int) -> None:
    fused, single, prepared = both(Chain(LINEAR[:count], RATE), epoch)
    assert len(prepared.steps) == 1
    assert (fused - single).abs().max() < 3e-6 * single.abs().max()


def test_fused_gains_are_one_multiplication() -> None:
    fused, single, prepared = both(Chain([ops.Gain(p=0.5), ops.Identity(p=1.0), ops.PolarityInversion(p=0.5)], RATE))
    assert [set(dict(step.params)) for step in prepared.steps] == [{"factor"}]
    assert torch.allclose(fused, single, rtol=1e-6) and not torch.equal(fused, batch())


def test_nonlinear_and_zero_phase_ops_are_not_fused() -> None:
    parts: list[Op] = [ops.LowPassFilter(zero_phase=True), ops.Gain(), ops.Clip(), ops.Gain(), ops.OneOf([ops.Gain()])]
    assert not any(isinstance(part.op, Fused) for part in Preparer(Chain(parts, RATE), 0).parts)


def test_repr_joins_fused_ops_with_plus() -> None:
    chain = Chain([ops.Gain(), ops.HighPassFilter(), ops.Clip(), ops.Gain(), ops.PolarityInversion()], RATE)
    assert "Gain + HighPassFilter, Clip, Gain + PolarityInversion" in repr(build_device(chain))
    assert "Clip, Gain + PolarityInversion" in repr(build_device(chain, start=2))


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_torch_audiomentations_fuses_nothing() -> None:
    chain = Chain([ops.Gain(), ops.PolarityInversion()], RATE)
    assert "+" not in repr(build_device(chain, engine="torch-audiomentations"))


def test_cut_between_neighbours_prevents_fusing() -> None:
    assert "HighPassFilter, engine" in repr(build_device(Chain([ops.Gain(), ops.HighPassFilter()], RATE), start=1))


def test_no_step_where_no_op_applies() -> None:
    fused, single, prepared = both(Chain([ops.Gain(p=0.0), ops.HighPassFilter(p=0.0)], RATE))
    assert not prepared.steps and torch.equal(fused, single)


def test_examples_no_fused_op_touches_are_unchanged() -> None:
    chain = Chain([ops.Gain(p=0.1), ops.HighPassFilter(p=0.1)], RATE)
    fused, _, _ = both(chain)
    draws, inside = chain.draw(np.arange(BATCH), 0, 3), torch.arange(SAMPLES) < torch.tensor(LENGTHS)[:, None, None]
    untouched = np.all([draws[f"{node.path}:apply"] == 0 for node in chain.nodes], axis=0)
    assert 0 < untouched.sum() < BATCH
    assert torch.equal(fused[untouched], torch.where(inside, batch(), 0.0)[untouched])


@pytest.mark.parametrize("fault", ["factor", "sections"])
def test_fused_op_that_omits_a_member_is_detected(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: the comparison above can fail."""
    kind = ops.Gain if fault == "factor" else ops.HighPassFilter
    chain = Chain([ops.Gain(p=1.0), ops.HighPassFilter(p=1.0), ops.LowShelfFilter(p=1.0)], RATE)
    module, draws, x = build_device(chain, seed=0), chain.draw(np.arange(BATCH), 0, 3), batch()
    right, _ = module.augment(x, module.prepare(draws, tuple(x.shape)))
    monkeypatch.setattr(kind, "linear", lambda self, draw, batch: Linear())
    wrong, _ = module.augment(x, module.prepare(draws, tuple(x.shape)))
    assert (wrong - right).abs().max() > 1e-3
