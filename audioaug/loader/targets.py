"""Targets: labels that follow the audio through whatever moves its time, and that are mixed when it is mixed.

All is decided on the host, from the draws: a worker moves the targets, also for the ops that run on the device. A part
that is padded over or cut loses its labels; one that is only silenced (``TimeMask``) or drowned in noise keeps them.

Shapes: B examples, F frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Draws, Origin, Timeline, follow, leaves
from audioaug.errors import DataError, PlanError, UsageError
from audioaug.loader.examples import Where, item_of, with_item
from audioaug.records import Plan

NOWHERE = "Give targets the key or the position."


class Ragged(NamedTuple):
    """Tensors of B examples on their way: in a row, since each tensor costs a file and a copy of its own."""

    flat: torch.Tensor
    counts: list[int]


class Target(ABC):
    """A kind of label. It knows how to follow the audio of an example, and how to become part of a batch."""

    @abstractmethod
    def moved(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> Any:
        """Return the target of one augmented example.

        Args:
            values: what each of the examples had that it is made of.
            origins: how it is made of them: of itself first, then of what was mixed in.
            sample_rate: in Hz.

        Raises:
            DataError: a value has not the form that this kind of target has.
        """

    @abstractmethod
    def collated(self, values: Sequence[Any], pad: bool) -> Any:
        """Return the targets of a batch as part of it; ``Ragged`` becomes a list of tensors where it arrives."""


@dataclass(frozen=True)
class Frames(Target):
    """Frame-level targets, (F,) or (F, ...): class numbers, activity, multi-hot rows. Each follows its frame's centre.

    The number of frames follows the length of the audio, counted as in the example itself: rounded down or up. Where
    ``Mix`` unites labels, each number becomes the larger of both.

    Args:
        hop_seconds: from one frame to the next.
        centred: frame k lies around ``k * hop_seconds`` (as in a centred spectrogram), instead of beginning there.
        fill: what frames get whose audio is new: padding, the silence that a shift leaves. Their type must hold it.

    In a batch: (B, F, ...); with ``Loader(pad=True)``, a pair of that, filled up with ``fill``, and the numbers of
    frames, (B,).

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> dataset = [{"audio": torch.ones(8), "active": [0, 1, 2, 3]}]
        >>> chain = Chain([ops.Reverse(p=1.0)], sample_rate=100)
        >>> loader = Loader(dataset, chain, device="cpu", targets={"active": Frames(hop_seconds=0.02)})
        >>> next(iter(loader))["active"].tolist()
        [[3, 2, 1, 0]]
    """

    hop_seconds: float
    centred: bool = False
    fill: float = 0

    def __post_init__(self) -> None:
        if not self.hop_seconds > 0:
            raise UsageError(f"Frames: hop_seconds is {self.hop_seconds!r}, but it must be more than 0.")

    def moved(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the example's target where its audio is now."""
        parts = [self._followed(value, each.timeline, sample_rate) for value, each in zip(values, origins)]
        if len(parts) > 1 and parts[0].dtype.kind in "iu" and parts[0].ndim == 1:
            raise DataError(
                "Frames of whole numbers, (frames,), are classes, of which two cannot be mixed into one.",
                "Give them as (frames, classes), activity as floats, or let Mix keep mix_target='original'.",
            )
        shape = parts[0].shape
        united = parts[0]
        for part in parts[1:]:
            if part.shape[1:] != shape[1:]:
                raise DataError(
                    f"Frames of shape {shape} and {part.shape} cannot be mixed: they differ in more than F."
                )
            other = np.full(shape, self.fill, dtype=united.dtype)
            other[: len(part)] = part[: len(united)]
            united = np.maximum(united, other)
        return torch.from_numpy(np.require(united, requirements=["C", "W"]))

    def _followed(self, value: Any, timeline: Timeline, sample_rate: int) -> NDArray[Any]:
        array = _array(value, "Frames", "a number or a row for each frame")
        if array.ndim < 1:
            raise DataError(f"Frames are (F,) or (F, ...), but here is a single {value!r}.")
        if not _holds(array.dtype, self.fill):
            raise DataError(
                f"Frames of type {array.dtype} cannot be filled with {self.fill}.",
                "Give fill a number that the type can hold, or the frames another type.",
            )
        return timeline.frames(array, self.hop_seconds * sample_rate, centred=self.centred, fill=self.fill)

    def collated(self, values: Sequence[torch.Tensor], pad: bool) -> Any:
        """Return the targets of a batch."""
        counts = [len(value) for value in values]
        if not pad:
            if min(counts) < max(counts):
                raise DataError(
                    f"Targets of {min(counts)} and {max(counts)} frames cannot be one batch.", "Give Loader pad=True."
                )
            return torch.stack(list(values))
        filled = [_filled(value, max(counts), self.fill) for value in values]
        return torch.stack(filled), torch.tensor(counts)


@dataclass(frozen=True)
class Stamps(Target):
    """Time stamps in seconds, (N,): beats, onsets. Some may vanish, and some be there twice; they stay in order.

    Where ``Mix`` unites labels, those of both examples are there. In a batch: a list of B tensors.

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Reverse(p=1.0)], sample_rate=100)
        >>> dataset = [(torch.ones(800), [1.0, 2.5, 3.0])]
        >>> loader = Loader(dataset, chain, device="cpu", targets={1: Stamps()})
        >>> [beats.tolist() for wave, beats_of_batch in loader for beats in beats_of_batch]
        [[5.0, 5.5, 7.0]]
    """

    def moved(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the example's target where its audio is now."""
        times = [_array(value, "Stamps", "seconds", np.float64).reshape(-1) for value in values]
        found = [each.timeline.stamps(time * sample_rate)[0] for each, time in zip(origins, times)]
        return torch.from_numpy(np.sort(np.concatenate(found)) / sample_rate).float()

    def collated(self, values: Sequence[torch.Tensor], pad: bool) -> Ragged:
        """Return the targets of a batch."""
        return Ragged(torch.cat(list(values)), [len(value) for value in values])


@dataclass(frozen=True)
class Segments(Target):
    """Segments: rows (start, end, ...) in seconds: words, events, speakers; what follows the end stays as it is.

    One may be cut, lost, split or doubled; its parts that follow each other without a gap are one. They are in order of
    their starts. Where ``Mix`` unites labels, those of both examples are there. In a batch: a list of B lists of
    tuples, or, where an example has an array (N, 2 or more), of B tensors.

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Shift(min_shift=2, max_shift=2, shift_unit="seconds", p=1.0)], sample_rate=100)
        >>> dataset = [{"audio": torch.ones(800), "words": [(1.0, 2.0, "to"), (5.0, 7.0, "be")]}]
        >>> loader = Loader(dataset, chain, device="cpu", targets={"words": Segments()})
        >>> next(iter(loader))["words"][0]
        [(0.0, 1.0, 'be'), (3.0, 4.0, 'to'), (7.0, 8.0, 'be')]
    """

    def moved(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> Any:
        """Return the example's target where its audio is now."""
        found: list[tuple[Any, ...]] = []
        for value, each in zip(values, origins):
            rows = _rows(value)
            bounds = np.asarray([row[:2] for row in rows], dtype=np.float64).reshape(-1, 2)
            bounds_M2, which_M = each.timeline.segments(bounds * sample_rate)
            moved = (bounds_M2 / sample_rate).tolist()
            found += [(*ends, *rows[place][2:]) for ends, place in zip(moved, which_M.tolist())]
        found.sort(key=lambda row: row[0])
        if not isinstance(values[0], np.ndarray | torch.Tensor):
            return found
        width = values[0].shape[1] if values[0].ndim == 2 else 2
        return torch.tensor(found, dtype=torch.float32).reshape(len(found), width)

    def collated(self, values: Sequence[Any], pad: bool) -> Any:
        """Return the targets of a batch."""
        if not all(isinstance(value, torch.Tensor) for value in values):
            return list(values)
        if len({value.shape[1] for value in values}) > 1:
            raise DataError("Segments of different width cannot be one batch.", "Give them as tuples.")
        return Ragged(torch.cat(list(values)), [len(value) for value in values])


@dataclass(frozen=True)
class Label(Target):
    """The class of an example, as a row of ``classes`` numbers; it may come as a number or as such a row (multi-hot).

    Time does not touch it. Where ``Mix`` unites labels, each number becomes the larger of both, or, if ``soft``, the
    mean of both, weighted by their shares of the energy, so that the sum stays. In a batch: (B, classes), float32.

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Mix(min_snr_in_db=3.0, max_snr_in_db=3.0, p=1.0)], sample_rate=100)
        >>> dataset = [(torch.ones(80), k) for k in range(3)]
        >>> targets = {1: Label(classes=3, soft=True)}
        >>> loader = Loader(dataset, chain, batch_size=3, device="cpu", seed=1, targets=targets)
        >>> next(iter(loader))[1].sum(dim=1).tolist()
        [1.0, 1.0, 1.0]
    """

    classes: int
    soft: bool = False

    def moved(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the example's target where its audio is now."""
        rows = [self._row(value) for value in values]
        if self.soft:
            return torch.stack([row * each.share for row, each in zip(rows, origins)]).sum(dim=0)
        return torch.stack(rows).amax(dim=0)

    def _row(self, value: Any) -> torch.Tensor:
        array = _array(value, "Label", f"a class below {self.classes} or a row of {self.classes} numbers")
        if array.shape == (self.classes,):
            return torch.from_numpy(array.astype(np.float32))
        if array.size != 1 or array.dtype.kind not in "iu" or not 0 <= array.item() < self.classes:
            raise DataError(
                f"A label is {value!r}, but it must be a class from 0 to {self.classes - 1} or {self.classes} numbers."
            )
        return torch.nn.functional.one_hot(torch.tensor(array.item()), self.classes).float()

    def collated(self, values: Sequence[torch.Tensor], pad: bool) -> torch.Tensor:
        """Return the targets of a batch."""
        return torch.stack(list(values))


class Followers:
    """The targets of a Loader: where they are in an example, and what becomes of them.

    Raises:
        UsageError: what is given is no mapping of places to kinds of targets.
    """

    def __init__(self, targets: Mapping[Where, Target] | None, chain: Chain, start: int) -> None:
        targets = {} if targets is None else targets
        if not isinstance(targets, Mapping) or not all(isinstance(kind, Target) for kind in targets.values()):
            raise UsageError(
                f"targets is {targets!r}, but it must map keys or positions in an example to kinds of targets.",
                'For example: targets={"beats": audioaug.Stamps()}. There are Frames, Stamps, Segments and Label.',
            )
        self.targets, self.chain, self.start = dict(targets), chain, start

    def __bool__(self) -> bool:
        return bool(self.targets)

    def moved(
        self,
        examples: Sequence[Any],
        draws: Draws,
        begun: Sequence[Timeline],
        channels: int,
        audio_key: Where | None = None,
    ) -> list[Any]:
        """Return the examples with their targets where the whole chain puts them.

        Args:
            examples: of a batch, after the ops that run on clips.
            draws: theirs.
            begun: what these ops did to their time.
            channels: of the audio.
            audio_key: where the examples have it.

        Raises:
            UsageError: a target has the place of the audio.
        """
        if audio_key in self.targets:
            raise UsageError(
                f"targets names {audio_key!r}, which is the audio itself.", "Give it the places of labels only."
            )
        origins = follow(self.chain, draws, begun, start=self.start, channels=channels)
        moved = list(examples)
        for place, kind in self.targets.items():
            values = [item_of(example, place, "An example", NOWHERE) for example in examples]
            for row, own in enumerate(origins):
                target = kind.moved([values[each.row] for each in own], own, self.chain.sample_rate)
                moved[row] = with_item(moved[row], place, target)
        return moved

    def collated(self, examples: Sequence[Any], pad: bool) -> dict[Where, Any]:
        """Return the targets of a batch, by where they belong in it."""
        return {
            place: kind.collated([item_of(example, place) for example in examples], pad)
            for place, kind in self.targets.items()
        }


def unpacked(batch: Any) -> Any:
    """Return the batch as the user gets it: a list of tensors in the place of each ``Ragged``."""
    items = enumerate(batch) if isinstance(batch, tuple | list) else batch.items() if isinstance(batch, Mapping) else ()
    for place, item in items:
        if isinstance(item, Ragged):
            batch = with_item(batch, place, list(item.flat.split(item.counts)))
    return batch


def check_followed(chain: Chain, plan: Plan) -> None:
    """Raise ``PlanError`` if targets cannot follow the audio with this plan."""
    chain.check_followed(plan.cut)
    if plan.device_engine == "torch-audiomentations":
        for op in (leaf for top in chain.ops[plan.cut :] for leaf in leaves(top)):
            if op.capabilities.changes_timing and op.torch_audiomentations() is not None:
                raise PlanError(
                    f"Targets cannot follow {op.name} of torch-audiomentations, which may move time otherwise.",
                    "Use device_engine='batched'.",
                )


def _array(value: Any, kind: str, what: str, dtype: Any = None) -> NDArray[Any]:
    try:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        array = array.astype(dtype) if dtype else array
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{kind}: a target must be {what}, but it is {value!r}.")
    return array


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    if dtype.kind == "f":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return low <= number <= high and number == int(number)


def _rows(value: Any) -> list[tuple[Any, ...]]:
    if not hasattr(value, "__len__") or isinstance(value, str | Mapping):
        raise DataError(f"Segments are a list of rows (start, end, ...), but here is {value!r}.")
    return [_row(row) for row in value]


def _row(row: Any) -> tuple[Any, ...]:
    try:
        cells = tuple(row.tolist() if isinstance(row, np.ndarray | torch.Tensor) else row)
        float(cells[0]), float(cells[1])
    except (TypeError, ValueError, IndexError):
        raise DataError(f"A segment is {row!r}, but it must be (start, end, ...), both in seconds.") from None
    return cells


def _filled(value: torch.Tensor, count: int, fill: float) -> torch.Tensor:
    filled = value.new_full((count, *value.shape[1:]), fill)
    filled[: len(value)] = value
    return filled
