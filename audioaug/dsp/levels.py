"""Levels: peaks, order statistics and decibels of rows.

Shapes: R rows, N values.
"""

import torch


def db_to_ratio(decibels: torch.Tensor) -> torch.Tensor:
    """Return the amplitude ratio of a level difference."""
    return torch.pow(10.0, decibels / 20.0)


def at_rank(ordered_RN: torch.Tensor, rank_R: torch.Tensor, fraction_R: torch.Tensor) -> torch.Tensor:
    """Return the value at rank ``rank + fraction`` of each sorted row, between neighbours linearly, as numpy does.

    Where the fraction is 0 the next value is not looked at; it may be infinite.
    """
    low_R = ordered_RN.gather(1, rank_R[:, None])[:, 0]
    high_R = ordered_RN.gather(1, (rank_R + 1).clamp(max=ordered_RN.shape[1] - 1)[:, None])[:, 0]
    return torch.where(fraction_R > 0, low_R + (high_R - low_R) * fraction_R, low_R)
