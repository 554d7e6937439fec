"""Custom: a transform taken as it is, because you have written it, or part of it. In the workers only."""

import copy
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.core import NOISE_KEY, Capabilities, Contract, Distribution, Op, Params
from audioaug.core.draws import legacy_generator
from audioaug.core.op import plain
from audioaug.errors import ChainError
from audioaug.ops import _code

GENERATORS: dict[type, Callable[[int], Any]] = {
    np.random.Generator: np.random.default_rng,
    np.random.RandomState: legacy_generator,
    random.Random: random.Random,
}
NO_DECLARATION = ("p", "parameters", "are_parameters_frozen")


@dataclass(frozen=True, kw_only=True)
class Custom(Op, registry="custom"):
    """Run a copy of an audiomentations transform, which draws its parameters itself; the coin is tossed for it.

    It is meant for subclasses that you write, and for transforms that hold your code (``noise_transform``).

    Whatever it draws depends on seed, epoch and key only: before each clip the global generators of Python, numpy and
    torch are seeded, and the generators among its own attributes are made anew. (One that it makes while it runs,
    unseeded, is out of reach.)

    Args:
        transform: an instance of ``audiomentations``' ``BaseWaveformTransform``.
        p: probability of applying it, 0 to 1; the transform's own by default.

    Raises:
        ChainError: it is not such an instance, or cannot be copied. Also if a chain is to be written to a file, which
            cannot hold it.
    """

    transform: Any
    p: float = None  # type: ignore[assignment]

    contract = Contract.cpu_only("your own code runs only in the workers.")

    def __post_init__(self) -> None:
        from audiomentations.core.transforms_interface import BaseWaveformTransform

        if not isinstance(self.transform, BaseWaveformTransform):
            raise ChainError(
                f"Custom: transform is {self.transform!r}, but it must be an instance of "
                "audiomentations.core.transforms_interface.BaseWaveformTransform."
            )
        try:
            object.__setattr__(self, "transform", _copied(self.transform))
        except Exception as error:
            raise ChainError(
                f"{self.name}: your transform cannot be copied ({type(error).__name__}: {error}).",
                "Build what cannot be copied on first use, not in __init__.",
            ) from None
        object.__setattr__(self, "p", self.transform.p if self.p is None else self.p)
        super().__post_init__()

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Custom) and type(self.transform) is type(other.transform)
        return same and self.to_dict(for_file=False) == other.to_dict(for_file=False)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self.transform), self.p))

    @property
    def name(self) -> str:
        """The name of your class."""
        return type(self.transform).__name__

    def distributions(self) -> dict[str, Distribution]:
        return {"code_key": NOISE_KEY}

    def reference(self) -> Any:
        reference = _copied(self.transform)
        reference.unfreeze_parameters()
        reference.p = self.p
        return reference

    @property
    def capabilities(self) -> Capabilities:
        """Those that your class states."""
        return Capabilities(multichannel=self.transform.supports_multichannel)

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        return {"transform": reference, "p": reference.p}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        reference.unfreeze_parameters()
        reference.p = 1.0
        for place, (name, value) in enumerate(list(vars(reference).items())):
            for kind, make in GENERATORS.items():
                if isinstance(value, kind):
                    setattr(reference, name, make(int(params["code_key"]) + place))
        return _code.run(reference, self.name, samples, sample_rate, params["code_key"])

    def to_dict(self, for_file: bool = True) -> dict[str, Any]:
        if for_file:
            raise ChainError(
                f"{self.name}: your own transform is an object in memory, which a file cannot hold.",
                "Keep the chain in Python, or make it a function for Lambda, which a file can name.",
            )
        public = {k: v for k, v in vars(self.transform).items() if k not in NO_DECLARATION and not k.startswith("_")}
        return {self.name: plain({**{k: _code.described(v) for k, v in sorted(public.items())}, "p": self.p})}


def _copied(transform: Any) -> Any:
    """Return a deep copy, with ``None`` for what does not survive that (audiomentations' caches)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = copy.deepcopy(transform)
    for lost in vars(transform).keys() - vars(twin).keys():
        setattr(twin, lost, None)
    return twin
