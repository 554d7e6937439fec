"""Fade curves, as audiomentations uses them where it cuts or joins audio."""

import torch


def crossfade(position: torch.Tensor, length: "int | torch.Tensor", equal_energy: bool) -> torch.Tensor:
    """Return the gain of a fade-in at sample ``position`` of ``length`` samples: 0 before it, 1 behind it.

    Equal energy suits unrelated sounds, equal gain the same sound on both sides.

    Reference: Signalsmith Audio, "A cheap energy-preserving-ish crossfade" (2021); ``get_crossfade_mask_pair``.
    """
    last = max(length - 1, 1) if isinstance(length, int) else (length - 1).clamp(min=1)
    x = (position / last).clamp_(0.0, 1.0)
    bend = torch.addcmul(x, x, x, value=-1.0)
    return (bend * (1.4186 if equal_energy else -0.70912)).add_(1.0).mul_(bend).add_(x).square_()
