"""The limiter's first-order recursions against a loop over time."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from audioaug.dsp.limiter import BLOCK, decaying_max, decaying_sum

DECAYS = (1.0, 0.9999, 0.99, 0.5, 1e-3)
RECURSIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[float, float], float]]] = {
    "max": (decaying_max, max),
    "sum": (decaying_sum, lambda x, y: x + y),
}
LENGTHS = (1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK**2, 5000)


def looped(x_T: np.ndarray, decay: float, combine: Callable[[float, float], float]) -> list[float]:
    result, last = [], 0.0
    for x in x_T.tolist():
        last = combine(x, decay * last)
        result.append(last)
    return result


def logs() -> torch.Tensor:
    return torch.tensor([math.log(decay) for decay in DECAYS])


def sparse(samples: int, channels: int = 2) -> torch.Tensor:
    """Return levels that are not negative: noise with bursts, a row for each decay."""
    rng = np.random.default_rng(samples)
    level = np.where(rng.random((len(DECAYS), channels, samples)) < 0.01, 1.0, 0.01)
    return torch.from_numpy((rng.random(level.shape) * level).astype(np.float32))


@pytest.mark.parametrize("samples", LENGTHS)
@pytest.mark.parametrize("kind", RECURSIONS)
def test_it_is_the_loop(kind: str, samples: int) -> None:
    recursion, combine = RECURSIONS[kind]
    x_RCT = sparse(samples)
    y_RCT = recursion(x_RCT, logs())
    assert y_RCT.shape == x_RCT.shape
    for row, decay in enumerate(DECAYS):
        for channel in range(2):
            expected = looped(x_RCT[row, channel].double().numpy(), decay, combine)
            np.testing.assert_allclose(y_RCT[row, channel].double().numpy(), expected, rtol=2e-6)


@pytest.mark.parametrize("kind", RECURSIONS)
def test_an_impulse_decays_over_every_block(kind: str) -> None:
    x_RCT = torch.zeros(1, 1, 40 * BLOCK)
    x_RCT[..., 7] = 1.0
    y_T = RECURSIONS[kind][0](x_RCT, torch.tensor([math.log(0.999)]))[0, 0]
    assert not y_T[:7].any()
    torch.testing.assert_close(y_T[7:].double(), 0.999 ** torch.arange(len(y_T) - 7).double(), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("kind", RECURSIONS)
def test_later_samples_do_not_change_earlier_ones(kind: str) -> None:
    x_RCT = sparse(1000)
    changed = x_RCT.clone()
    changed[1, 0, 500:] = torch.nan
    before, after = (RECURSIONS[kind][0](x, logs()) for x in (x_RCT, changed))
    assert torch.equal(before[..., :500], after[..., :500])
    assert torch.equal(before[[0, 2, 3, 4]], after[[0, 2, 3, 4]]) and torch.equal(before[1, 1], after[1, 1])


@pytest.mark.parametrize("kind", RECURSIONS)
def test_the_input_is_not_changed_and_gradients_are_right(kind: str) -> None:
    x_RCT = sparse(200).double()
    before = x_RCT.clone()
    log_decay_R = logs().double()
    RECURSIONS[kind][0](x_RCT, log_decay_R)
    assert torch.equal(x_RCT, before)
    short = x_RCT[1:3, :, : BLOCK + 3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: RECURSIONS[kind][0](x, log_decay_R[1:3]), short, eps=1e-7, atol=1e-5)
