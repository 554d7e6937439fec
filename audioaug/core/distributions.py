"""Distributions: what an op's random parameters come from, as functions of a uniform number.

A distribution holds no state. It maps ``u`` in [0, 1), drawn elsewhere, to a value, for a whole array. Every
range accepts low == high. All values are float64; integers up to 2**53 are exact.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from audioaug.core.params import DRAWN_INTS, FLOATS, ParamType

FloatArray = NDArray[np.float64]


class Distribution(ABC):
    """Maps uniform numbers in [0, 1) to values, element by element.

    ``param_type`` is the type of the values as parameters, for ops that hand their draws to the device unchanged.
    """

    param_type: ClassVar[ParamType] = FLOATS

    @abstractmethod
    def from_uniform(self, u: FloatArray) -> FloatArray:
        """Return one value for each uniform number; same shape."""


@dataclass(frozen=True)
class Uniform(Distribution):
    """Real numbers, evenly spread over [low, high)."""

    low: float
    high: float

    def from_uniform(self, u: FloatArray) -> FloatArray:
        """Scale to the range."""
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True)
class MelUniform(Distribution):
    """Frequencies in hertz, evenly spread over [low, high) on the mel scale (O'Shaughnessy's formula)."""

    low: float
    high: float

    def from_uniform(self, u: FloatArray) -> FloatArray:
        """Scale to the range in mels, then convert to hertz."""
        low, high = (2595.0 * np.log10(1.0 + f / 700.0) for f in (self.low, self.high))
        return 700.0 * (10.0 ** ((low + u * (high - low)) / 2595.0) - 1.0)


@dataclass(frozen=True)
class UniformInt(Distribution):
    """Whole numbers from low to high, both included, equally likely."""

    low: int
    high: int
    param_type = DRAWN_INTS

    def from_uniform(self, u: FloatArray) -> FloatArray:
        """Scale to the range and round down."""
        return self.low + np.floor(u * (self.high - self.low + 1))


@dataclass(frozen=True)
class Choice(Distribution):
    """One of the given numbers, equally likely unless there are weights (which need not add up to one)."""

    options: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    def from_uniform(self, u: FloatArray) -> FloatArray:
        """Look the options up by cumulated weight."""
        cumulated = np.cumsum(self.weights or (1.0,) * len(self.options))
        place = np.searchsorted(cumulated / cumulated[-1], u, side="right")
        return np.asarray(self.options, dtype=np.float64)[np.minimum(place, len(self.options) - 1)]


FRACTION = Uniform(0.0, 1.0)
"""A share of something whose size is known only when the clip is: ``resolve`` turns it into samples."""

NOISE_KEY = UniformInt(0, 2**52 - 1)
"""The seed of one example's noise: everything else about the noise follows from it."""
