"""SpliceOut: short segments cut out, the ends joined by a crossfade.

Shapes: B examples, C channels, T samples, N splices; R rows, a channel of an example each.
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
from audioaug.core.draws import torch_words
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run_rows
from audioaug.dsp.windows import BLOCK, read, without, write
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
        return {**draws, "widths": INTS, "starts": INTS, "widest": STATIC}

    def distributions(self) -> dict[str, Distribution]:
        return {**{f"width_share_{n}": FRACTION for n in range(self.num_time_intervals)}, "start_key": NOISE_KEY}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        share_BN = np.stack([draw[f"width_share_{n}"] for n in range(self.num_time_intervals)], axis=1)
        width_BN, start_BN = self._splices(share_BN, draw["start_key"], batch.lengths, batch.sample_rate)
        widest = -(-int(_half(width_BN.max())) // FADE_STEP) * FADE_STEP
        return {**draw, "widths": width_BN.ravel(), "starts": start_BN.ravel(), "widest": widest}

    def _splices(
        self, share_BN: NDArray[np.float64], key_B: NDArray[np.float64], length_B: NDArray[np.int64], sample_rate: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the width and start of every segment; the starts as torch draws them from the seed ``key``."""
        width_BN = np.floor(share_BN * int(sample_rate * self.max_width * 1e-3)).astype(np.int64)
        start_BN, left_B = torch_words(key_B, self.num_time_intervals), length_B.copy()
        for width_B, start_B in zip(width_BN.T, start_BN.T):
            width_B[width_B >= left_B] = 0
            start_B %= np.maximum(left_B - width_B, 1)
            left_B -= _half(width_B)
        return width_BN, start_BN

    def _splices_of_one(self, params: Params, length: int, sample_rate: int) -> list[tuple[int, int]]:
        share_1N = np.asarray([[params[f"width_share_{n}"] for n in range(self.num_time_intervals)]])
        splices = self._splices(share_1N, np.asarray([params["start_key"]]), np.asarray([length]), sample_rate)
        return list(zip(*(numbers_1N[0].tolist() for numbers_1N in splices)))

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
        width_BN, start_BN = (params[name].view(len(x_BCT), -1) for name in ("widths", "starts"))
        return _splice(x_BCT, start_BN, _half(width_BN), params["widest"])

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


@primitive
def _splice(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    """Fold segments of ``2 * half`` samples, one after the other; no half is longer than ``widest``."""
    samples = x_BCT.shape[-1]
    # Into the silence at the end splices may reach.
    y_BCT = torch.nn.functional.pad(x_BCT, (0, widest + BLOCK + -samples % BLOCK))
    fade_W = torch.arange(widest, device=x_BCT.device)
    for half_B, start_B in zip(half_BN.unbind(dim=1), start_BN.unbind(dim=1)):
        # Both halves of a Hann window of 2 * half samples, which add up to 1: from 0 to 1, and 1 thereafter.
        into_BW = (fade_W / half_B[:, None].clamp(min=1)).clamp_(max=1.0)
        share_BW = into_BW.mul_(torch.pi / 2).sin_().square_()
        before_BCW, after_BCW = read(y_BCT, torch.stack([start_B, start_B + half_B], dim=1), widest).unbind(2)
        y_BCT = without(y_BCT, start_B, half_B)
        write(y_BCT, start_B, torch.lerp(before_BCW, after_BCW, share_BW[:, None]))
    return y_BCT[..., :samples]


@_splice.loop()
def _splice_by_loop(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    return run_rows(_splice_rows, x_BCT, start_BN, half_BN)


@loop
def _splice_rows(
    x_RT: Floats, start_BN: Integers, half_BN: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Fold segments of rows to half their width, one after the other; ``channels`` rows an example."""
    for row in range(first, last):
        _copy(x_RT[row], y_RT[row])
        for start, half in zip(start_BN[row // channels], half_BN[row // channels]):
            if half:
                _fold(y_RT[row, start:], half)


@loop
def _fold(y_T: Floats, half: int) -> None:
    """Fade the second ``half`` samples in over the first, and move up what follows."""
    # The fade is (1 - cos(t w)) / 2. Two cosines in a row give the next: cos((t + 1) w) = 2 cos(w) cos(t w) - ...
    before, now, turn = np.cos(np.pi / half), 1.0, 2 * np.cos(np.pi / half)
    for t in range(half):
        y_T[t] += (0.5 - 0.5 * now) * (y_T[half + t] - y_T[t])
        before, now = now, turn * now - before
    rest = len(y_T) - half
    for begin in range(half, rest, half):  # as much at a time as does not overlap
        end = min(begin + half, rest)
        _copy(y_T[begin + half : end + half], y_T[begin:end])
    y_T[rest:] = 0.0


@loop
def _copy(x_T: Floats, y_T: Floats) -> None:
    """Copy; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]
