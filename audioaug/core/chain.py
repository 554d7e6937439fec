"""Chain: an ordered list of ops and a sample rate; from and to dict, YAML and audiomentations; its draws and cuts."""

import contextlib
import functools
import hashlib
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from audioaug.core.batch import BatchInfo
from audioaug.core.chain_file import read_chain_file
from audioaug.core.contract import Capabilities
from audioaug.core.distributions import Distribution, Uniform
from audioaug.core.draws import Draws, uniforms
from audioaug.core.fields import real_number
from audioaug.core.keys import Key, key_numbers
from audioaug.core.op import (
    CUSTOM_OPS,
    Container,
    Feature,
    Op,
    build_op,
    check_declarations,
    leaves,
    op_class,
    ops_from_list,
    why_not_in_worker,
    why_not_on_device,
)
from audioaug.core.params import Params, ParamType, check_params
from audioaug.errors import ChainError, DataError, PlanError, UsageError, did_you_mean
from audioaug.units import plural
from audioaug.writing import write_file

COIN = Uniform(0.0, 1.0)

USER_CODE = ("noise_transform", "part_transform")
"""Arguments of audiomentations' transforms that hold user code: with them a transform becomes a ``Custom`` op."""


@dataclass(frozen=True)
class Node:
    """An op at its place: ``path`` is "2" at the top and "2.0" inside a container, ``position`` counts all nodes."""

    path: str
    position: int
    op: Op
    children: "tuple[Node, ...]"
    distributions: Mapping[str, Distribution]

    @property
    def members(self) -> "tuple[Node, ...]":
        """The nodes of the declaration that it runs: itself, or those that are fused in it."""
        return (self,)

    @functools.cached_property
    def param_types(self) -> Mapping[str, ParamType]:
        """The types of the op's parameters, once they agree with its other declarations."""
        check_declarations(self.op)
        return self.op.param_types

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """Those of the op."""
        return self.op.capabilities

    def resolve(self, draws: Draws, rows: NDArray[np.int64], batch: BatchInfo) -> Params:
        """Return the op's parameters for some of the examples; raise ``ParamError`` unless they are as declared."""
        params = self.op.resolve(self.drawn(draws, rows), batch)
        check_params(self.op, self.param_types, params)
        return params

    def walk(self) -> "Iterator[Node]":
        """Yield this node and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def drawn(self, draws: Draws, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Return the op's own draws for some of the examples, by the names of its distributions."""
        return {name: draws[f"{self.path}:{name}"][rows] for name in self.distributions}

    def order(self, draws: Draws, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for a container, which child runs in which slot for some of the examples: (B, slots)."""
        assert isinstance(self.op, Container)
        return self.op.order({"apply": draws[f"{self.path}:apply"][rows], **self.drawn(draws, rows)})

    def steps(self, draws: Draws, rows: NDArray[np.int64]) -> "Iterator[tuple[Node, NDArray[np.int64]]]":
        """Yield, in order, the ops that do something here, and which of these rows each does it to: one at least."""
        rows = rows[draws[f"{self.path}:apply"][rows] > 0]
        if not len(rows):
            return
        if not self.children:
            yield self, rows
            return
        order = self.order(draws, rows)
        for slot in range(order.shape[1]):
            for child in np.unique(order[:, slot][order[:, slot] >= 0]):
                yield from self.children[child].steps(draws, rows[order[:, slot] == child])


@dataclass(frozen=True)
class Chain:
    """An augmentation chain, declared once and built for the CPU and for the device.

    Args:
        ops: the ops in order; containers (``OneOf``, ``SomeOf``, ``Compose``) are one node each. The last one may make
            features of the audio (``LogMel``).
        sample_rate: of the audio it will see, in Hz.

    Raises:
        ChainError: something else than an op in the list, no place to cut it, or a sample rate that is none.
        DataError: an op names files that are not there.

    Examples:
        >>> from audioaug import ops
        >>> chain = Chain([ops.Gain(p=1.0), ops.PolarityInversion()], sample_rate=16000)
        >>> chain.draw([7], epoch=2) == chain.draw([3, 7], epoch=2).rows([1])
        True
    """

    ops: Sequence[Op]
    sample_rate: int

    def __post_init__(self) -> None:
        if not isinstance(self.ops, Iterable):
            raise ChainError(f"A chain takes a list of ops, but this is a {type(self.ops).__qualname__}.")
        object.__setattr__(self, "ops", tuple(self.ops))
        for op in self.ops:
            if not isinstance(op, Op):
                raise ChainError(
                    f"A chain holds audioaug ops, but this is a {type(op).__module__}.{type(op).__qualname__}.",
                    "Chain.from_audiomentations takes an audiomentations Compose.",
                )
        for op in self.ops[:-1]:
            if isinstance(op, Feature):
                raise ChainError(f"{op.name} must be the last op of a chain: the others change audio.")
        object.__setattr__(self, "sample_rate", whole_hertz(self.sample_rate, "The chain's sample_rate", ChainError))
        if all(self.why_not_cut(cut) for cut in range(len(self) + 1)):
            raise ChainError(
                f"This chain cannot be cut anywhere. {self.why_not_cut(0)} {self.why_not_cut(len(self))}",
                "Put what has to run in a worker before what has to run on the device.",
            )
        self.columns  # noqa: B018  (so that a missing noise folder raises here)

    def __len__(self) -> int:
        return len(self.ops)

    @functools.cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The top-level nodes, in order."""
        return tuple(_number(self.ops, prefix="", start=0)[0])

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of ``draw``'s table."""
        return tuple(f"{node.path}:{name}" for node, name, _ in self._lanes)

    @functools.cached_property
    def _lanes(self) -> list[tuple[Node, str, Distribution]]:
        nodes = [node for top in self.nodes for node in top.walk()]
        return [(node, name, kind) for node in nodes for name, kind in (("apply", COIN), *node.distributions.items())]

    @functools.cached_property
    def _addresses(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        positions = [node.position for node, _, _ in self._lanes]
        lanes = [place - positions.index(position) for place, position in enumerate(positions)]
        return np.array(positions, dtype=np.uint64), np.array(lanes, dtype=np.uint64)

    def draw(self, keys: Iterable[Key] | NDArray[Any], epoch: int = 0, seed: int = 0) -> Draws:
        """Return every random decision for these examples; a pure function of (seed, epoch, key, position).

        Args:
            keys: of the examples, B of them: integers, such as their numbers in the dataset, strings or bytes.
            epoch: counts passes over the dataset.
            seed: of the whole training run.

        Raises:
            UsageError: epoch or seed is not an integer.
            DataError: something else is among the keys.
        """
        u_BL = uniforms(integer("seed", seed), integer("epoch", epoch), key_numbers(keys), *self._addresses)
        table = np.empty_like(u_BL)
        for column, (node, name, kind) in enumerate(self._lanes):
            u = u_BL[:, column]
            table[:, column] = u < node.op.p if name == "apply" else kind.from_uniform(u)
        return Draws(self.columns, table)

    @property
    def feature(self) -> Feature | None:
        """What makes features of the audio, at the end; ``None`` if the chain returns audio."""
        return self.ops[-1] if self.ops and isinstance(self.ops[-1], Feature) else None

    def has_features(self, cut: int) -> bool:
        """Return whether the first ``cut`` ops return features instead of audio."""
        return self.feature is not None and cut == len(self)

    @property
    def silence(self) -> float:
        """The value of silence after all ops: what clips are padded with then."""
        return 0.0 if self.feature is None else self.feature.silence

    def without_augmentation(self) -> "Chain":
        """Return the chain that only makes the features of the audio, if this one does."""
        return Chain(self.ops[-1:] if self.feature else (), self.sample_rate)

    def draw_nothing(self, batch: int) -> Draws:
        """Return draws that apply no op to B examples, except for what makes features."""
        table = np.zeros((batch, len(self.columns)))
        if self.feature is not None:
            table[:, self.columns.index(f"{len(self) - 1}:apply")] = 1.0
        return Draws(self.columns, table)

    @property
    def device_from(self) -> int:
        """The smallest cut there can be: everything before it has to run in a worker."""
        return next(cut for cut in range(len(self) + 1) if not self.why_not_cut(cut))

    @property
    def worker_until(self) -> int:
        """The largest cut there can be: everything after it has to run on the device."""
        return next(cut for cut in range(len(self), -1, -1) if not self.why_not_cut(cut))

    def why_not_cut(self, cut: int) -> str:
        """Return why the chain cannot be cut there, or an empty string."""
        if not 0 <= cut <= len(self):
            return f"The chain has {plural(len(self), 'op')}, so a cut lies between 0 and {len(self)}, not at {cut}."
        reasons = [why_not_in_worker(op) for op in self.ops[:cut]]
        reasons += [why_not_on_device(op) for op in self.ops[cut:]]
        return next((reason for reason in reasons if reason), "") or _why_lengths_are_missing(self.ops[cut:])

    @property
    def followed_from(self) -> int:
        """The smallest cut with which targets can follow the audio: after it, time moves as the draws say."""
        return self._after_the_last(lambda can: can.length_depends_on_audio)

    @property
    def sized_from(self) -> int:
        """The smallest cut after which clips keep their lengths, if the chain can be cut there."""
        return self._after_the_last(lambda can: can.changes_length)

    def _after_the_last(self, counts: Callable[[Capabilities], bool]) -> int:
        return max((place for place, op in enumerate(self.ops, 1) if counts(op.capabilities)), default=0)

    def first_cut(self, on_clips: int) -> int:
        """Return the smallest possible cut with at least this many ops in a worker, as far as they can run there."""
        return max(self.device_from, min(on_clips, self.worker_until))

    def check_followed(self, cut: int) -> None:
        """Raise ``PlanError`` if targets cannot follow the audio with this cut, or with any."""
        if cut >= self.followed_from:
            return
        measuring = next(
            leaf for op in self.ops[cut:] for leaf in leaves(op) if leaf.capabilities.length_depends_on_audio
        )
        wall = self.why_not_cut(self.followed_from)
        cure = f"And it cannot run in a worker: {wall}" if wall else f"Cut the chain at {self.followed_from} or later."
        raise PlanError(why_not_followed(measuring.name), cure)

    def checked_cut(self, cut: int | None) -> int:
        """Return the cut (the end of the chain for ``None``); raise ``PlanError`` if there cannot be one there."""
        cut = len(self) if cut is None else cut
        if reason := self.why_not_cut(cut):
            first, last = self.device_from, self.worker_until
            later = f"Cut at {first}"
            if first < last:
                later += " or later" if last == len(self) else f" to {last}"
            raise PlanError(f"The chain cannot be cut at {cut}. {reason}", f"{later}.")
        return cut

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that change whenever the declaration does; where its files lie does not count."""
        return hashlib.sha256(json.dumps(_without_folders(self.describe()), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain values, as the YAML file has it.

        Raises ``ChainError`` if it holds user code that a file cannot name.
        """
        return {"sample_rate": int(self.sample_rate), "transforms": [op.to_dict() for op in self.ops]}

    def describe(self) -> dict[str, Any]:
        """Return what ``to_dict`` does, for hashes and reports: user code appears by its bare name."""
        return {"sample_rate": int(self.sample_rate), "transforms": [op.to_dict(for_file=False) for op in self.ops]}

    @classmethod
    def from_dict(cls, content: Any, *, code: bool = False) -> "Chain":
        """Build a chain from what ``to_dict`` returns.

        Args:
            content: ``{"sample_rate": hertz, "transforms": [{name: arguments}, ...]}``.
            code: allow it to name user functions (``Lambda``): importing them runs the module that they are in.

        Raises:
            ChainError: something is unknown, missing or out of range, or it names code without ``code=True``.
        """
        if not isinstance(content, Mapping):
            raise ChainError("A chain is written as a mapping with `sample_rate` and `transforms`.")
        for key in content:
            if key not in ("sample_rate", "transforms"):
                raise ChainError(
                    f"A chain has no entry {key!r}.", did_you_mean(str(key), ("sample_rate", "transforms"))
                )
        if "sample_rate" not in content:
            raise ChainError("The chain has no sample_rate.", "Add a line such as `sample_rate: 16000`.")
        if "transforms" not in content:
            raise ChainError("The chain has no transforms.", "Add `transforms:` with a list, which may be empty.")
        return cls(ops_from_list(content["transforms"], "The chain", code), content["sample_rate"])

    def to_yaml(self, path: str | Path) -> None:
        """Write the declaration to a YAML file."""
        write_file(yaml.safe_dump(self.to_dict(), sort_keys=False), path)

    @classmethod
    def from_yaml(cls, path: str | Path, *, code: bool = False) -> "Chain":
        """Read a chain from a YAML file; ``code`` and errors are those of ``from_dict``, which then name the file.

        The file has a ``sample_rate`` and ``transforms``, with arguments by name and containers nested::

            sample_rate: 16000
            transforms:
              - Gain: {min_gain_db: -6, p: 0.5}
              - OneOf:
                  transforms:
                    - Reverse: {p: 1.0}
                    - LowPassFilter: {p: 1.0}
        """
        content = read_chain_file(path)
        try:
            return cls.from_dict(content, code=code)
        except (ChainError, DataError) as error:
            raise type(error)(f"{path}: {error.message}", error.next_step) from None

    @classmethod
    def from_audiomentations(cls, compose: Any, sample_rate: int) -> "Chain":
        """Take over an audiomentations ``Compose``, list of transforms, or single transform, unchanged.

        Transforms that you have written yourself are copied, and run only in the workers. An empty ``Compose`` is
        left out; inside ``OneOf`` or ``SomeOf`` it becomes ``Identity``. Raises ``ChainError`` for anything else.
        """
        return cls(_ops_of(compose), sample_rate)

    def to_audiomentations(self) -> Any:
        """Return the chain as an audiomentations ``Compose``, which then draws for itself.

        Raises ``ChainError`` if an op has another library's transform as its reference.
        """
        import audiomentations

        for op in (leaf for top in self.ops for leaf in leaves(top)):
            if (library := op.capabilities.library) != "audiomentations":
                raise ChainError(f"audiomentations has no {op.name}, which is a transform of {library}.")
        return audiomentations.Compose([op.reference() for op in self.ops])


def as_chain(augmentation: Any, sample_rate: int | None) -> Chain:
    """Return the chain that describes an augmentation.

    Args:
        augmentation: a chain; an op or a list of ops; or what ``Chain.from_audiomentations`` takes.
        sample_rate: of the audio, in Hz; a chain has its own.

    Raises:
        ChainError: it is none of these, the sample rate is missing, or a chain is for another one.
    """
    if not isinstance(augmentation, Chain):
        ops = _ops_of(augmentation)
        if sample_rate is None:
            raise ChainError(
                f"{type(augmentation).__name__} does not have a sample rate.",
                "Give the rate of the audio in hertz, as in sample_rate=16000.",
            )
        return Chain(ops, sample_rate)
    if sample_rate not in (None, augmentation.sample_rate):
        raise ChainError(
            f"The chain is for {augmentation.sample_rate} Hz, but sample_rate is {sample_rate!r}.",
            "Leave it out, or make the chain for that rate.",
        )
    return augmentation


def _ops_of(augmentation: Any) -> Sequence[Op]:
    """Return ops for a list of ops and transforms, or for a single one; those of a plain ``Compose`` are unwrapped."""
    if isinstance(augmentation, list | tuple):
        return [_as_op(item) for item in augmentation if not _is_empty(item)]
    if _is_empty(augmentation):
        return ()
    op = _as_op(augmentation)
    plain = op.name == "Compose" and op.children and op.p == 1.0 and not getattr(op, "shuffle", False)
    return op.children if plain else [op]


def _as_op(transform: Any) -> Op:
    return transform if isinstance(transform, Op) else _op_from_reference(transform)


def whole_hertz(value: Any, what: str, error: type[UsageError]) -> int:
    """Return a sample rate as an integer; raise the error, naming what it is, if it is not a positive whole number."""
    if not real_number(value).is_integer() or value <= 0:
        raise error(f"{what} is {value!r}, but it must be a whole number of hertz, at least 1.")
    return int(value)


def integer(name: str, value: Any) -> int:
    """Return an integer of any type as Python's; raise ``UsageError`` for everything else, booleans included."""
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool):
            return operator.index(value)
    raise UsageError(f"{name} is {value!r}, but it must be an integer.")


def _without_folders(value: Any) -> Any:
    """Return plain values with every path reduced to its last part, which is the same on every machine."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return os.path.basename(value.rstrip(os.sep)) if isinstance(value, str) else value


def why_not_followed(name: str) -> str:
    """Return why targets cannot follow an op whose lengths depend on the audio."""
    return f"Targets cannot follow {name} on the device or on collated batches: only the audio tells where it cuts."


def _why_lengths_are_missing(ops: Sequence[Op]) -> str:
    """Return which op needs lengths that are known only on the device, because of which one before it; or nothing.

    In a container any op may come before any other.
    """
    measuring = ""
    for op in ops:
        named = [(leaf.name, leaf.capabilities) for leaf in leaves(op)]
        measuring = next((name for name, can in named if can.length_depends_on_audio), measuring)
        needing = next((name for name, can in named if can.needs_length), "")
        if measuring and needing:
            return f"{needing} needs each clip's length on the host, but {measuring} finds it on the device."
    return ""


def _number(ops: Sequence[Op], prefix: str, start: int) -> tuple[list[Node], int]:
    """Give every op its path and, depth first, its position; return the nodes and the next free position."""
    nodes = []
    for place, op in enumerate(ops):
        path, position = f"{prefix}{place}", start
        children, start = _number(op.children, f"{path}.", start + 1)
        nodes.append(Node(path, position, op, tuple(children), _distributions(op)))
    return nodes, start


def _distributions(op: Op) -> Mapping[str, Distribution]:
    try:
        return op.distributions()
    except DataError as error:
        raise DataError(f"{op.name}: {error.message}", error.next_step) from None


def _op_from_reference(reference: Any) -> Op:
    kind = type(reference)
    if not kind.__module__.startswith("audiomentations.") or any(getattr(reference, name, None) for name in USER_CODE):
        return _custom_op(reference)
    arguments = op_class(kind.__name__).from_reference(reference)
    if "transforms" in arguments:
        arguments["transforms"] = _children_from_reference(kind.__name__, arguments["transforms"])
    if arguments.get("lru_cache_size", 0) is None:  # no limit, which changes no audio: not all ops here take it
        del arguments["lru_cache_size"]
    return build_op(op_class(kind.__name__), arguments)


def _children_from_reference(name: str, children: Sequence[Any]) -> tuple[Op, ...]:
    """Return the ops inside a container; a choice among ops keeps its place for an empty ``Compose``."""
    if name == "Compose":
        children = [child for child in children if not _is_empty(child)]
    identity = op_class("Identity")
    return tuple(identity(p=1.0) if _is_empty(child) else _op_from_reference(child) for child in children)


def _is_empty(transform: Any) -> bool:
    """Return whether it is an empty ``Compose`` of audiomentations, or holds only such."""
    kind = type(transform)
    is_compose = kind.__name__ == "Compose" and kind.__module__.startswith("audiomentations.")
    return is_compose and all(map(_is_empty, transform.transforms))


def _custom_op(reference: Any) -> Op:
    from audiomentations.core.transforms_interface import BaseWaveformTransform

    if not isinstance(reference, BaseWaveformTransform):
        kind = type(reference)
        raise ChainError(
            f"{kind.__module__}.{kind.__qualname__} is not a transform of audiomentations.",
            "Wrap a function in audiomentations.Lambda, or make it a subclass of BaseWaveformTransform.",
        )
    return build_op(CUSTOM_OPS["Custom"], CUSTOM_OPS["Custom"].from_reference(reference))
