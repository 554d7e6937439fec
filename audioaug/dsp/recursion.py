"""First-order recursions over time, a coefficient each row, without a loop over time.

Shapes: R rows, C channels, T samples; K blocks of L samples.
"""

from collections.abc import Callable

import torch

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

BLOCK = 32


def decaying_max(x_RCT: torch.Tensor, log_decay_R: torch.Tensor) -> torch.Tensor:
    """Return ``y[t] = max(x[t], r * y[t - 1])``, a peak envelope, from ``y[-1] = 0``.

    Args:
        x_RCT: not negative.
        log_decay_R: the natural logarithm of each row's r: at most 0. (A float32 r near 1 would be too coarse.)
    """
    return _scan(x_RCT, log_decay_R[:, None, None], torch.maximum)


def decaying_sum(x_RCT: torch.Tensor, log_decay_R: torch.Tensor) -> torch.Tensor:
    """Return ``y[t] = x[t] + r * y[t - 1]`` from ``y[-1] = 0``; see ``decaying_max``."""
    return _scan(x_RCT, log_decay_R[:, None, None], torch.add)


# Both recursions combine all earlier x[s], decayed by r^(t - s), with an operation that does not mind their order and
# that r distributes over. So y over the last 2n samples is y over the last n, combined with r^n times the same n
# samples ago: a block of L samples takes log2(L) passes. The blocks' last values are a recursion themselves, with r^L,
# and what comes out of it decays into the next block. All factors are at most 1: nothing can overflow.


def _scan(x_RCT: torch.Tensor, log_decay_R11: torch.Tensor, combine: Combine) -> torch.Tensor:
    samples = x_RCT.shape[-1]
    if samples <= BLOCK:
        return _doubled(x_RCT, log_decay_R11, combine)
    blocks_RCKL = torch.nn.functional.pad(x_RCT, (0, -samples % BLOCK)).unflatten(-1, (-1, BLOCK))
    within_RCKL = _doubled(blocks_RCKL, log_decay_R11[..., None], combine)
    ends_RCK = _scan(within_RCKL[..., -1], log_decay_R11 * BLOCK, combine)
    before_RCK1 = torch.nn.functional.pad(ends_RCK[..., :-1], (1, 0))[..., None]
    decay_R11L = (log_decay_R11[..., None] * torch.arange(1, BLOCK + 1, device=x_RCT.device)).exp()
    return combine(within_RCKL, before_RCK1 * decay_R11L).flatten(-2)[..., :samples]


def _doubled(x: torch.Tensor, log_decay: torch.Tensor, combine: Combine) -> torch.Tensor:
    """Run the recursion over the last axis, of N samples, in log2(N) passes."""
    step = 1
    while step < x.shape[-1]:
        earlier = x[..., :-step] * (log_decay * step).exp()
        x = torch.cat([x[..., :step], combine(x[..., step:], earlier)], dim=-1)
        step *= 2
    return x
