"""SomeOf: several ops picked from more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from audioaug.core import FRACTION, Contract, Distribution, Op, UniformInt
from audioaug.core.params import FloatArray
from audioaug.errors import ChainError
from audioaug.ops import _containers


@dataclass(frozen=True)
class SomeOf(Op):
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

    contract = Contract.exact(rtol=0.0)

    def __post_init__(self) -> None:
        _containers.freeze(self)
        if isinstance(self.num_transforms, list):
            object.__setattr__(self, "num_transforms", tuple(self.num_transforms))
        super().__post_init__()
        counts = self.num_transforms if isinstance(self.num_transforms, tuple) else (self.num_transforms,) * 2
        if len(counts) != 2 or type(counts[0]) is not int or type(counts[1]) not in (int, type(None)):
            raise ChainError(
                f"SomeOf: num_transforms is {self.num_transforms!r}, but it must be a whole number or (least, most)."
            )
        least, most = self._bounds
        if not 0 <= least <= most <= len(self.transforms):
            raise ChainError(
                f"SomeOf: num_transforms is {self.num_transforms}, but it must lie within 0 .. {len(self.transforms)}."
            )

    @property
    def _bounds(self) -> tuple[int, int]:
        least, most = (self.num_transforms,) * 2 if isinstance(self.num_transforms, int) else self.num_transforms
        return least, len(self.transforms) if most is None else most

    @property
    def children(self) -> tuple[Op, ...]:
        return tuple(self.transforms)

    def distributions(self) -> dict[str, Distribution]:
        keys: dict[str, Distribution] = {f"key_{k}": FRACTION for k in range(len(self.transforms))}
        return {"count": UniformInt(*self._bounds), **keys}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        # The ops with the `count` smallest keys are in; slot k holds op k or nothing, which keeps the given order.
        rank = np.argsort(np.argsort(_containers.keys(self, draw), axis=1), axis=1)
        return np.where(rank < draw["count"][:, None], np.arange(len(self.transforms)), -1)
