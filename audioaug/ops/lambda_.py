"""Lambda: your own function. In the workers, or on the device if it has a twin there.

Shapes: B examples, C channels, T samples.
"""

import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import NOISE_KEY, Contract, DeviceBatchInfo, Distribution, Op, Params
from audioaug.core.op import plain
from audioaug.errors import ChainError
from audioaug.ops import _code

Function = TypeVar("Function", bound=Callable[..., Any])


def on_device(twin: Callable[..., torch.Tensor]) -> Callable[[Function], Function]:
    """Declare a function's twin on the device: ``twin(x_BCT, sample_rate, **kwargs)``, for a whole batch.

    It must do to each example what the function does to that clip, whatever the others are, draw nothing, and leave
    shape and input as they are. Past the end of a shorter clip is silence.

    Examples:
        >>> @on_device(lambda x_BCT, sample_rate, ratio: x_BCT * ratio)
        ... def scaled(samples, sample_rate, ratio):
        ...     return samples * ratio
        >>> Lambda(transform=scaled, kwargs={"ratio": 0.5}).contract.kind
        'exact'
    """

    def declare(function: Function) -> Function:
        function.on_device = twin  # type: ignore[attr-defined]
        return function

    return declare


@dataclass(frozen=True, kw_only=True)
class Lambda(Op, imports_code=True):
    """Call your function with a clip.

    Whatever it draws from the global generators of Python, numpy and torch depends on seed, epoch and key only.

    Args:
        transform: ``f(samples, sample_rate, **kwargs)``, or where to import that from, as ``"module:name"``. It gets
            and returns a numpy array, (T,) or (C, T). A chain file with a Lambda is refused unless it is read with
            ``code=True``, since importing a module runs it.
        kwargs: keyword arguments for it.
        p: probability of applying it, 0 to 1.

    Raises:
        ChainError: there is no such function. Also if a chain is to be written to a file, and the function cannot be
            imported, or an argument is not a plain value.

    Reference: ``audiomentations.Lambda``, which takes the items of ``kwargs`` as keyword arguments. What the function
    does is not part of a chain's hash; its name is.
    """

    transform: Callable[..., Any] | str
    kwargs: Mapping[str, Any] | None = None

    contract = Contract.exact(rtol=1e-5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.transform, str):
            object.__setattr__(self, "transform", _imported(self.transform))
        if not callable(self.transform):
            raise ChainError(f"Lambda: transform is {self.transform!r}, but it must be a function or 'module:name'.")
        if not isinstance(self.kwargs, Mapping | None) or {"transform", "p"} & set(self.kwargs or ()):
            raise ChainError(
                f"Lambda: kwargs is {self.kwargs!r}, but it must be a mapping of names, other than transform and p."
            )
        object.__setattr__(self, "kwargs", dict(self.kwargs) if self.kwargs else None)
        if not callable(getattr(self.transform, "on_device", None)):
            reason = f"{_name(self.transform)} has no twin on the device (see {__name__}.on_device)."
            object.__setattr__(self, "contract", Contract.cpu_only(reason))

    def distributions(self) -> dict[str, Distribution]:
        return {"code_key": NOISE_KEY}

    def reference(self) -> Any:
        import audiomentations

        return audiomentations.Lambda(self.transform, p=self.p, **(self.kwargs or {}))

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        return {"transform": reference.transform, "kwargs": reference.kwargs, "p": reference.p}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        reference.parameters = {"should_apply": True}
        return _code.run(reference, f"Lambda: {_name(self.transform)}", samples, sample_rate, params["code_key"])

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        result: torch.Tensor = self.transform.on_device(x_BCT, batch.sample_rate, **(self.kwargs or {}))  # type: ignore[union-attr]
        return result.clone()  # the next op may write over it, and the function may have kept it

    def to_dict(self, for_file: bool = True) -> dict[str, Any]:
        if not for_file:
            kwargs = {name: _code.described(value) for name, value in (self.kwargs or {}).items()}
            return self._declared(_name(self.transform), kwargs)
        module, name = getattr(self.transform, "__module__", None), _name(self.transform)
        if module == "__main__" or not _is(self.transform, module, name):
            raise ChainError(
                f"Lambda: {name} cannot be imported by its name, so a file cannot hold it.",
                "Define it with def, at the top of a module, or keep the chain in Python.",
            )
        if not _code.is_plain(self.kwargs):
            raise ChainError(
                f"Lambda: kwargs is {self.kwargs!r}, of which a file cannot hold everything.",
                "Use numbers, text and lists, or keep the chain in Python.",
            )
        return self._declared(f"{module}:{name}", self.kwargs)

    def _declared(self, transform: str, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        [(name, declared)] = super().to_dict(for_file=False).items()
        return {name: {**declared, "transform": transform, **({"kwargs": plain(kwargs)} if kwargs else {})}}


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ChainError(
            f"Lambda: there is no function {place!r}: {str(error).rstrip('.')}.", "Write it as module:name."
        ) from None


def _is(function: Any, module: str | None, name: str) -> bool:
    """Return whether the function is what can be imported by that name."""
    try:
        return _imported(f"{module}:{name}") is function
    except ChainError:
        return False


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
