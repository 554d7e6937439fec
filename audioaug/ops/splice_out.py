"""SpliceOut: short segments cut out, the ends joined by a crossfade.

Shapes: B examples, C channels, T samples, N splices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FRACTION,
    HOST_ONLY,
    INTS,
    NOISE_KEY,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    ParamType,
    Timeline,
    TorchAudiomentationsOp,
    arguments,
)
from audioaug.dsp.splices import splice
from audioaug.dsp.twister import torch_words
from audioaug.dsp.windows import BLOCK
from audioaug.ops._torch_reference import TorchReference

FADE_STEP = BLOCK
"""Crossfades are computed for a multiple of this many samples, so that shapes repeat."""


@dataclass(frozen=True, kw_only=True)
class SpliceOut(Op):
    """Fold random segments to half their width, one after the other: the second half fades in over the first.

    The example keeps its length: silence follows where it has become shorter.

    Args:
        num_time_intervals: how many segments, 1 to 1000.
        max_width: upper limit of their widths, in milliseconds; the audio loses at most half of each.
        p: probability of applying it, 0 to 1.

    Reference: ``torch_audiomentations.SpliceOut`` (Jain et al., "SpliceOut: A Simple and Efficient Audio Augmentation
    Method", 2021). Deviation: it raises where a segment is not shorter than what is left of the example; here such
    a segment is left out.
    """

    num_time_intervals: int = 8
    max_width: float = 400

    contract = Contract.exact(rtol=1e-6)
    capabilities = Capabilities(needs_length=True, changes_timing=True, library="torch_audiomentations")
    limits = {"num_time_intervals": (1, 1000), "max_width": (1.0, float("inf"))}

    @property
    def param_types(self) -> dict[str, ParamType]:
        draws = dict.fromkeys(self.distributions(), HOST_ONLY)
        return {**draws, **dict.fromkeys(("widths", "halves", "starts"), INTS), "widest": STATIC}

    def distributions(self) -> dict[str, Distribution]:
        return {**{f"width_share_{n}": FRACTION for n in range(self.num_time_intervals)}, "start_key": NOISE_KEY}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        share_NB = np.asarray([draw[f"width_share_{n}"] for n in range(self.num_time_intervals)])
        width_NB, start_NB = self._splices(share_NB, draw["start_key"], batch.lengths, batch.sample_rate)
        widest = -(-int(_half(width_NB.max())) // FADE_STEP) * FADE_STEP
        widths = width_NB.T.ravel()
        return {**draw, "widths": widths, "halves": _half(widths), "starts": start_NB.T.ravel(), "widest": widest}

    def _splices(
        self, share_NB: NDArray[np.float64], key_B: NDArray[np.float64], length_B: NDArray[np.int64], sample_rate: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the width and start of every segment; the starts as torch draws them from the seed ``key``."""
        width_NB = (share_NB * int(sample_rate * self.max_width * 1e-3)).astype(np.int64)
        starts_NB = np.empty_like(width_NB)  # how many starts there are to draw from
        for width_B, starts_B in zip(width_NB, starts_NB):
            width_B *= width_B < length_B
            starts_B[:] = length_B - width_B
            length_B = length_B - _half(width_B)
        return width_NB, torch_words(key_B, self.num_time_intervals).T % np.maximum(starts_NB, 1)

    def _splices_of_one(self, params: Params, length: int, sample_rate: int) -> list[tuple[int, int]]:
        share_N1 = np.asarray([[params[f"width_share_{n}"]] for n in range(self.num_time_intervals)])
        splices = self._splices(share_N1, np.asarray([params["start_key"]]), np.asarray([length]), sample_rate)
        return list(zip(*(numbers_N1[:, 0].tolist() for numbers_N1 in splices)))

    def reference(self) -> Any:
        return TorchReference(self.name, arguments(self))

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        splices = self._splices_of_one(params, samples.shape[-1], sample_rate)
        return {f"splice_lengths_{n}": width for n, (width, _) in enumerate(splices)}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(int(params["start_key"]))
            return super().apply_reference(reference, params, samples, sample_rate)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        half_BN, start_BN = (params[name].view(len(x_BCT), -1) for name in ("halves", "starts"))
        return splice(x_BCT, start_BN, half_BN, params["widest"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        joined, left = Timeline.identity(length), length
        for width, start in self._splices_of_one(params, length, sample_rate):
            half = _half(width)
            seam = start + half / 2  # where both segments are as loud
            pieces = [(0, seam, 0, seam), (seam + half, left, seam, left - half)]
            joined, left = joined.then(Timeline(pieces, left, left - half)), left - half
        return joined.then(Timeline.identity(left, length))

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "SpliceOut",
            lambda x_BCT, params, batch: {"splice_lengths": params["widths"].view(len(x_BCT), -1).clone()},
            {"num_time_intervals": self.num_time_intervals, "max_width": self.max_width},
            differs="it draws the places of the splices itself",
        )


def _half(width: Any) -> Any:
    """Return how much shorter a splice makes the audio: half of its width, which the reference makes even."""
    return (width + 1) // 2
