"""AddColorNoise in rare modes, and what its docstring says of the reference."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

from audioaug import ops
from audioaug.core import Chain
from audioaug.errors import ChainError
from audioaug.verify import material
from audioaug.verify.replay import Case, judge, replay

RATE = 16000
RARE: list[dict[str, Any]] = [
    {"n_fft": 2},
    {"n_fft": 3, "p_apply_a_weighting": 1.0},
    {"n_fft": 127},
    {"n_fft": 4096, "p_apply_a_weighting": 1.0},
    {"min_f_decay": -60.0, "max_f_decay": -50.0},
    {"min_f_decay": 0.0, "max_f_decay": 0.0},
    {"min_f_decay": 0.0, "max_f_decay": 0.0, "p_apply_a_weighting": 0.5},
    {"min_snr_db": -20.0, "max_snr_db": -20.0},
]


@pytest.mark.parametrize("ragged", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("arguments", RARE, ids=str)
def test_rare_arguments_keep_the_contract(arguments: dict[str, Any], ragged: bool) -> None:
    for channels in (1, 2):
        verdict = judge(Case(ops.AddColorNoise(**arguments, p=1.0), RATE, channels, ragged, 0), "batched", "cpu")
        assert verdict.status == "passed", verdict.reason


@pytest.mark.parametrize("n_fft", [0, 1])
def test_fewer_than_two_taps_are_refused(n_fft: int) -> None:
    with pytest.raises(ChainError, match=r"n_fft is [01], but it must be between 2"):
        ops.AddColorNoise(n_fft=n_fft)


def test_there_is_a_counterpart_only_without_weighting() -> None:
    assert ops.AddColorNoise().torch_audiomentations() is not None
    assert ops.AddColorNoise(p_apply_a_weighting=0.1).torch_audiomentations() is None


def test_the_phases_are_random() -> None:
    op = ops.AddColorNoise(n_fft=512)
    phases = np.stack([op.contract.numpy_draws(op, {"noise_key": key}, (100,))["uniform"] for key in range(50)])
    assert scipy.stats.kstest(phases.ravel(), scipy.stats.uniform(0, 2 * np.pi).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(phases) - np.eye(50)).max() < 5 / 257**0.5


@pytest.mark.parametrize("kind", ["reference", "built"])
def test_pink_noise_is_mostly_below_the_lowest_frequency_of_its_filter(kind: str) -> None:
    """What the docstring says of falling slopes, in both builds."""
    op = ops.AddColorNoise(min_f_decay=-3.0, max_f_decay=-3.0, min_snr_db=0.0, max_snr_db=0.0, p=1.0)
    clips = [np.tile(clip, 4) for clip in material.signals(RATE)[:3] * 4]
    replayed = replay(Chain([op], RATE), clips, RATE)
    shares = []
    for dry, wet in zip(clips, getattr(replayed, kind)):
        power = np.square(np.abs(np.fft.rfft((wet - dry)[0])))
        shares.append(power[: len(power) * 125 // 8000].sum() / power.sum())
    assert np.median(shares) > 0.5


def test_torch_audiomentations_engine_uses_the_drawn_slopes() -> None:
    pytest.importorskip("torch_audiomentations")
    op = ops.AddColorNoise(min_f_decay=4.0, max_f_decay=4.0, min_snr_db=0.0, max_snr_db=0.0, p=1.0)
    (dry,), _, (wet,) = replay(op, [material.signals(RATE)[7]], RATE, engine="torch-audiomentations")
    power = np.square(np.abs(np.fft.rfft((wet - dry)[0])))
    low, high = (power[first : 2 * first].mean() for first in (1000, 4000))
    assert 10 * np.log10(high / low) == pytest.approx(8.0, abs=0.8)
