"""Op: one augmentation, declared, with its four faces (draw, reference, batched, contract).

An op is a frozen dataclass whose fields are exactly the constructor arguments of the reference of the same name. A
subclass registers itself; it lies in one file of ``audioaug.ops`` and states

* ``distributions``: what its random parameters come from, and ``resolve``, where a parameter depends on the clips; then
  ``param_types`` declares what ``resolve`` returns;
* ``replay``: the same decisions in the reference's own ``parameters``;
* ``batched``: the same effect on a batch of tensors, on any device;
* ``contract``: how equal the two are; ``capabilities``: what else it does, such as moving time (``timeline``) or mixing
  examples (``mixing``), so that labels can follow;
* ``torch_audiomentations``: what that library has instead.

Shapes: B examples, C channels, T samples.
"""

import copy
import dataclasses
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core.batch import BatchInfo, DeviceBatchInfo
from audioaug.core.contract import Capabilities, Contract
from audioaug.core.distributions import Distribution, FloatArray
from audioaug.core.fields import check_fields, plain_scalar
from audioaug.core.params import LENGTHS, MEASURED_LENGTHS, Params, ParamType
from audioaug.core.timeline import Timeline
from audioaug.errors import ChainError, ClipRefused, ParamError, did_you_mean

REGISTRY: dict[str, type["Op"]] = {}
"""Every op, by the name it shares with its reference. Filled when ``audioaug.ops`` is imported."""

CUSTOM_OPS: dict[str, type["Op"]] = {}
"""Ops for transforms that users write, which no file can name and which have nothing to be compared with."""

IMPORTS_CODE: set[type["Op"]] = set()
"""Ops that an argument can make import code, which a chain file must not do unless the caller allows it."""

OPTIONAL_FACES = {
    "timeline": "changes_timing",
    "mixing": "mixes_examples",
    "measure": "length_depends_on_audio",
    "linear": "linear",
}
"""The capability that each of these methods is for."""


@dataclass(frozen=True)
class TorchAudiomentationsOp:
    """What torch-audiomentations has in an op's place.

    ``name`` and ``arguments`` build it; ``parameters(x_BCT, params, batch)`` is our draw in its own
    ``transform_parameters``; ``differs`` says in words how its effect differs from the reference ("" means: not).
    ``seed_from`` is the parameter that seeds torch's generators, for a transform that draws its noise from them.
    """

    name: str
    parameters: Callable[[torch.Tensor, Params, DeviceBatchInfo], dict[str, torch.Tensor]]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differs: str = ""
    seed_from: str | None = None


class Linear(NamedTuple):
    """What a linear op does: a factor for each example, and filters (``dsp.biquads.Sections``), run one by one.

    Each filter starts in the steady state of its first sample.
    """

    factor: FloatArray | float = 1.0
    sections: Sequence[Any] = ()


@dataclass(frozen=True, kw_only=True)
class Op(ABC):
    """The base of all ops. Subclasses are final: frozen, keyword-only dataclasses.

    ``class Name(Op, registry=None)`` is in no registry, as bases of several ops are; ``registry="custom"`` is for what
    users write; with ``imports_code=True`` an argument may name code to import.

    Args:
        p: probability of applying the op to an example, 0 to 1, drawn for each example alone.

    Raises:
        ChainError: a field is out of range, of the wrong type, or has an unknown option.
    """

    p: float = 0.5

    contract: ClassVar[Contract]
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __init_subclass__(cls, registry: Literal["ops", "custom"] | None = "ops", imports_code: bool = False) -> None:
        if cls.resolve is not Op.resolve and cls.param_types is Op.param_types:
            raise ParamError(f"{cls.__name__} has resolve, but no param_types to declare what it returns.")
        declared: Any = cls.param_types
        for name, kind in declared.items() if isinstance(declared, Mapping) else ():
            if not isinstance(kind, ParamType):
                raise ParamError(f"{cls.__name__}: param_types declares {name!r} as {kind!r}, which is no ParamType.")
        if registry is not None:
            {"ops": REGISTRY, "custom": CUSTOM_OPS}[registry][cls.__name__] = cls
        if imports_code:
            IMPORTS_CODE.add(cls)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> str:
        """The class name, which is the reference's too."""
        return type(self).__name__

    @property
    def capabilities(self) -> Capabilities:
        """What the op needs and does besides changing samples. A plain attribute, unless it depends on arguments."""
        return Capabilities()

    @property
    def children(self) -> "tuple[Op, ...]":
        """The ops inside a container; none for others."""
        return ()

    def distributions(self) -> dict[str, Distribution]:
        """Return what each random parameter comes from. Raises ``DataError`` if files it draws from are missing."""
        return {}

    @property
    def param_types(self) -> Mapping[str, ParamType]:
        """The type of every parameter that ``resolve`` and ``measure`` return. A plain attribute, if it can be.

        Without ``resolve``: the draws, each of its distribution's type.
        """
        return {name: distribution.param_type for name, distribution in self.distributions().items()}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        """Turn draws into parameters that depend on the clips (shares into samples), for B examples.

        An op that changes lengths returns the clips' new lengths as the parameter of type ``LENGTHS``; its ``batched``
        may then return a batch of any width, which is cut or padded to the longest clip of the batch.
        """
        return draw

    def measure(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> Params:
        """Add the parameters that depend on the audio itself, the new lengths among them, on the device."""
        return params

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        """Return where one clip's time goes; ``params`` holds its numbers, as ``resolve`` and ``measure`` return it.

        Time as it is heard counts: reverberation and filters leave it where it is. A crossfade belongs, half and half,
        to what is on either side of it. Times are samples of the batch; played at the chain's rate they are
        ``samples / sample_rate`` seconds, also after ``Resample``.
        """
        return Timeline.identity(length)

    def mixing(self, draw: Params, batch: BatchInfo) -> tuple[NDArray[np.int64], FloatArray]:
        """Return which of these B examples' labels each gets besides its own (itself: none), and its own share.

        Shares are of the energy, 0 to 1.
        """
        raise NotImplementedError

    def reference(self) -> Any:
        """Build the transform that this op must equal: audiomentations' own, or one with the same interface."""
        import audiomentations

        own_arguments = arguments(self)
        if self.children:
            own_arguments["transforms"] = [child.reference() for child in self.children]
        return getattr(audiomentations, self.name)(**own_arguments)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        """Return the reference's own ``parameters`` for the same decisions; ``params`` holds one clip's numbers."""
        return dict(params)

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        """Let the reference, frozen, change one clip, with what ``replay`` returns as its parameters.

        ``others`` are the clips of its batch (C, T), itself included, for an op that mixes examples.

        Raises:
            ClipRefused: the reference refuses the clip, as some do with short ones: the batched build, if any, can
                take its place.
        """
        try:
            reference.parameters = {"should_apply": True, **self.replay(params, samples, sample_rate)}
            return reference(samples, sample_rate)
        except ValueError as error:
            raise ClipRefused(str(error)) from error

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Return the effect on a float32 batch, same device, never in place; same shape unless lengths change.

        Past the end of each clip the batch is silent; what is there afterwards does not matter.
        The next op may write over what is returned, and this one over its batch where ``batch.out`` says so.
        """
        raise NotImplementedError

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        """Return all that the op does as a factor and filters, for an op that may be fused with its neighbours."""
        raise NotImplementedError

    def torch_audiomentations(self) -> TorchAudiomentationsOp | None:
        """Return what torch-audiomentations has in this op's place, if anything."""
        return None

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        """Read the constructor arguments back from the reference, children as they are there."""
        return {field.name: getattr(reference, field.name, field.default) for field in dataclasses.fields(cls)}

    def to_dict(self, for_file: bool = True) -> dict[str, Any]:
        """Return ``{name: arguments}``, without arguments that have their default value; children nested.

        With ``for_file=False``, for hashes and reports: code that users wrote is shown by its bare name.

        Raises:
            ChainError: it is for a file, and the op holds code or an object that a file cannot hold.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        changed = {k: v for k, v in arguments(self).items() if v is not None and v != defaults[k]}
        return {self.name: {k: plain(v, for_file, f"{self.name}: {k}") for k, v in changed.items()}}


class Container(Op, registry=None):
    """The base of ops that run others: which, and in which order, for each example. Subclasses declare the fields."""

    transforms: Sequence[Op]

    contract = Contract.exact(rtol=0.0)

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, Iterable):
            raise ChainError(f"{self.name}: transforms is {self.transforms!r}, but it must be a list of ops.")
        object.__setattr__(self, "transforms", tuple(self.transforms))
        if not self.transforms:
            raise ChainError(f"{self.name}: transforms is empty.", "Give it at least one transform.")
        for item in self.transforms:
            if not isinstance(item, Op):
                raise ChainError(f"{self.name}: {item!r} is not an audioaug op.")
            if isinstance(item, Feature):
                raise ChainError(f"{self.name}: {item.name} cannot be inside it.", "Put it last in the chain.")
        super().__post_init__()

    @property
    def children(self) -> tuple[Op, ...]:
        """The ops inside."""
        return tuple(self.transforms)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the ops inside together."""
        return Capabilities.of_all(child.capabilities for child in self.children)

    @abstractmethod
    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        """Return which child runs in which slot: (B, slots), -1 for none. ``draw`` has ``"apply"`` too."""


@dataclass(frozen=True, kw_only=True)
class Feature(Op, registry=None):
    """The base of what turns audio into features, at the end of a chain, for every example: also without augmentation.

    ``batched`` returns (B, C, F, N), F features of N frames, with ``silence`` past a clip's last frame. ``resolve``
    returns the clips' frames as ``length_out``. An empty clip has no frames, and ``batched`` gets it like any other.
    """

    p: float = 1.0

    param_types: ClassVar[Mapping[str, ParamType]] = {"length_out": LENGTHS}
    capabilities = Capabilities(needs_length=True, changes_length=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p != 1.0:
            raise ChainError(f"{self.name}: p is {self.p:g}, but every example needs its features.", "Leave p out.")

    @property
    @abstractmethod
    def silence(self) -> float:
        """The features of silence."""

    @abstractmethod
    def frames(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many frames clips of these lengths have, in samples."""

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        """Return the clips' frames."""
        return {"length_out": self.frames(batch.lengths)}


class NumpyReference:
    """A function as a reference, for an op that no library has: it changes one clip with drawn parameters.

    Args:
        function: ``f(samples, sample_rate, **parameters)``, from one clip, (T,) or (C, T), to another; its parameters
            are what the op's ``replay`` returns.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.parameters: dict[str, Any] = {}

    def freeze_parameters(self) -> None:
        """Do nothing: it draws nothing."""

    def __call__(self, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        """Apply the function with the present parameters."""
        parameters = {name: value for name, value in self.parameters.items() if name != "should_apply"}
        return np.asarray(self.function(samples, sample_rate, **parameters), dtype=np.float32)


def arguments(op: Op) -> dict[str, Any]:
    """Return the constructor arguments by name, children as ops."""
    return {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}


def leaves(op: Op) -> Iterator[Op]:
    """Yield the ops that change audio: this one, or those inside it."""
    if not op.children:
        yield op
    for child in op.children:
        yield from leaves(child)


def always(op: Op) -> Op:
    """Return an op that changes every example, with the recordings that the given one has listed."""
    changed = copy.copy(op)
    object.__setattr__(changed, "p", 1.0)
    return changed


def is_ours(op: Op) -> bool:
    """Return whether an op belongs to the package and calls no code of the user."""
    return type(op).__module__.startswith("audioaug.ops.") and type(op) not in IMPORTS_CODE


def why_not_on_device(op: Op) -> str:
    """Return why an op has to run in a worker, or an empty string."""
    reasons = (f"{leaf.name}: {leaf.contract.reason}" for leaf in leaves(op) if leaf.contract.kind == "cpu_only")
    return next(reasons, "")


def why_not_in_worker(op: Op) -> str:
    """Return why an op has to run on the device, or an empty string."""
    name = next((leaf.name for leaf in leaves(op) if leaf.capabilities.mixes_examples), "")
    return name and f"{name}: it mixes examples of one batch, and a worker sees one example at a time."


def check_declarations(op: Op) -> None:
    """Raise ``ParamError`` unless an op's capabilities, methods and types of parameters agree with each other."""
    for method, capability in OPTIONAL_FACES.items():
        if getattr(op.capabilities, capability) and getattr(type(op), method) is getattr(Op, method):
            raise ParamError(f"{op.name}: its capabilities state {capability}, but it has no method {method}.")
    changes, measures = (kind in op.param_types.values() for kind in (LENGTHS, MEASURED_LENGTHS))
    stated = op.capabilities.changes_length, op.capabilities.length_depends_on_audio
    if stated != (changes or measures, measures):
        raise ParamError(
            f"{op.name}: its capabilities state changes_length={stated[0]}, length_depends_on_audio={stated[1]}, but "
            f"param_types declares {'' if changes else 'no '}LENGTHS and {'' if measures else 'no '}MEASURED_LENGTHS."
        )


def op_from_dict(content: Any, code: bool = False) -> Op:
    """Build an op from ``{name: arguments}``; raise ``ChainError`` naming what is unknown and what is nearest to it.

    ``code``: whether it may import code that the arguments name.
    """
    if isinstance(content, str):
        content = {content: {}}
    if not isinstance(content, Mapping) or len(content) != 1:
        raise ChainError(f"A transform is written as one name with its arguments, got {content!r}.")
    name, arguments = next(iter(content.items()))
    kind = op_class(str(name))
    if not isinstance(arguments, Mapping | None):
        raise ChainError(f"{name}: its arguments are {arguments!r}, but they must be a mapping of names to values.")
    arguments = dict(arguments or {})
    known = [field.name for field in dataclasses.fields(kind)]
    for argument in arguments:
        if argument not in known:
            raise ChainError(f"{name} has no argument {argument!r}.", did_you_mean(str(argument), known))
    if kind in IMPORTS_CODE and not code:
        raise ChainError(
            f"{name} would import and run code that a chain file names, which is off by default.",
            "If you trust the file, allow it: code=True in Python, --allow-code on the command line.",
        )
    if "transforms" in arguments:
        arguments["transforms"] = ops_from_list(arguments["transforms"], str(name), code)
    return build_op(kind, arguments)


def ops_from_list(content: Any, owner: str, code: bool = False) -> tuple[Op, ...]:
    """Build the ops of a list (none of ``None``); raise ``ChainError``, naming its owner, if it is no list."""
    if not isinstance(content, list | tuple | None):
        raise ChainError(f"{owner}: transforms is {content!r}, but it must be a list.")
    return tuple(op_from_dict(item, code) for item in content or ())


def build_op(kind: type[Op], arguments: dict[str, Any]) -> Op:
    """Call the constructor; raise ``ChainError`` if an argument without a default is missing."""
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise ChainError(f"{kind.__name__}: {error}.") from None
    return kind(**arguments)


def op_class(name: str) -> type[Op]:
    """Return the op of that name; raise ``ChainError`` naming the nearest one if there is none."""
    if name not in REGISTRY:
        raise ChainError(f"There is no transform {name!r}.", did_you_mean(name, REGISTRY))
    return REGISTRY[name]


def plain(value: Any, for_file: bool = True, owner: str = "The chain") -> Any:
    """Return a value as JSON and YAML know it; equal numbers become the same (6 and 6.0), so that hashes do too.

    ``for_file`` is that of ``Op.to_dict``; ``owner`` is what a message calls the argument.
    """
    value = plain_scalar(value)
    if isinstance(value, Op):
        return value.to_dict(for_file=for_file)
    if isinstance(value, tuple | list):
        return [plain(item, for_file, owner) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item, for_file, owner) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str | int | float | bool | type(None)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if for_file:
        raise ChainError(
            f"{owner} contains {value!r}, which a file cannot hold.",
            "Use numbers, text and lists, or keep the chain in Python.",
        )
    return _description(value)


def _description(value: Any) -> str:
    """Return an object's text, or its name where the text has its address, which differs between processes."""
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return str(kind.__qualname__)
    return str(getattr(value, "__qualname__", value))
