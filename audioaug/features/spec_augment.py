"""SpecAugment: masks of time and frequency, and a warp of time, on batches of spectrograms, drawn by key.

It works in two steps. On the host, ``prepare`` turns draws into masks. On the device, ``augment`` applies them, and
never asks the device anything.

Shapes: B examples, C channels, F frequency bins, N frames.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Draws, Key
from audioaug.engine.checks import lengths_of, numbers_of
from audioaug.engine.stream import DrawStream
from audioaug.errors import DataError
from audioaug.features.policy import Policy, covered, warp_pieces
from audioaug.process import keep_some_freed_memory

_TYPES = {"int64": torch.int64, "float32": torch.float32, "int8": torch.int8, "bool": torch.bool}
_LIBRISPEECH = {"time_warp": 80, "frequency_mask_width": 27, "time_mask_width": 100, "time_mask_share": 1.0}
_ADAPTIVE = {"time_masks": 20, "time_masks_per_frame": 0.04, "time_mask_width": None, "time_mask_share": 0.04}
_SWITCHBOARD = {"time_warp": 40, "time_mask_width": 70, "time_mask_share": 0.2}


@dataclass(frozen=True)
class PreparedMasks:
    """What the device needs to know of one batch: its masks in one tensor of bytes, so one copy.

    ``layout``: the name, type and shape of each array in it. It depends on the policy and the batch's shape only, so
    that a CUDA graph of ``augment`` fits every batch of that shape.
    """

    numbers: torch.Tensor
    layout: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    def pin_memory(self) -> "PreparedMasks":
        """Return a copy in page-locked memory (called by torch's DataLoader)."""
        return replace(self, numbers=self.numbers.pin_memory())

    def to(self, device: torch.device) -> "PreparedMasks":
        """Return a copy on a device, without waiting for it; itself if it is there."""
        return replace(self, numbers=self.numbers.to(device, non_blocking=True))

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return views of the arrays, by name."""
        found, start = {}, 0
        for name, dtype, shape in self.layout:
            stop = start + dtype.itemsize * int(np.prod(shape))
            found[name] = self.numbers[start:stop].view(dtype).view(shape)
            start = stop
        return found


class SpecAugment(torch.nn.Module):
    """Mask time and frequency of spectrograms, and warp their time: SpecAugment, for use inside a model.

    Each example of a batch gets masks and a warp of its own, within its own length. In training mode it augments; in
    ``eval`` mode it returns its input. Warping comes first, then the masks; masks may overlap.

    With ``key`` and ``epoch``, the draws follow from seed, epoch, key and the number of the mask alone: the same in any
    batch, order, process and precision, on any device, and after resuming. Without ``key``, examples are numbered as
    they come, from 0 in each epoch. This repeats only with the same ``torch.manual_seed`` (or ``seed``), batches, rank
    and number of modules made before, and when resumed only from the start of an epoch whose number is given. Where new
    draws would be wrong, they are refused: under activation checkpointing, which runs a model twice, in ``torch.vmap``,
    and while a model in training mode is exported.

    The module has neither parameters nor buffers, and nothing in ``state_dict``: a model's checkpoint can be loaded
    with or without it. Two modules with one seed draw the same masks for a key: give them different seeds.

    The width of a mask is an integer from 0 to its maximum, both included, and its start one from 0 to the length minus
    the width, both included, each equally likely. In torchaudio's ``TimeMasking`` and ``FrequencyMasking``, they are
    real numbers, rounded down: no mask is as wide as the maximum, and none covers the last frame or bin. With
    ``iid_masks=True`` these are computed in the batch's own precision, on its device, and within its padded length.

    Time is warped piecewise linearly, and interpolated linearly between frames. A frame c from W + 1 to length - W - 2
    moves to c + w, with w from -W to W, all integers, included and equally likely; the first and the last frame stay
    where they are. Examples of less than 2 W + 3 frames are not warped.

    Gradients are those of what is kept: 0 where a mask lies, whether its value is a number or the mean, which counts as
    a constant.

    Args:
        time_masks: number of time masks.
        time_mask_width: maximum width of a time mask in frames (T in the paper); ``None`` for no limit but
            ``time_mask_share``.
        time_mask_share: maximum width of a time mask as a share of the example's length, 0 to 1 (p in the paper).
        time_masks_per_frame: of each example, only this many time masks per frame are used, rounded down, and
            ``time_masks`` at most; ``None`` for all.
        frequency_masks: number of frequency masks.
        frequency_mask_width: maximum width of a frequency mask in bins (F in the paper).
        time_warp: maximum shift in frames (W in the paper); 0 for no warp.
        mask_value: the value where a mask lies: a number that float32 holds, such as 0 or ``-inf``, or ``"mean"`` for
            the mean of each example over all bins and channels and its own length, after warping.
        seed: of draws by key, 0 by default; of other draws in place of ``torch.initial_seed()``.

    Raises:
        ChainError: an argument has another type, or is out of range.
        UsageError: the seed is not an integer.

    Reference: Park et al., "SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition"
    (Interspeech 2019). Warping with fixed ends, and numbers of masks by length: Park et al., "SpecAugment on Large
    Scale Datasets" (ICASSP 2020).
    """

    def __init__(
        self,
        *,
        time_masks: int = 2,
        time_mask_width: int | None = 100,
        time_mask_share: float = 1.0,
        time_masks_per_frame: float | None = None,
        frequency_masks: int = 2,
        frequency_mask_width: int = 27,
        time_warp: int = 0,
        mask_value: float | str = 0.0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.policy = Policy(
            time_masks=time_masks,
            time_mask_width=time_mask_width,
            time_mask_share=time_mask_share,
            time_masks_per_frame=time_masks_per_frame,
            frequency_masks=frequency_masks,
            frequency_mask_width=frequency_mask_width,
            time_warp=time_warp,
            mask_value=mask_value,
        )
        self.stream = DrawStream(self.policy, seed)
        self.seed = self.stream.seed or 0

    @classmethod
    def librispeech_basic(cls, **changes: Any) -> "SpecAugment":
        """Return the paper's policy LB: W=80, F=27, T=100, one mask each; ``changes`` are arguments of the class."""
        return cls(**{**_LIBRISPEECH, "frequency_masks": 1, "time_masks": 1, **changes})

    @classmethod
    def librispeech_double(cls, **changes: Any) -> "SpecAugment":
        """Return the paper's policy LD: W=80, F=27, T=100, two masks each; ``changes`` are arguments of the class."""
        return cls(**{**_LIBRISPEECH, "frequency_masks": 2, "time_masks": 2, **changes})

    @classmethod
    def librispeech_adaptive(cls, **changes: Any) -> "SpecAugment":
        """Return LD with time masks that follow the length: one in 25 frames, 20 at the most, each of up to 4 % of it.

        Source: arXiv 1912.05533, p_M = p_S = 0.04. ``changes`` as above.
        """
        return cls(**{**_LIBRISPEECH, **_ADAPTIVE, "frequency_masks": 2, **changes})

    @classmethod
    def switchboard_mild(cls, **changes: Any) -> "SpecAugment":
        """Return the paper's policy SM: W=40, F=15, T=70, p=0.2, two masks each; ``changes`` as above."""
        return cls(**{**_SWITCHBOARD, "frequency_mask_width": 15, **changes})

    @classmethod
    def switchboard_strong(cls, **changes: Any) -> "SpecAugment":
        """Return the paper's policy SS: W=40, F=27, T=70, p=0.2, two masks each; ``changes`` as above."""
        return cls(**{**_SWITCHBOARD, "frequency_mask_width": 27, **changes})

    def forward(
        self,
        x: torch.Tensor,
        lengths: torch.Tensor | Sequence[int] | None = None,
        draws: Draws | None = None,
        key: torch.Tensor | Sequence[Key] | None = None,
        epoch: int = 0,
    ) -> torch.Tensor:
        """Augment a batch: with new draws at every call, unless ``key`` or ``draws`` is given.

        Args:
            x: (B, F, N) or (B, C, F, N), floating point, on any device. Channels share their masks.
            lengths: of the examples, integers in frames, if the batch is padded; on the CPU (a CUDA tensor makes it
                wait).
            draws: for these B examples, instead of drawing here: of ``policy.draw``.
            key: of each example: numbers in the dataset, (B,), or a list of B integers, strings or bytes; on the CPU,
                like the lengths.
            epoch: which pass over the dataset this is: in another epoch, a key has other masks. Without ``key``,
                another epoch starts a new sequence of draws.

        Shape:
            returns the shape, type and device of x; x is not changed. What lies past the end of an example stays.

        Raises:
            DataError: x is not a batch of spectrograms; draws, lengths or keys are not for B examples; lengths are not
                integers, or keys are something else than integers, strings and bytes.
            UsageError: the epoch is not an integer, or new draws would be wrong here.
        """
        if not self.training:
            return x
        arguments = x, lengths, draws, key, epoch
        if "torch._dynamo" in sys.modules:  # torch.compile imports it
            from audioaug.engine.uncompiled import uncompiled

            y: torch.Tensor = uncompiled(self._augmented, *arguments)
            return y
        return self._augmented(*arguments)

    def _augmented(
        self,
        x: torch.Tensor,
        lengths: torch.Tensor | Sequence[int] | None,
        draws: Draws | None,
        key: torch.Tensor | Sequence[Key] | None,
        epoch: int,
    ) -> torch.Tensor:
        _check(x)
        if draws is None and key is not None:
            draws = self.policy.draw(numbers_of(key, len(x)), epoch, self.seed)
        elif draws is None:
            draws = self.stream.draw(len(x), epoch)
        prepared = self.prepare(draws, tuple(x.shape), lengths)
        return self.augment(x, prepared.pin_memory() if x.is_cuda else prepared)

    def prepare(
        self, draws: Draws, shape: tuple[int, ...], lengths: torch.Tensor | Sequence[int] | None = None
    ) -> PreparedMasks:
        """Turn draws into masks for a batch of that shape, on the host. See ``forward`` for the arguments."""
        batch, bins, frames = shape[0], shape[-2], shape[-1]
        if len(draws) != batch:
            raise DataError(f"There are draws for {len(draws)} examples, but the batch has {batch}.")
        length_B = lengths_of(lengths, batch, frames, "frames")
        is_outside_BN = np.arange(frames) >= length_B[:, None]
        arrays: dict[str, NDArray[Any]] = {}  # those of 8 bytes a number first, so that each starts at a multiple
        if self.policy.time_warp:
            arrays["edge"], arrays["piece"] = warp_pieces(length_B - 1, *self.policy.warps(draws, length_B))
        if self.policy.mask_value == "mean":
            channels = int(np.prod(shape[1:-2]))
            arrays["scale"] = (1 / (channels * bins * length_B).clip(min=1)).astype(np.float32)
            arrays["outside"] = is_outside_BN
        arrays["bins"] = covered(*self.policy.frequency_spans(draws, bins), bins).astype(np.int8)
        arrays["frames"] = is_outside_BN.astype(np.int8) - covered(*self.policy.time_spans(draws, length_B), frames)
        layout = tuple((name, _TYPES[array.dtype.name], array.shape) for name, array in arrays.items())
        numbers = np.concatenate([array.view(np.uint8).ravel() for array in arrays.values()])
        return PreparedMasks(torch.from_numpy(numbers), layout)

    def augment(self, x: torch.Tensor, prepared: PreparedMasks) -> torch.Tensor:
        """Warp and mask a batch as prepared, on its device, whatever the training mode."""
        if not x.numel():
            return x
        if x.device.type == "cpu":
            keep_some_freed_memory()
        arrays = prepared.to(x.device).arrays()
        # Frames are -1 in a mask, 0 elsewhere and 1 past the end, where bins, 1 in a mask and else 0, do not count.
        is_masked_BFN = arrays["bins"][:, :, None] > arrays["frames"][:, None]
        if self.policy.time_warp:
            x = warped(x, arrays["edge"], arrays["piece"])
        value: Any = self.policy.mask_value
        if value == "mean":
            value = _mean(x, arrays["outside"], arrays["scale"])
        return torch.where(_with_channels(is_masked_BFN, x), value, x)

    def extra_repr(self) -> str:
        """List the arguments, for ``print(module)``."""
        return str(self.policy)


def warped(x: torch.Tensor, edge_B2: torch.Tensor, piece_4B3: torch.Tensor) -> torch.Tensor:
    """Warp time by the pieces of ``warp_pieces``. Frames are integers, so that they are the same on every device.

    Shape: x is (B, F, N) or (B, C, F, N), floating point.
    """
    frame_N = torch.arange(x.shape[-1], device=x.device)
    number_BN = (frame_N[:, None] > edge_B2[:, None]).sum(dim=-1)  # of the piece that each frame lies in
    start_BN, source_BN, run_BN, whole_BN = piece_4B3.gather(2, number_BN.expand(4, -1, -1))
    # `whole` frames of the piece come from `run` frames of x, so a step in it comes from run / whole.
    steps_BN = (frame_N - start_BN) * run_BN
    low_BN, rest_BN = steps_BN.div(whole_BN, rounding_mode="floor").add_(source_BN), steps_BN.remainder(whole_BN)
    dtype = _at_least_float32(x)
    low, high = (
        x.gather(-1, _with_channels(index_BN[:, None], x).expand(x.shape)).to(dtype)
        for index_BN in (low_BN, low_BN + (rest_BN > 0))
    )
    return torch.lerp(low, high, _with_channels((rest_BN.to(dtype) / whole_BN)[:, None], x)).to(x.dtype)


def _mean(x: torch.Tensor, outside_BN: torch.Tensor, scale_B: torch.Tensor) -> torch.Tensor:
    """Return the mean of each example within its length, a constant without a gradient, with as many axes as x."""
    with torch.no_grad():
        inside = x.masked_fill(_with_channels(outside_BN[:, None], x), 0.0)
        total_B = inside.flatten(1).sum(dim=1, dtype=_at_least_float32(x))
        mean_B = torch.mul(total_B, scale_B, out=torch.empty_like(scale_B, dtype=x.dtype))
    return mean_B.view(-1, *[1] * (x.ndim - 1))


def _at_least_float32(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _with_channels(array: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return an array (B, F, N) with an axis for channels if x has one."""
    return array if x.ndim == 3 else array[:, None]


def _check(x: Any) -> None:
    """Raise ``DataError`` if x is not a batch of spectrograms."""
    shapes = "(B, F, N) or (B, C, F, N)"
    if not isinstance(x, torch.Tensor):
        raise DataError(
            f"Expected a batch of spectrograms as a tensor of shape {shapes}, "
            f"got {type(x).__module__}.{type(x).__name__}.",
            "Convert it with torch.as_tensor(x).",
        )
    if x.ndim not in (3, 4) or not x.is_floating_point():
        raise DataError(
            f"Expected a batch of spectrograms as a float tensor of shape {shapes}, "
            f"got {x.dtype} of shape {tuple(x.shape)}."
        )
