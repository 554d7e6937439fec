"""Op: one augmentation, declared, with its four faces (draw, reference, batched, contract).

An op is a frozen dataclass whose fields are exactly the constructor arguments of the audiomentations class of the same
name. A subclass registers itself; it lies in one file of ``audioaug.ops`` and states

* ``distributions``: what its random parameters come from, and ``resolve``, where a parameter needs the clip's length
  (then ``needs_length`` is true);
* ``replay``: the same decisions in the reference's own ``parameters``;
* ``batched``: the same effect on a batch of tensors, on any device;
* ``timeline``: where it puts the clip's time, if it moves, stretches, cuts or repeats any; and ``mixing``, if it mixes
  examples of a batch: so that labels can follow;
* ``contract``: how equal the two are, and ``torch_audiomentations``: what that library has instead.

Shapes: B examples, C channels, T samples.
"""

import dataclasses
import functools
import inspect
import math
import typing
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core.params import Distribution, FloatArray
from audioaug.core.timeline import Timeline
from audioaug.errors import ChainError, did_you_mean

Params = Mapping[str, Any]
"""Parameters by name. On the host: arrays of B values; on the device: tensors of B values; plain ints stay ints."""

REGISTRY: dict[str, type["Op"]] = {}
"""Every op there is, by the name it shares with its reference. Filled when ``audioaug.ops`` is imported."""

CUSTOM_OPS: dict[str, type["Op"]] = {}
"""Ops for transforms of your own, which no file can name and which have nothing to be compared with."""


@dataclass(frozen=True)
class Contract:
    """How equal the batched face is to the reference, as a promise that ``audioaug.verify`` can check.

    ``kind`` is ``"exact"`` (sample for sample after replay, error at most ``tolerance`` times the larger peak of input
    and reference), ``"statistical"`` (the added noise differs; level within ``tolerance`` dB, spectrum, whiteness and
    independence are checked) or ``"cpu_only"`` (there is no device build, for ``reason``). Noise that is not white is
    compared sample for sample too, up to ``given`` times the peak, with a reference that is given the same random
    numbers (``Op.numpy_draws``): that settles spectrum and level. ``"spectral"`` is exact but next to the Nyquist
    frequency of the lower rate, before and after (from ``band`` to ``2 - band`` times it), and there within ``rest``.
    ``"perceptual"`` is equal to the ear only: spectrum within ``tolerance`` dB, and level, timing, attacks, pitch and
    stereo image within what ``perceptual`` says.
    """

    kind: Literal["exact", "spectral", "perceptual", "statistical", "cpu_only"]
    tolerance: float = 0.0
    reason: str = ""
    given: float = 0.0
    band: float = 1.0
    rest: float = 0.0

    @classmethod
    def exact(cls, rtol: float) -> "Contract":
        """Promise equality sample for sample, up to ``rtol`` times the peak."""
        return cls("exact", rtol)

    @classmethod
    def spectral(cls, rtol: float, band: float, rest: float) -> "Contract":
        """Promise of resampled audio: equal sample for sample up to ``rtol`` times the peak, but for a band.

        It reaches from ``band`` to ``2 - band`` times the lower Nyquist frequency; with it, up to ``rest`` of the peak.
        """
        return cls("spectral", rtol, band=band, rest=rest)

    @classmethod
    def perceptual(cls, spectrum_db: float) -> "Contract":
        """Promise of stretched or shifted audio: every sample may differ, but what is heard may not.

        Promised for rates from 0.7 to 1.4 and shifts up to 5 semitones: beyond, references differ from themselves.

        * The duration is exact, to the sample, and silence stays silence.
        * Level: within 0.75 dB, each clip and channel.
        * Spectrum: bands a third of an octave wide, over 50 ms, differ by up to ``spectrum_db`` (root mean square over
          all that lie within 40 dB of the loudest).
        * Timing: each clip is in place within 10 ms (where its envelope has no edges, nobody can tell better), half of
          them within 2 ms, and half of their second halves within 4 ms.
        * Attacks: where most energy lies within 5 ms of attacks, no more than 0.4 of it is smeared away.
        * Pitch: within 5 cents, where most of the sound has one.
        * Image: correlations between channels, band by band, within 0.15.

        Clips under a quarter of a second, which are a few frames, and clicks, which overlap in one, have 3 dB, twice
        ``spectrum_db``, an image within 0.3 and no pitch. Of what nobody hears (a constant) only the level is promised,
        within 6 dB. Of noise, too, only level and spectrum are: it has neither edges nor pitch.
        """
        return cls("perceptual", spectrum_db)

    @classmethod
    def statistical(cls, level_db: float, given: float = 0.0) -> "Contract":
        """Promise noise of the same level (within ``level_db`` for one second of audio), spectrum and independence.

        With ``given``: equality sample for sample, up to that share of the peak, once the reference is given our noise.
        """
        return cls("statistical", level_db, given=given)

    @classmethod
    def cpu_only(cls, reason: str) -> "Contract":
        """Promise nothing on the device, for a reason."""
        return cls("cpu_only", reason=reason)


@dataclass(frozen=True)
class BatchInfo:
    """What is known of a batch on the host. Lengths are in samples, one for each of the B examples."""

    sample_rate: int
    lengths: NDArray[np.int64]
    channels: int = 1


def inside(length_B: torch.Tensor, samples: int) -> torch.Tensor:
    """Return (B, 1, T), true inside each clip: stretches of one row that is true, then false, which copies are fast."""
    row = torch.arange(2 * samples, device=length_B.device) < samples
    return row.unfold(0, samples, 1).index_select(0, (samples - length_B).clamp_(0, samples))[:, None]


@dataclass(frozen=True)
class DeviceBatchInfo:
    """What an op may know of a batch on the device, besides the samples.

    ``padded_to`` is the batch's width, or ``None`` where every clip fills it, so that nothing needs masking.
    ``spare`` is whether nobody needs the samples any more once the op is done.
    """

    sample_rate: int
    lengths_B: torch.Tensor
    padded_to: int | None = None
    spare: bool = False

    @functools.cached_property
    def mask_B1T(self) -> torch.Tensor | None:
        """True inside each clip; ``None`` where every clip fills the batch."""
        return None if self.padded_to is None else inside(self.lengths_B, self.padded_to)

    def masked(self, x_BCT: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        """Return the batch with everything behind the end of each clip replaced."""
        return x_BCT if self.mask_B1T is None else torch.where(self.mask_B1T, x_BCT, value)

    def out(self, x_BCT: torch.Tensor) -> torch.Tensor | None:
        """Return what torch calls ``out``: where a result as large as the samples may go, theirs where it can be."""
        return x_BCT if self.spare else None


@dataclass(frozen=True)
class TorchAudiomentationsOp:
    """What torch-audiomentations has in an op's place.

    ``name`` and ``arguments`` build it; ``parameters(x_BCT, params, clips)`` is our draw in its own
    ``transform_parameters``; ``differs`` says in words how its effect differs from the reference ("" means: not).
    """

    name: str
    parameters: Callable[[torch.Tensor, Params, DeviceBatchInfo], dict[str, torch.Tensor]]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differs: str = ""


@dataclass(frozen=True, kw_only=True)
class Op(ABC):
    """The base of all ops. Subclasses are final: frozen, keyword-only dataclasses.

    Args:
        p: probability of applying the op to an example, 0 to 1, drawn for each example alone.

    Raises:
        ChainError: a field is out of range, of the wrong type, or has an unknown option.
    """

    p: float = 0.5

    contract: ClassVar[Contract]
    library: ClassVar[str] = "audiomentations"
    multichannel: ClassVar[bool] = True
    keeps_silence: ClassVar[bool] = False
    """Whether what is 0 stays 0, so that nothing has to be silenced behind the ends of clips afterwards."""
    is_custom: ClassVar[bool] = False
    imports_code: ClassVar[bool] = False
    """Whether an argument may name code to import, which a chain file must not do unless the caller allows it."""
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __init_subclass__(cls) -> None:
        (CUSTOM_OPS if cls.is_custom else REGISTRY)[cls.__name__] = cls

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(self, field.name)
        for name in (field.name for field in dataclasses.fields(self) if field.name.startswith("min_")):
            top = name.replace("min_", "max_", 1)
            low, high = getattr(self, name), getattr(self, top)
            if low > high:
                raise ChainError(f"{self.name}: {name} is {low}, but it must not be greater than {top} ({high}).")

    @property
    def name(self) -> str:
        """The class name, which is the reference's too."""
        return type(self).__name__

    @property
    def children(self) -> "tuple[Op, ...]":
        """The ops inside a container; none for others."""
        return ()

    def leaves(self) -> "Iterator[Op]":
        """Yield the ops that do something: this one, or those inside it."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def distributions(self) -> dict[str, Distribution]:
        """Return what each random parameter comes from. Raises ``DataError`` if files it draws from are missing."""
        return {}

    def resolve(self, draw: Params, clips: BatchInfo) -> Params:
        """Turn draws into parameters that depend on the clips (shares into samples), for B examples at once.

        An op that ``changes_length`` returns the clips' new lengths, in samples, as ``"length_out"``; its ``batched``
        may then return a batch of any width, which is cut or padded to the longest clip of the batch.
        """
        return draw

    @property
    def needs_length(self) -> bool:
        """Whether ``resolve`` needs the clips' lengths, not only an upper bound of them."""
        return False

    @property
    def changes_length(self) -> bool:
        """Whether clips may come out longer or shorter (of an op that runs only in workers, nobody asks)."""
        return self.length_depends_on_audio

    @property
    def length_depends_on_audio(self) -> bool:
        """Whether only the audio itself tells how long the clips become."""
        return type(self).measure is not Op.measure

    def measure(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> Params:
        """Add what only the audio itself tells (``"length_out"``), on the device. The clips cannot become longer."""
        return params

    @property
    def changes_timing(self) -> bool:
        """Whether it moves, stretches, cuts, repeats or lengthens the time of a clip."""
        return type(self).timeline is not Op.timeline

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        """Return where one clip's time goes; ``params`` holds its numbers, as ``resolve`` (and ``measure``) gives them.

        Time as it is heard counts: reverberation and filters leave it where it is. A crossfade belongs, half and half,
        to what is on either side of it. Times are samples of the batch; who plays it at the chain's rate hears
        ``samples / sample_rate`` seconds, also after ``Resample``.
        """
        return Timeline.identity(length)

    @property
    def mixes_examples(self) -> bool:
        """Whether it mixes examples of a batch."""
        return type(self).mixing is not Op.mixing

    def mixing(self, draw: Params, clips: BatchInfo) -> tuple[NDArray[np.int64], FloatArray]:
        """Return which of these B examples' labels each gets besides its own (itself: none), and its own share.

        Shares are of the energy, 0 to 1.
        """
        raise NotImplementedError

    def order(self, draw: Mapping[str, FloatArray]) -> NDArray[np.int64]:
        """Return, for a container, which child runs in which slot: (B, slots), -1 for none."""
        raise NotImplementedError

    def reference(self) -> Any:
        """Build the transform that this op must equal: audiomentations' own, or what behaves like one of those."""
        import audiomentations

        arguments = self.arguments()
        if self.children:
            arguments["transforms"] = [child.reference() for child in self.children]
        return getattr(audiomentations, self.name)(**arguments)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        """Return the reference's own ``parameters`` for the same decisions; ``params`` holds one clip's numbers."""
        return dict(params)

    def apply_reference(self, reference: Any, params: Params, samples: NDArray[np.float32], sample_rate: int) -> Any:
        """Let the reference, frozen, do it to one clip, with what ``replay`` returns as its parameters.

        It may raise ``ValueError`` for a clip that is too short for it: the batched build, if any, then does it.
        """
        reference.parameters = {"should_apply": True, **self.replay(params, samples, sample_rate)}
        return reference(samples, sample_rate)

    def numpy_draws(self, params: Params, shape: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        """Return what numpy's random functions must give the reference, by name, to make its noise ours: for checks.

        ``shape`` is that of the clip, as the reference has it: (T,) or (C, T).
        """
        return {}

    def apply_reference_batch(
        self, reference: Any, params: Params, clips: Sequence[NDArray[np.float32]], sample_rate: int
    ) -> list[NDArray[np.float32]]:
        """Let the reference do it to clips (C, T) of one batch: for an op that no worker can run."""
        raise NotImplementedError

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        """Return the effect on a float32 batch, same device, never in place; same shape but for ``"length_out"``.

        The next op may write over what is returned, and this one over its batch where ``clips.out`` says so.
        """
        raise NotImplementedError

    @property
    def linear(self) -> bool:
        """Whether neighbours like it may become one pass: all it does is its ``factor``, or its ``sections``."""
        return type(self).factor is not Op.factor or type(self).sections is not Op.sections

    def factor(self, draw: Params) -> FloatArray | float:
        """Return the number that each example is multiplied by."""
        return 1.0

    def sections(self, draw: Params, clips: BatchInfo) -> Sequence[Any]:
        """Return the op's filters (``dsp.biquads.Section``), run one after the other, each from its steady state."""
        return ()

    def torch_audiomentations(self) -> TorchAudiomentationsOp | None:
        """Return what torch-audiomentations has in this op's place, if anything."""
        return None

    def why_not_on_device(self) -> str:
        """Return why this op has to run in a worker, or an empty string."""
        return next((reason for reason in (child.why_not_on_device() for child in self.children) if reason), "") or (
            f"{self.name}: {self.contract.reason}" if self.contract.kind == "cpu_only" else ""
        )

    def why_not_in_worker(self) -> str:
        """Return why this op has to run on the device, or an empty string."""
        return next((reason for reason in (child.why_not_in_worker() for child in self.children) if reason), "")

    def arguments(self) -> dict[str, Any]:
        """Return the constructor arguments by name, children as ops."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def arguments_of(cls, reference: Any) -> dict[str, Any]:
        """Read the constructor arguments back from an audiomentations transform, children as they are there."""
        return {field.name: getattr(reference, field.name, field.default) for field in dataclasses.fields(cls)}

    def to_dict(self) -> dict[str, Any]:
        """Return ``{name: arguments}``, without arguments that have their default value; children nested.

        Raises ``ChainError`` if it holds code of yours that a file cannot name.
        """
        return {self.name: self._declared("to_dict")}

    def describe(self) -> dict[str, Any]:
        """Return what ``to_dict`` does, for hashes and reports: code of yours stands there by its bare name."""
        return {self.name: self._declared("describe")}

    def _declared(self, children: str) -> dict[str, Any]:
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        told = {k: v for k, v in self.arguments().items() if v is not None and v != defaults[k]}
        return {k: plain(v, children) for k, v in told.items()}


def of_one(params: Params) -> dict[str, Any]:
    """Return one clip's own numbers from the parameters of a batch of one; plain numbers stay."""
    return {name: value[0].item() if isinstance(value, np.ndarray) else value for name, value in params.items()}


def op_from_dict(content: Any, code: bool = False) -> Op:
    """Build an op from ``{name: arguments}``; raise ``ChainError`` naming what is unknown and what is nearest to it.

    ``code``: whether it may import code that the arguments name.
    """
    if isinstance(content, str):
        content = {content: {}}
    if not isinstance(content, Mapping) or len(content) != 1:
        raise ChainError(f"A transform is written as one name with its arguments, but here stands: {content!r}.")
    name, arguments = next(iter(content.items()))
    kind = op_class(str(name))
    if not isinstance(arguments, Mapping | None):
        raise ChainError(f"{name}: its arguments are {arguments!r}, but they must be a mapping of names to values.")
    arguments = dict(arguments or {})
    known = [field.name for field in dataclasses.fields(kind)]
    for argument in arguments:
        if argument not in known:
            raise ChainError(f"{name} has no argument {argument!r}.", did_you_mean(str(argument), known))
    if kind.imports_code and not code:
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


def plain(value: Any, children: str = "to_dict") -> Any:
    """Return a value as JSON and YAML know it; equal numbers come out alike (6 and 6.0), so that hashes do too.

    ``children`` is the method that turns ops into plain values.
    """
    if isinstance(value, Op):
        return getattr(value, children)()
    if isinstance(value, tuple | list):
        return [plain(item, children) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item, children) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


@functools.cache
def _hints(kind: type[Op]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _check_field(op: Op, name: str) -> None:
    """Check one field against its annotation and its limits."""
    value, hint = getattr(op, name), _hints(type(op))[name]
    if typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
        options = [str(option) for option in typing.get_args(hint)]
        raise ChainError(f"{op.name}: {name} is {value!r}.", did_you_mean(str(value), options))
    if hint is bool and not isinstance(value, bool):
        raise ChainError(f"{op.name}: {name} is {value!r}, but it must be true or false.")
    kind = next((each for each in (int, float) if hint in (each, each | None)), None)
    if kind is not None and (value is not None or hint is kind):
        _check_number(op, name, value, kind)
        value = value.item() if isinstance(value, np.generic) else value
        object.__setattr__(op, name, int(value) if kind is int else value)


def real_number(value: Any) -> float:
    """Return a number as a float; NaN for what is none, such as a truth value, and for a whole number too large."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        return float(value) if real else math.nan
    except OverflowError:
        return math.nan


def _check_number(op: Op, name: str, value: Any, hint: type) -> None:
    number = real_number(value)
    if math.isnan(number) or (hint is int and not number.is_integer()):
        raise ChainError(f"{op.name}: {name} is {value!r}, but it must be a {'whole ' * (hint is int)}number.")
    low, high = (0.0, 1.0) if name == "p" else op.limits.get(name, (-np.inf, np.inf))
    if not low <= value <= high:
        bounds = f"at least {low:g}" if np.isinf(high) else f"between {low:g} and {high:g}"
        bounds = f"at most {high:g}" if np.isinf(low) else bounds
        raise ChainError(f"{op.name}: {name} is {value:g}, but it must be {bounds}.")
