"""Params: the types of the parameters that ops hand from the host to the device.

An op declares the type of every parameter that its ``resolve`` and ``measure`` return (``Op.param_types``). Arrays are
packed by type into two buffers, unless they stay on this CPU: one copy brings all parameters of a batch to the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.errors import ParamError

Params = Mapping[str, Any]
"""Parameters by name. On the host: arrays of B values; on the device: tensors of B values; plain ints stay ints."""

Buffer = Literal["floats", "ints"]
Span = tuple[Buffer, int, int]
"""Where a packed array lies: which buffer, start, stop."""

Pack = Callable[[NDArray[Any], Buffer], Span]
View = Callable[[Span], torch.Tensor]


class ParamType(ABC):
    """How a parameter gets from the host to the device."""

    optional: ClassVar[bool] = False
    """Whether ``resolve`` may leave the parameter out."""

    on_device: ClassVar[bool] = True
    """Whether it is sent to the device."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether a value has this type."""

    @abstractmethod
    def pack(self, value: Any, pack: Pack) -> Any:
        """Put the arrays in a value into the buffers; return what ``unpack`` needs, hashable: part of the layout."""

    @abstractmethod
    def unpack(self, packed: Any, view: View) -> Any:
        """Return the value with its arrays as tensors on the device."""


@dataclass(frozen=True)
class ArrayType(ParamType):
    """A one-dimensional array: often, but not always, one number for each example. A tensor on the device."""

    name: str
    buffer: Buffer
    kinds: str

    def __str__(self) -> str:
        return self.name

    def accepts(self, value: Any) -> bool:
        """Return whether it is such an array."""
        return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in self.kinds

    def pack(self, value: NDArray[Any], pack: Pack) -> Span:
        """Put it into its buffer."""
        return pack(value, self.buffer)

    def unpack(self, packed: Span, view: View) -> torch.Tensor:
        """Return its tensor."""
        return view(packed)


@dataclass(frozen=True)
class StaticType(ParamType):
    """An integer, or a tuple of integers, for the whole batch: what shapes and branches follow from."""

    def __str__(self) -> str:
        return "STATIC (an int or a tuple of ints)"

    def accepts(self, value: Any) -> bool:
        """Return whether it is an int or a tuple of ints."""
        return isinstance(value, int) or (isinstance(value, tuple) and set(map(type, value)) <= {int})

    def pack(self, value: Any, pack: Pack) -> Any:
        """Return the value."""
        return value

    def unpack(self, packed: Any, view: View) -> Any:
        """Return the value."""
        return packed


@dataclass(frozen=True)
class AbsentType(ParamType):
    """A parameter that is not packed, since only one of both sides has it."""

    name: str
    is_measured: bool = False
    on_device = False

    def __str__(self) -> str:
        return self.name

    @property
    def optional(self) -> bool:  # type: ignore[override]
        """Whether ``measure`` returns it, and not ``resolve``."""
        return self.is_measured

    def accepts(self, value: Any) -> bool:
        """Accept anything of ``resolve`` for the host, and nothing that ``measure`` has to return."""
        return not self.is_measured

    def pack(self, value: Any, pack: Pack) -> Any:
        """Refuse."""
        raise NotImplementedError

    def unpack(self, packed: Any, view: View) -> Any:
        """Refuse."""
        raise NotImplementedError


@dataclass(frozen=True)
class OptionalType(ParamType):
    """A parameter that may be left out."""

    type: ParamType
    optional = True

    def __str__(self) -> str:
        return f"optional {self.type}"

    def accepts(self, value: Any) -> bool:
        """Return whether it has the type."""
        return self.type.accepts(value)

    def pack(self, value: Any, pack: Pack) -> Any:
        """Pack it by its type."""
        return self.type.pack(value, pack)

    def unpack(self, packed: Any, view: View) -> Any:
        """Unpack it by its type."""
        return self.type.unpack(packed, view)


@dataclass(frozen=True)
class ListType(ParamType):
    """A list of dataclasses whose fields have types of their own."""

    kind: type
    fields: tuple[tuple[str, ParamType], ...]

    def __str__(self) -> str:
        return f"list of {self.kind.__name__}"

    def accepts(self, value: Any) -> bool:
        """Return whether it is a list of these dataclasses with fields of these types."""
        if not isinstance(value, list):
            return False
        for each in value:
            if not isinstance(each, self.kind):
                return False
            for name, kind in self.fields:
                if not kind.accepts(getattr(each, name)):
                    return False
        return True

    def pack(self, value: list[Any], pack: Pack) -> Any:
        """Pack them field by field."""
        return tuple([tuple([kind.pack(getattr(each, name), pack) for name, kind in self.fields]) for each in value])

    def unpack(self, packed: Any, view: View) -> list[Any]:
        """Return the dataclasses, with tensors for arrays."""
        return [
            self.kind(**{name: kind.unpack(part, view) for (name, kind), part in zip(self.fields, parts)})
            for parts in packed
        ]


FLOATS = ArrayType("FLOATS (a 1-D float array, float32 on the device)", "floats", "f")
INTS = ArrayType("INTS (a 1-D integer array, int64 on the device)", "ints", "iu")
DRAWN_INTS = ArrayType("DRAWN_INTS (whole numbers in a 1-D float array, int64 on the device)", "ints", "f")
"""Whole numbers as ``UniformInt`` draws them, keys of noise for instance."""

LENGTHS = ArrayType("LENGTHS (the new lengths in samples, a 1-D integer array, int64 on the device)", "ints", "iu")
"""Lengths of the clips after the op: with a parameter of this type, the op changes lengths."""

STATIC = StaticType()
HOST_ONLY = AbsentType("HOST_ONLY (not sent to the device)")
"""Anything that ``replay``, ``timeline`` or ``apply_reference`` needs and ``batched`` does not."""

MEASURED = AbsentType("MEASURED (returned by measure, not by resolve)", is_measured=True)
MEASURED_LENGTHS = AbsentType("MEASURED_LENGTHS (new lengths, returned by measure)", is_measured=True)


class Named(Protocol):
    """What has a name: an op."""

    @property
    def name(self) -> str:
        """What messages call it."""


def check_params(op: Named, types: Mapping[str, ParamType], params: Params) -> None:
    """Raise ``ParamError`` unless the parameters are those that the op declares, each of its type."""
    for name, kind in types.items():
        if name not in params:
            if not kind.optional:
                raise ParamError(f"{op.name}: resolve returns no {name!r}, which param_types declares as {kind}.")
        elif not kind.accepts(params[name]):
            got = _described(params[name])
            raise ParamError(f"{op.name}: resolve returns {name!r} as {got}, but param_types declares it as {kind}.")
    if params.keys() <= types.keys():
        return
    for name in params.keys() - types.keys():
        raise ParamError(
            f"{op.name}: resolve returns {name!r}, {_described(params[name])}, which param_types does not declare.",
            "Declare it, as HOST_ONLY if the device does not need it.",
        )


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray | torch.Tensor):
        return f"{type(value).__name__} of {value.dtype}, shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r:.40}"


def of_one(params: Params) -> dict[str, Any]:
    """Return one clip's own numbers from the parameters of a batch of one; plain numbers stay."""
    return {name: value[0].item() if isinstance(value, np.ndarray) else value for name, value in params.items()}
