"""Compose: several ops as one, in order or shuffled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from audioaug.core import FRACTION, Contract, Distribution, Op
from audioaug.core.params import FloatArray
from audioaug.ops import _containers


@dataclass(frozen=True)
class Compose(Op):
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

    contract = Contract.exact(rtol=0.0)

    def __post_init__(self) -> None:
        _containers.freeze(self)
        super().__post_init__()

    @property
    def children(self) -> tuple[Op, ...]:
        return tuple(self.transforms)

    def distributions(self) -> dict[str, Distribution]:
        return {f"key_{k}": FRACTION for k in range(len(self.transforms))} if self.shuffle else {}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.tile(np.arange(len(self.transforms)), (len(draw["apply"]), 1))
        return np.argsort(_containers.keys(self, draw), axis=1)
