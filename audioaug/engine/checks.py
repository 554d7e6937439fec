"""Checks of what a build is given: clips, batches, channels, sample rates and lengths, the same for both builds.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Key, Node, key_numbers
from audioaug.core.chain import whole_hertz
from audioaug.errors import DataError, PlanError, did_you_mean

FLOATING = "Convert it: for 16-bit integers, divide it by 32768."


def check_engine(where: str, engine: str, known: Sequence[str]) -> None:
    """Raise ``PlanError`` if there is no such engine there."""
    if engine not in known:
        raise PlanError(f"There is no {where} engine {engine!r}.", did_you_mean(str(engine), known))


def checked(samples: Any) -> NDArray[np.float32]:
    """Return a clip as float32, (T,) or (C, T); raise ``DataError`` if it is none."""
    samples = np.asarray(samples)
    if samples.ndim not in (1, 2):
        raise DataError(
            f"A clip has shape {samples.shape} and type {samples.dtype}, but must be (T,) or (C, T).",
            "Pass its samples; in a Loader, audio_key names their field."
            if samples.ndim == 0
            else "Remove the other dimensions.",
        )
    if not np.issubdtype(samples.dtype, np.floating):
        raise DataError(f"A clip has type {samples.dtype}, but must be floating point.", FLOATING)
    if samples.ndim == 2:
        _check_layout("clip", samples.shape, "(C, T)")
    return samples.astype(np.float32, copy=False)


def as_batch(x: Any) -> torch.Tensor:
    """Return a batch (B, C, T) or (B, T) as (B, C, T); raise ``DataError`` if it is none."""
    if not isinstance(x, torch.Tensor):
        raise DataError(
            f"Expected a batch as a tensor of shape (B, T) or (B, C, T), got {type(x).__module__}.{type(x).__name__}.",
            "Convert it with torch.as_tensor(x).",
        )
    if x.is_nested or x.layout is not torch.strided or x.is_meta:
        kind = "nested" if x.is_nested else "meta" if x.is_meta else x.layout
        raise DataError(
            f"Expected a batch as a dense tensor of shape (B, T) or (B, C, T), got a {kind} tensor.",
            "Pad the clips, and give their lengths." if x.is_nested else "Convert it.",
        )
    if x.ndim not in (2, 3):
        raise DataError(f"A batch has shape {tuple(x.shape)}, but must be (B, T) or (B, C, T).")
    if not x.is_floating_point():
        raise DataError(f"A batch has type {x.dtype}, but must be floating point.", FLOATING)
    if x.ndim == 2:
        return x[:, None]
    _check_layout("batch", tuple(x.shape), "(B, C, T)")
    return x


def _check_layout(what: str, shape: tuple[int, ...], layout: str) -> None:
    if not shape[-2]:
        raise DataError(f"A {what} has shape {shape}, {layout}, but must have at least one channel.")
    if shape[-2] > 8 * max(1, shape[-1]):
        raise DataError(f"A {what} has shape {shape}: channels come first, {layout}.", "Transpose it.")


def check_channels(node: Node, channels: int) -> None:
    """Raise ``DataError`` if the op takes mono only and there are several channels."""
    if channels > 1 and not node.capabilities.multichannel:
        raise DataError(
            f"{node.op.name} takes mono audio only, but this clip has {channels} channels.", "Mix it down first."
        )


def rate_of(chain: Chain, sample_rate: int | None) -> int:
    """Return the sample rate in Hz, the chain's for ``None``; raise ``DataError`` if it is not a positive integer."""
    return chain.sample_rate if sample_rate is None else whole_hertz(sample_rate, "sample_rate", DataError)


def numbers_of(key: "torch.Tensor | Sequence[Key]", batch: int) -> NDArray[np.int64]:
    """Return the numbers of a batch's keys, (B,); raise ``DataError`` if they are none, or not one for each example."""
    numbers = key_numbers(key.numpy(force=True) if isinstance(key, torch.Tensor) else key)
    if len(numbers) != batch:
        raise DataError(f"There are {len(numbers)} keys, but the batch has {batch} examples.")
    return numbers


def lengths_of(
    lengths: "torch.Tensor | Sequence[int] | None", batch: int, samples: int, unit: str = "samples"
) -> NDArray[np.int64]:
    """Return a new array of the clips' lengths, (B,), those of full clips for ``None``; ``unit`` names it in errors.

    Raises:
        DataError: they are not integers from 0 to T, one for each example.
    """
    if lengths is None:
        return np.full(batch, samples, dtype=np.int64)
    try:
        tensor = torch.as_tensor(lengths, device="cpu")  # whatever the default device is
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"lengths must be {batch} numbers from 0 to {samples}, but they are {lengths!r}.") from None
    if tensor.shape == (batch,) and batch and (tensor.dtype == torch.bool or tensor.is_floating_point()):
        raise DataError(
            f"Expected lengths in {unit}, as integers from 0 to {samples}, got {tensor.dtype}: {tensor.tolist()}.",
            "Convert relative lengths, as SpeechBrain has them, with (lengths * x.shape[-1]).round().long().",
        )
    host = tensor.numpy().astype(np.int64)
    if host.shape != (batch,) or (batch and not (0 <= host.min() and host.max() <= samples)):
        raise DataError(f"lengths must be {batch} numbers from 0 to {samples}, but they are {tensor.tolist()}.")
    return host
