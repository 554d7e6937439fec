"""Speed beyond its contract: pitch and length, both ways to name rates, clips of any length, labels and gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Chain, Loader, Plan, Segments, build_device, ops
from audioaug.core import Draws
from audioaug.ops.speed import at_speed
from audioaug.verify import material
from audioaug.verify.replay import Clips, on_cpu, on_device, verify_op

RATE = 16000
KALDI = (0.9, 1.0, 1.1)
EDGE = 400
"""Samples in which a tone that begins with a jump rings."""


def fixed(rate: float) -> Chain:
    return Chain([ops.Speed(min_rate=rate, max_rate=rate)], RATE)


def both_builds(chain: Chain, clips: Clips, draws: Draws) -> tuple[Clips, Clips]:
    return on_cpu(chain, clips, RATE, draws), on_device(chain, clips, RATE, draws)


def tone(hz: float, samples: int) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(samples) / RATE)[None].astype(np.float32)


def rates_of(op: ops.Speed, count: int) -> np.ndarray:
    draws = Chain([op], RATE).draw(range(count))
    assert (draws["0:apply"] > 0).all()  # by default
    return draws["0:rate"]


@pytest.mark.parametrize("rate", [0.5, 0.9, 1.1, 1.37, 2.0])
def test_a_tone_is_higher_and_shorter_by_the_rate(rate: float) -> None:
    chain = fixed(rate)
    expected = tone(1000.0 * rate, int(RATE / rate + 0.5))
    for (built,) in both_builds(chain, [tone(1000.0, RATE)], chain.draw([0])):
        assert built.shape == expected.shape
        assert np.abs(built - expected)[:, EDGE:-EDGE].max() < 2e-4


def test_a_rate_of_one_leaves_a_clip_bit_for_bit_as_it_was() -> None:
    chain, clips = Chain([ops.Speed(rates=KALDI)], RATE), material.signals(RATE, 2)
    draws = chain.draw(range(len(clips)))
    same = draws["0:rate"] == 1.0
    assert 0 < same.sum() < len(clips)
    for results in both_builds(chain, clips, draws):
        assert [np.array_equal(x_CT, y_CT) for x_CT, y_CT in zip(clips, results)] == same.tolist()


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.1, 10.0), (0.8, 0.8), (0.9, 1.1), (10.0, 10.0)])
def test_lengths_are_rounded_to_the_nearest_sample(rates: tuple[float, float]) -> None:
    chain = Chain([ops.Speed(min_rate=rates[0], max_rate=rates[1])], RATE)
    lengths = [*range(1, 25), 999, 1000, 4097]
    draws = chain.draw(range(len(lengths)))
    expected = [int(length / rate + 0.5) for length, rate in zip(lengths, draws["0:rate"])]
    clips = [np.ones((1, length), np.float32) for length in lengths]
    for results in both_builds(chain, clips, draws):
        assert [y_CT.shape[-1] for y_CT in results] == expected
        assert all(np.isfinite(y_CT).all() for y_CT in results)


@pytest.mark.parametrize("shape", [(700,), (1, 700), (3, 700)])
def test_the_reference_keeps_the_form_of_a_clip(shape: tuple[int, ...]) -> None:
    assert at_speed(np.ones(shape, np.float32), RATE, 1.1).shape == (*shape[:-1], 636)


# Which rates


def test_by_default_every_example_gets_a_rate_of_its_own_within_a_tenth() -> None:
    rates = rates_of(ops.Speed(), 2000)
    assert 0.9 <= rates.min() < 0.901 and 1.099 < rates.max() < 1.1 and len(np.unique(rates)) == 2000


@pytest.mark.parametrize("rates", [KALDI, (0.9, 1.1, 1.0, 1.0, 1.0), (0.5,)])
def test_listed_rates_are_equally_likely(rates: tuple[float, ...]) -> None:
    drawn = rates_of(ops.Speed(rates=rates), 3000)
    shares = {rate: float((drawn == rate).mean()) for rate in set(rates)}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares == pytest.approx({rate: rates.count(rate) / len(rates) for rate in set(rates)}, abs=0.04)


@pytest.mark.parametrize("rates", [list(KALDI), np.asarray(KALDI), np.asarray(KALDI).tolist()])
def test_rates_may_be_given_as_any_list(rates: Sequence[float]) -> None:
    chain = Chain([ops.Speed(rates=rates)], RATE)
    assert chain == Chain([ops.Speed(rates=KALDI)], RATE) == Chain.from_dict(chain.to_dict())
    assert chain.to_dict()["transforms"] == [{"Speed": {"rates": [0.9, 1, 1.1]}}]


# What depends on it


@pytest.mark.parametrize("cut", [0, 1])
def test_labels_follow(cut: int) -> None:
    chain = fixed(1.25)
    dataset = [{"audio": np.zeros(length, np.float32), "word": [(0.2, 0.3, "go")]} for length in (8000, 6001)]
    loader = Loader(dataset, chain, Plan(cut=cut), batch_size=2, device="cpu", pad=True, targets={"word": Segments()})
    batch = next(iter(loader))
    assert batch["audio"].shape == (2, 6400) and batch["lengths"].tolist() == [6400, 4801]
    for words in batch["word"]:
        assert [(round(start, 6), round(end, 6), name) for start, end, name in words] == [(0.16, 0.24, "go")]


def test_gradients_flow_to_every_sample_that_is_heard() -> None:
    """The op is linear: its result, weighted, is the sum of its gradient times the samples."""
    module = build_device(Chain([ops.Speed(rates=KALDI)], RATE))
    x_BCT = torch.randn(6, 1, 900, requires_grad=True)
    draws = module.chain.draw(range(6))
    assert len(np.unique(draws["0:rate"])) == 3
    y_BCT = module(x_BCT, draws=draws)
    weighted_BC = (y_BCT * torch.randn_like(y_BCT)).sum(-1)
    (gradient_BCT,) = torch.autograd.grad(weighted_BC.sum(), x_BCT)
    torch.testing.assert_close((gradient_BCT * x_BCT).sum(-1), weighted_BC, rtol=1e-4, atol=1e-4)
    assert (gradient_BCT != 0).float().mean() > 0.99


@pytest.mark.parametrize("fault", ["none", "slower for faster", "rows", "late", "loud", "length"])
def test_a_fault_planted_in_the_op_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, resolved = ops.Speed.batched, ops.Speed.resolve

    def longer(self: Any, draw: Any, batch: Any) -> Any:
        params = resolved(self, draw, batch)
        return {**params, "length_out": params["length_out"] + 1}

    faults = {
        "slower for faster": lambda self, x, params, batch: honest(
            self, x, {**params, "ratio": (2**72 // params["ratio"].double()).long()}, batch
        ),
        "rows": lambda self, x, params, batch: honest(self, x, {**params, "ratio": params["ratio"].roll(1)}, batch),
        "late": lambda self, x, params, batch: honest(self, x, params, batch).roll(1, -1),
        "loud": lambda self, x, params, batch: honest(self, x, params, batch) * 1.002,
    }
    if fault == "length":
        monkeypatch.setattr(ops.Speed, "resolve", longer)
    monkeypatch.setattr(ops.Speed, "batched", faults.get(fault, honest))
    verdict = verify_op(ops.Speed, sample_rates=(RATE,))
    assert (verdict.status == "passed") is (fault == "none"), verdict
