"""OneOf: one op picked from several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Choice, Contract, Distribution, Op
from audioaug.core.op import plain
from audioaug.core.params import FloatArray
from audioaug.errors import ChainError
from audioaug.ops import _containers


@dataclass(frozen=True)
class OneOf(Op):
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

    contract = Contract.exact(rtol=0.0)

    def __post_init__(self) -> None:
        _containers.freeze(self)
        super().__post_init__()
        if self.weights is not None:
            object.__setattr__(self, "weights", self._checked_weights())

    def _checked_weights(self) -> tuple[float, ...]:
        try:
            weights = tuple(float(weight) for weight in self.weights or ())
        except (TypeError, ValueError):
            weights = ()
        fit = len(weights) == len(self.transforms) and all(weight >= 0 for weight in weights)
        if not fit or not 0 < sum(weights) < float("inf"):
            raise ChainError(
                f"OneOf: weights is {self.weights!r}, but there must be a number for each of the "
                f"{len(self.transforms)} transforms, none negative, and not all zero."
            )
        return weights

    @property
    def children(self) -> tuple[Op, ...]:
        return tuple(self.transforms)

    def distributions(self) -> dict[str, Distribution]:
        options = tuple(float(k) for k in range(len(self.transforms)))
        return {"pick": Choice(options, tuple(self.weights) if self.weights else None)}

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        return draw["pick"].astype(np.int64)[:, None]

    def describe(self) -> dict[str, Any]:
        """Return the declaration with weights that add up to 1, as audiomentations keeps them: the same hash."""
        [(name, told)] = super().describe().items()
        if self.weights is not None:
            told["weights"] = plain([round(weight / sum(self.weights), 12) for weight in self.weights])
        return {name: told}

    @classmethod
    def arguments_of(cls, reference: Any) -> dict[str, Any]:
        cumulated = reference.sampler.cdf  # the reference keeps its weights only like this
        weights = None if cumulated is None else np.diff(cumulated, prepend=0.0).tolist()
        return {"transforms": reference.transforms, "p": reference.p, "weights": weights}
