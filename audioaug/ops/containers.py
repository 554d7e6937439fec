"""Compose, OneOf, SomeOf: several ops as one; all, one or some of them, for each example."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.core import FRACTION, Choice, Container, Distribution, Op, UniformInt
from audioaug.core.distributions import FloatArray
from audioaug.core.fields import checked_weights, plain_scalar
from audioaug.core.op import plain
from audioaug.errors import ChainError


def sort_keys(container: Container) -> dict[str, Distribution]:
    """Return a distribution for each child: a random number to sort it by."""
    return {f"key_{k}": FRACTION for k in range(len(container.transforms))}


def sorted_by_keys(container: Container, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
    """Return the children in the order of their random numbers, (B, children)."""
    return np.argsort(np.stack([draw[name] for name in sort_keys(container)], axis=1), axis=1)


@dataclass(frozen=True)
class Compose(Container):
    """Apply all ops, each with its own probability.

    Args:
        transforms: the ops, at least one.
        p: probability of applying any of them, 0 to 1.
        shuffle: in a random order for each example.

    Reference: ``audiomentations.Compose``.
    """

    transforms: Sequence[Op]
    p: float = field(default=1.0, kw_only=True)
    shuffle: bool = field(default=False, kw_only=True)

    def distributions(self) -> dict[str, Distribution]:
        return sort_keys(self) if self.shuffle else {}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.tile(np.arange(len(self.transforms)), (len(draw["apply"]), 1))
        return sorted_by_keys(self, draw)


@dataclass(frozen=True)
class OneOf(Container):
    """Pick one op for each example and apply it with its own probability.

    Args:
        transforms: the ops to pick from, at least one.
        p: probability of picking any, 0 to 1.
        weights: how likely each op is, relative to the others; equally by default.

    Reference: ``audiomentations.OneOf``.
    """

    transforms: Sequence[Op]
    p: float = field(default=1.0, kw_only=True)
    weights: Sequence[float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None:
            weights = checked_weights(self.name, self.weights, self.transforms, "transforms")
            object.__setattr__(self, "weights", weights)

    def distributions(self) -> dict[str, Distribution]:
        options = tuple(float(k) for k in range(len(self.transforms)))
        return {"pick": Choice(options, tuple(self.weights) if self.weights else None)}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        return draw["pick"].astype(np.int64)[:, None]

    def to_dict(self, for_file: bool = True) -> dict[str, Any]:
        """Return the declaration; for hashes, with weights that add up to 1, as audiomentations keeps them."""
        [(name, declared)] = super().to_dict(for_file).items()
        if self.weights is not None and not for_file:
            declared["weights"] = plain([round(weight / sum(self.weights), 12) for weight in self.weights])
        return {name: declared}

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        cumulated = reference.sampler.cdf  # the reference keeps its weights only like this
        weights = None if cumulated is None else np.diff(cumulated, prepend=0.0).tolist()
        return {"transforms": reference.transforms, "p": reference.p, "weights": weights}


@dataclass(frozen=True)
class SomeOf(Container):
    """Pick a number of ops for each example and apply them in their given order, each with its own probability.

    Args:
        num_transforms: how many to pick: a number, or (least, most), where most may be ``None`` for all.
        transforms: the ops to pick from.
        p: probability of picking any, 0 to 1.

    Reference: ``audiomentations.SomeOf``.
    """

    num_transforms: int | tuple[int, int | None]
    transforms: Sequence[Op]
    p: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        given = self.num_transforms
        counts = tuple(map(plain_scalar, given)) if isinstance(given, list | tuple) else plain_scalar(given)
        object.__setattr__(self, "num_transforms", counts)
        super().__post_init__()
        counts = self.num_transforms if isinstance(self.num_transforms, tuple) else (self.num_transforms,) * 2
        if len(counts) != 2 or type(counts[0]) is not int or type(counts[1]) not in (int, type(None)):
            raise ChainError(
                f"SomeOf: num_transforms is {self.num_transforms!r}, but it must be a whole number or (least, most)."
            )
        least, most = self._bounds
        if least > most >= 0 and counts[1] is not None:
            raise ChainError(f"SomeOf: num_transforms is {counts}, but the least must not be greater than the most.")
        if not 0 <= least <= most <= len(self.transforms):
            raise ChainError(
                f"SomeOf: num_transforms is {self.num_transforms}, but it must lie within 0 .. {len(self.transforms)}."
            )

    @property
    def _bounds(self) -> tuple[int, int]:
        least, most = (self.num_transforms,) * 2 if isinstance(self.num_transforms, int) else self.num_transforms
        return least, len(self.transforms) if most is None else most

    def distributions(self) -> dict[str, Distribution]:
        return {"count": UniformInt(*self._bounds), **sort_keys(self)}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        # The ops with the `count` smallest keys are in; slot k holds op k or nothing, which keeps the given order.
        rank = np.argsort(sorted_by_keys(self, draw), axis=1)
        return np.where(rank < draw["count"][:, None], np.arange(len(self.transforms)), -1)
