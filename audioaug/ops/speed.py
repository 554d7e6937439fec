"""Speed: faster or slower by a random rate, pitch and tempo together.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio import files
from audioaug.core import (
    HOST_ONLY,
    LENGTHS,
    BatchInfo,
    Capabilities,
    Choice,
    Contract,
    DeviceBatchInfo,
    Distribution,
    NumpyReference,
    Op,
    Params,
    Timeline,
    Uniform,
)
from audioaug.core.fields import real_number
from audioaug.dsp.resample import resample
from audioaug.errors import ChainError
from audioaug.ops.resample import RESAMPLING, resampling

SLOWEST, FASTEST = 0.1, 10.0
MIN_RATE, MAX_RATE = 0.9, 1.1
"""The default range: that of the three rates of Ko et al."""


def at_speed(samples: NDArray[np.float32], sample_rate: int, rate: float) -> NDArray[np.float32]:
    """Return one clip, (T,) or (C, T), played ``rate`` times as fast: what the op must equal."""
    y_CT = files.resample(np.atleast_2d(samples), rate, 1.0)
    length = int(lengths_at_speed(np.asarray(samples.shape[-1]), np.asarray(rate)))
    return files.fit(y_CT, length).reshape(*samples.shape[:-1], length)


def lengths_at_speed(lengths: NDArray[np.int64], rate: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how long clips are at these rates, in samples: ``length / rate``, rounded, halves up."""
    return np.floor(lengths / rate + 0.5).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Speed(Op):
    """Play an example faster or slower by resampling: pitch and tempo change together ("speed perturbation").

    At a rate of 1.1 it is ``round(length / 1.1)`` samples long, and ``12 * log2(1.1)`` = 1.65 semitones higher. At a
    rate of exactly 1 it stays as it is.

    By default any rate from 0.9 to 1.1 is drawn, since a new rate costs nothing here. ``rates=(0.9, 1.0, 1.1)`` is the
    recipe of Kaldi and Ko et al.; a rate that is listed twice is twice as likely.

    Args:
        min_rate: slowest rate, at least 0.1; below 1 is slower, longer and lower.
        max_rate: fastest rate, at most 10.
        rates: pick one of these, equally likely, instead of any rate from ``min_rate`` to ``max_rate``.
        p: probability of applying it, 0 to 1. By default 1, unlike other transforms: recipes put the rate 1 into
            ``rates`` for examples that stay as they are.

    Raises:
        ChainError: ``rates`` is no list of rates, or is given together with a range.

    Reference: soxr in high quality (``at_speed``, in this file), from which it differs as ``Resample`` does: in the top
    tenth below the lower of both Nyquist frequencies (more at rates from 0.235 to 0.25), and in the first few samples
    of a clip that begins with a jump. Ko et al., "Audio augmentation for speech recognition" (2015).
    """

    min_rate: float = MIN_RATE
    max_rate: float = MAX_RATE
    rates: Sequence[float] | None = None
    p: float = 1.0

    contract = Contract.spectral(rtol=5e-4, band=0.9, band_rtol=5e-2)
    limits = {"min_rate": (SLOWEST, float("inf")), "max_rate": (-float("inf"), FASTEST)}
    capabilities = Capabilities(needs_length=True, changes_length=True, changes_timing=True, library="soxr")
    param_types = {"rate": HOST_ONLY, "length_out": LENGTHS, **RESAMPLING}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rates is not None:
            object.__setattr__(self, "rates", self._checked_rates(self.rates))

    def _checked_rates(self, rates: Any) -> tuple[float, ...]:
        if (self.min_rate, self.max_rate) != (MIN_RATE, MAX_RATE):
            raise ChainError(
                f"Speed: both rates and a range, {self.min_rate} to {self.max_rate}, are given.",
                "Leave out rates, or min_rate and max_rate.",
            )
        listed = not isinstance(rates, str | bytes) and isinstance(rates, Sequence | np.ndarray)
        numbers = tuple(map(real_number, rates)) if listed else ()
        if not numbers or not all(SLOWEST <= rate <= FASTEST for rate in numbers):
            raise ChainError(
                f"Speed: rates is {rates!r}, but it must be a list of numbers between {SLOWEST:g} and {FASTEST:g}.",
                "For example (0.9, 1.0, 1.1).",
            )
        return numbers

    def distributions(self) -> dict[str, Distribution]:
        return {"rate": Uniform(self.min_rate, self.max_rate) if self.rates is None else Choice(tuple(self.rates))}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        rate, length = draw["rate"], lengths_at_speed(batch.lengths, draw["rate"])
        return {"rate": rate, "length_out": length, **resampling(rate, np.ones_like(rate), length)}

    def reference(self) -> Any:
        return NumpyReference(at_speed)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"rate": float(params["rate"])}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return resample(x_BCT, params["ratio"], params["samples_out"], batch.lengths_B, params["reach"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline([(0, length, 0, length / params["rate"])], length, params["length_out"])
