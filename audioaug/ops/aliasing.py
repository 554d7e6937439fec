"""Aliasing: fewer samples without a filter, and back.

Shapes: B examples, C channels, T samples, N samples read; R rows, a channel of an example each.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    MelUniform,
    Op,
    Params,
)
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run_rows


@dataclass(frozen=True, kw_only=True)
class Aliasing(Op):
    """Read an example at evenly spaced places, as many as it would have at a drawn sample rate, and back again.

    Both ways the samples are joined by straight lines; what lies above half the drawn rate is folded down.

    Args:
        min_sample_rate: lowest rate, in Hz, at least 2.
        max_sample_rate: highest rate, in Hz, at least 2; one above the clip's dulls its treble only.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Aliasing``. Deviation: it raises where a clip is so short that not one sample is left;
    here one is.
    """

    min_sample_rate: int = 8000
    max_sample_rate: int = 30000

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(needs_length=True)
    param_types = {"new_sample_rate": HOST_ONLY, "left": INTS, "most_left": STATIC}
    limits = {"min_sample_rate": (2, float("inf")), "max_sample_rate": (2, float("inf"))}

    def distributions(self) -> dict[str, Distribution]:
        return {"new_sample_rate": MelUniform(self.min_sample_rate, self.max_sample_rate)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        left = np.rint(batch.lengths * draw["new_sample_rate"] / batch.sample_rate).astype(np.int64)
        return {**draw, "left": np.maximum(left, 1), "most_left": int(left.max(initial=1))}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        # A rate that leaves one sample leaves one also where it is raised to this.
        return {"new_sample_rate": max(params["new_sample_rate"], sample_rate / max(1, samples.shape[-1]))}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return _alias(x_BCT, batch.lengths_B, params["left"], params["most_left"], batch.out(x_BCT))


@primitive
def _alias(
    x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor, most_left: int, out: torch.Tensor | None
) -> torch.Tensor:
    """Read ``left`` places of each example, at most ``most_left``, and back again; a loop writes into ``out``."""
    return _read(_read(x_BCT, length_B, left_B, most_left), left_B, length_B, x_BCT.shape[-1])


@_alias.loop()
def _alias_by_loop(
    x_BCT: torch.Tensor, length_B: torch.Tensor, left_B: torch.Tensor, most_left: int, out: torch.Tensor | None
) -> torch.Tensor:
    return run_rows(_alias_rows, x_BCT, length_B, left_B, out=out)


def _read(x_BCT: torch.Tensor, have_B: torch.Tensor, want_B: torch.Tensor, size: int) -> torch.Tensor:
    """Read ``want`` places, evenly spaced from each row's first sample to its last; returns (B, C, size)."""
    # Place i lies at sample i * (have - 1) / (want - 1). In whole numbers: float32 is too coarse in a long clip.
    last_B1, steps_B1 = (have_B - 1).clamp(min=0)[:, None], (want_B - 1).clamp(min=1)[:, None]
    place_BN = torch.arange(size, device=x_BCT.device) * last_B1
    before_BN = place_BN // steps_B1
    fraction_BN = (place_BN - before_BN * steps_B1) / steps_B1
    low = _take(x_BCT, before_BN)
    return torch.lerp(low, _take(x_BCT, before_BN.add_(1)), fraction_BN[:, None])


def _take(x_BCT: torch.Tensor, index_BN: torch.Tensor) -> torch.Tensor:
    """Return the samples at these places; past the end of the row, where they have no weight, its last one."""
    index_BN = index_BN.clamp(max=x_BCT.shape[-1] - 1)
    return x_BCT.gather(-1, index_BN[:, None].expand(-1, x_BCT.shape[1], -1))


@loop
def _alias_rows(
    x_RT: Floats, length_B: Integers, left_B: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Read rows, ``channels`` of them an example. The result may be where x is."""
    some_N = np.empty(0, dtype=np.float32)
    for row in range(first, last):
        length, left = length_B[row // channels], left_B[row // channels]
        if len(some_N) < left:
            some_N = np.empty(left, dtype=np.float32)
        _read_row(x_RT[row], length, some_N, left)
        _read_row(some_N, left, y_RT[row], length)


@loop
def _read_row(x_N: Floats, have: int, y_N: Floats, want: int) -> None:
    """Read ``want`` places, evenly spaced from the first sample to the last one."""
    end = max(have - 1, 0)
    step = end / max(want - 1, 1)
    for n in range(want):
        place = n * step
        before = min(int(place), end)
        here, there = x_N[before], x_N[min(before + 1, end)]
        y_N[n] = here + (there - here) * np.float32(place - before)
