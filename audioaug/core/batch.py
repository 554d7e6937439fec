"""What an op knows of the batch that it changes: on the host, where parameters are resolved, and on the device.

Shapes: B examples, C channels, T samples.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class BatchInfo:
    """What is known of a batch on the host. Lengths are in samples, one for each of the B examples."""

    sample_rate: int
    lengths: NDArray[np.int64]
    channels: int = 1


def inside(length_B: torch.Tensor, samples: int) -> torch.Tensor:
    """Return (B, 1, T), true inside each clip: segments of one row that is true, then false, which are fast to copy."""
    row = torch.arange(2 * samples, device=length_B.device) < samples
    return row.unfold(0, samples, 1).index_select(0, (samples - length_B).clamp_(0, samples))[:, None]


@dataclass(frozen=True)
class DeviceBatchInfo:
    """What is known of a batch on the device, besides the samples.

    ``padded_to`` is the batch's width, or ``None`` where every clip fills it, so that nothing needs masking.
    ``is_overwritable``: the samples are not needed any more once the op is done.
    """

    sample_rate: int
    lengths_B: torch.Tensor
    padded_to: int | None = None
    is_overwritable: bool = False

    @functools.cached_property
    def mask_B1T(self) -> torch.Tensor | None:
        """True inside each clip; ``None`` where every clip fills the batch."""
        return None if self.padded_to is None else inside(self.lengths_B, self.padded_to)

    def masked(self, x_BCT: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        """Return the batch with everything past the end of each clip replaced."""
        return x_BCT if self.mask_B1T is None else torch.where(self.mask_B1T, x_BCT, value)

    def out(self, x_BCT: torch.Tensor) -> torch.Tensor | None:
        """Return what torch calls ``out``: where a result as large as the samples may go, theirs where it can be."""
        return x_BCT if self.is_overwritable else None
