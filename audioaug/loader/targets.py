"""Targets: labels that follow the audio through ops that change its timing, and are mixed when it is mixed.

Everything is computed on the host, from the draws: a worker transforms the labels, also for ops that run on the
device. Audio that is cut or replaced by padding loses its labels; audio that is silenced (``TimeMask``) or masked by
noise keeps them.

Shapes: B examples, F frames, S segments.
"""

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Draws, Key, Origin, Timeline, follow, leaves
from audioaug.core.distributions import FloatArray
from audioaug.core.fields import real_number
from audioaug.errors import DataError, PlanError, UsageError
from audioaug.loader.examples import Field, item_of, with_item
from audioaug.records import Plan

NEXT_STEP = "Give targets the key or position."


class Ragged(NamedTuple):
    """Tensors of B examples as one while they are sent: each separate tensor costs a file and a copy."""

    flat: torch.Tensor
    counts: list[int]


class LabelTransform(ABC):
    """A kind of label: how it follows the audio of an example, and how it is collated."""

    @abstractmethod
    def apply(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> Any:
        """Return the label of one augmented example.

        Args:
            values: the labels of the examples that it is made of: its own first, then those of examples mixed in.
            origins: for each of them, what happened to its time, and its share.
            sample_rate: in Hz.

        Raises:
            DataError: a label has the wrong form.
        """

    @abstractmethod
    def collate(self, values: Sequence[Any], pad: bool) -> Any:
        """Return the labels of a batch; ``Ragged`` becomes a list of tensors in the training process."""


@dataclass(frozen=True)
class Frames(LabelTransform):
    """Frame-level labels, (F,) or (F, ...): class indices, activity, multi-hot rows. Each follows its frame's centre.

    The number of frames follows the length of the audio, rounded down or up as in the example itself. Where ``Mix``
    combines labels, the element-wise maximum is taken.

    Labels must span their clip: the number of rows times ``hop_seconds`` may differ from its duration by up to a
    quarter of it plus 4 frames. Otherwise a batch raises ``DataError``.

    Args:
        hop_seconds: from one frame to the next, in seconds.
        centred: whether frame k is centred at ``k * hop_seconds`` (as in a centred spectrogram), or begins there.
        fill: the value of frames without original audio: padding, or the silence that a shift leaves. The labels' type
            must be able to hold it.

    In a batch: (B, F, ...); with ``Loader(pad=True)``, a pair of that, padded with ``fill``, and the numbers of frames,
    (B,).

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
        if not 0 < real_number(self.hop_seconds) < math.inf:
            raise UsageError(f"Frames: expected hop_seconds as a finite number above 0, got {self.hop_seconds!r}.")
        if not isinstance(self.fill, int | float | np.number | np.bool_ | torch.Tensor):
            raise UsageError(f"Frames: expected fill as a number, got {self.fill!r}.")

    def apply(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the label of one augmented example."""
        parts = [self._frames(value, origin.timeline, sample_rate) for value, origin in zip(values, origins)]
        if len(parts) > 1 and parts[0].dtype.kind in "iu" and parts[0].ndim == 1:
            raise DataError(
                "Frames of integers, (frames,), are class indices: those of two examples cannot be combined.",
                "Give them as (frames, classes), give activity as floats, or use Mix(mix_target='original').",
            )
        shape = parts[0].shape
        combined = parts[0]
        for part in parts[1:]:
            if part.shape[1:] != shape[1:]:
                raise DataError(
                    f"Frames of shapes {shape} and {part.shape} cannot be combined: only the first axis may differ."
                )
            other = np.full(shape, self.fill, dtype=combined.dtype)
            other[: len(part)] = part[: len(combined)]
            combined = np.maximum(combined, other)
        return torch.from_numpy(np.require(combined, requirements=["C", "W"]))

    def _frames(self, value: Any, timeline: Timeline, sample_rate: int) -> NDArray[Any]:
        array = _array(value, "Frames", "a number or a row for each frame")
        if array.ndim < 1:
            raise DataError(f"Frames: expected labels of shape (F,) or (F, ...), got the single number {value!r}.")
        if not _holds(array.dtype, self.fill):
            raise DataError(
                f"Frames: fill is {self.fill}, which {array.dtype} cannot hold.",
                "Use another fill, or labels of another type.",
            )
        self._check_span(len(array), timeline.length_in, sample_rate)
        return timeline.frames(array, self.hop_seconds * sample_rate, centred=self.centred, fill=self.fill)

    def _check_span(self, count: int, length: int, sample_rate: int) -> None:
        """Raise ``DataError`` if this number of frames does not span a clip of this length in samples."""
        hop = self.hop_seconds * sample_rate
        if length and abs(count * hop - length) > length / 4 + 4 * hop:
            raise DataError(
                f"Frames: {count} rows with a hop of {self.hop_seconds:g} s span {count * self.hop_seconds:g} s, but "
                f"the clip lasts {length / sample_rate:g} s.",
                "Give hop_seconds in seconds, the frames as the first axis, and pad or cut the labels like the clip.",
            )

    def collate(self, values: Sequence[torch.Tensor], pad: bool) -> Any:
        """Return the labels of a batch."""
        counts = [len(value) for value in values]
        if not pad:
            if min(counts) < max(counts):
                raise DataError(
                    f"Labels of {min(counts)} and {max(counts)} frames cannot be one batch.", "Give Loader pad=True."
                )
            return torch.stack(list(values))
        padded = [_padded(value, max(counts), self.fill) for value in values]
        return torch.stack(padded), torch.tensor(counts)


@dataclass(frozen=True)
class Stamps(LabelTransform):
    """Time stamps in seconds, (N,), such as beats or onsets; sorted. Ops may remove or duplicate some.

    Stamps before the start or after the end of the clip are dropped; NaN raises ``DataError``. Where
    ``Mix`` combines labels, those of both examples are kept. In a batch: a list of B tensors.

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Reverse(p=1.0)], sample_rate=100)
        >>> dataset = [(torch.ones(800), [1.0, 2.5, 3.0])]
        >>> loader = Loader(dataset, chain, device="cpu", targets={1: Stamps()})
        >>> [beats.tolist() for wave, beats_of_batch in loader for beats in beats_of_batch]
        [[5.0, 5.5, 7.0]]
    """

    def apply(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the label of one augmented example."""
        times = [_times(value) for value in values]
        stamps = [origin.timeline.stamps(time * sample_rate)[0] for origin, time in zip(origins, times)]
        return torch.from_numpy(np.sort(np.concatenate(stamps)) / sample_rate).float()

    def collate(self, values: Sequence[torch.Tensor], pad: bool) -> Ragged:
        """Return the labels of a batch."""
        return Ragged(torch.cat(list(values)), [len(value) for value in values])


@dataclass(frozen=True)
class Segments(LabelTransform):
    """Segments: rows (start, end, ...) in seconds, such as words, events or speakers; further columns are unchanged.

    Ops may cut, remove, split or duplicate a segment; parts of one without a gap between them are merged. They are
    sorted by start. One that ends where it starts is kept or removed as a stamp is. What lies outside of the clip is
    cut off. A bound that is NaN, or a segment that ends before it starts, raises ``DataError``.

    Where ``Mix`` combines labels, those of both examples are kept. In a batch: a list of B lists of tuples, or of B
    tensors if the examples have arrays (S, 2 or more). An empty array of any shape, and an empty list among arrays, is
    an example without segments.

    Examples:
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Shift(min_shift=2, max_shift=2, shift_unit="seconds", p=1.0)], sample_rate=100)
        >>> dataset = [{"audio": torch.ones(800), "words": [(1.0, 2.0, "to"), (5.0, 7.0, "be")]}]
        >>> loader = Loader(dataset, chain, device="cpu", targets={"words": Segments()})
        >>> next(iter(loader))["words"][0]
        [(0.0, 1.0, 'be'), (3.0, 4.0, 'to'), (7.0, 8.0, 'be')]
    """

    def apply(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> Any:
        """Return the label of one augmented example."""
        segments: list[tuple[Any, ...]] = []
        rows_of = [_rows(value) for value in values]
        for rows, origin in zip(rows_of, origins):
            bounds_M2, row_M = origin.timeline.segments(_bounds(rows) * sample_rate)
            pairs = (bounds_M2 / sample_rate).tolist()
            segments += [(*pair, *rows[row][2:]) for pair, row in zip(pairs, row_M.tolist())]
        segments.sort(key=lambda segment: segment[0])
        kind = next((value for value in values if len(value)), values[0])  # one without segments has no say
        if not isinstance(kind, np.ndarray | torch.Tensor):
            return segments
        return _as_tensor(segments, _columns(rows_of, values))

    def collate(self, values: Sequence[Any], pad: bool) -> Any:
        """Return the labels of a batch."""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if not tensors or any(len(value) and not isinstance(value, torch.Tensor) for value in values):
            return list(values)
        filled = [value for value in tensors if len(value)] or [max(tensors, key=lambda value: value.shape[1])]
        if len({value.shape[1] for value in filled}) > 1:
            raise DataError("Segments with different numbers of columns cannot be one batch.", "Give them as tuples.")
        return Ragged(torch.cat(filled), [len(value) for value in values])


@dataclass(frozen=True)
class Label(LabelTransform):
    """The class of an example, as a row of ``classes`` numbers; given as a class index or as such a row (multi-hot).

    Ops do not change it, except ``Mix``: the element-wise maximum of both rows is taken, or, if ``soft``, their mean
    weighted by the examples' shares of the energy, which keeps the sum. In a batch: (B, classes), float32.

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

    def __post_init__(self) -> None:
        whole = hasattr(self.classes, "__index__") and not isinstance(self.classes, bool)
        if not whole or self.classes < 1:
            raise UsageError(f"Label: expected classes as an integer above 0, got {self.classes!r}.")

    def apply(self, values: Sequence[Any], origins: Sequence[Origin], sample_rate: int) -> torch.Tensor:
        """Return the label of one augmented example."""
        rows = [self._row(value) for value in values]
        if self.soft:
            return torch.stack([row * origin.share for row, origin in zip(rows, origins)]).sum(dim=0)
        return torch.stack(rows).amax(dim=0)

    def _row(self, value: Any) -> torch.Tensor:
        array = _array(value, "Label", f"a class index below {self.classes} or {self.classes} numbers")
        if array.shape == (self.classes,):
            return torch.from_numpy(array.astype(np.float32))
        if array.size != 1 or array.dtype.kind not in "iu" or not 0 <= array.item() < self.classes:
            raise DataError(
                f"Label: expected a class index from 0 to {self.classes - 1} or {self.classes} numbers, got {value!r}."
            )
        return torch.nn.functional.one_hot(torch.tensor(array.item()), self.classes).float()

    def collate(self, values: Sequence[torch.Tensor], pad: bool) -> torch.Tensor:
        """Return the labels of a batch."""
        return torch.stack(list(values))


class LabelTransforms:
    """The ``targets`` of a Loader: the label transform of each field that holds labels.

    Raises:
        UsageError: ``targets`` does not map fields to label transforms.
    """

    def __init__(self, targets: Mapping[Field, LabelTransform] | None, chain: Chain, start: int) -> None:
        targets = {} if targets is None else targets
        if not isinstance(targets, Mapping) or not all(isinstance(each, LabelTransform) for each in targets.values()):
            raise UsageError(
                f"Expected targets to map keys or positions in an example to Frames, Stamps, Segments or Label, got "
                f"{targets!r}.",
                'For example: targets={"beats": audioaug.Stamps()}.',
            )
        self.transforms, self.chain, self.start = dict(targets), chain, start

    def __bool__(self) -> bool:
        return bool(self.transforms)

    def apply(
        self,
        examples: Sequence[Any],
        draws: Draws,
        timelines: Sequence[Timeline],
        channels: int,
        keys: Sequence[Key],
        audio_key: Field | None = None,
    ) -> list[Any]:
        """Return the examples with their labels as the whole chain transforms them.

        Args:
            examples: of a batch, after the ops that run on clips.
            draws: of these examples.
            timelines: what the ops that run on clips did to their time.
            channels: of the audio.
            keys: of these examples, to name them.
            audio_key: the field with the audio.

        Raises:
            UsageError: a target names the field with the audio.
            DataError: a label is invalid, or does not fit the audio.
        """
        if audio_key in self.transforms:
            raise UsageError(
                f"targets names {audio_key!r}, which is the audio itself.", "Name fields with labels only."
            )
        origins = follow(self.chain, draws, timelines, start=self.start, channels=channels)
        results = list(examples)
        for field, transform in self.transforms.items():
            values = [item_of(example, field, "An example", NEXT_STEP) for example in examples]
            for row, sources in enumerate(origins):
                try:
                    label = transform.apply([values[each.row] for each in sources], sources, self.chain.sample_rate)
                except DataError as error:
                    names = " and ".join(repr(keys[each.row]) for each in sources)
                    raise DataError(f"Label of example {names}: {error.message}", error.next_step) from None
                results[row] = with_item(results[row], field, label)
        return results

    def collate(self, examples: Sequence[Any], pad: bool) -> dict[Field, Any]:
        """Return the labels of a batch by their fields."""
        return {
            field: transform.collate([item_of(example, field) for example in examples], pad)
            for field, transform in self.transforms.items()
        }


def unpack_ragged(batch: Any) -> Any:
    """Return the batch with a list of tensors in place of each ``Ragged``."""
    items = enumerate(batch) if isinstance(batch, tuple | list) else batch.items() if isinstance(batch, Mapping) else ()
    for field, item in items:
        if isinstance(item, Ragged):
            batch = with_item(batch, field, list(item.flat.split(item.counts)))
    return batch


def check_targets(chain: Chain, plan: Plan) -> None:
    """Raise ``PlanError`` if labels cannot follow the audio with this plan."""
    chain.check_followed(plan.cut)
    if plan.device_engine == "torch-audiomentations":
        for op in (leaf for top in chain.ops[plan.cut :] for leaf in leaves(top)):
            if op.capabilities.changes_timing and op.torch_audiomentations() is not None:
                raise PlanError(
                    f"Targets cannot follow {op.name} of torch-audiomentations, which may change timing differently.",
                    "Use device_engine='batched'.",
                )


def _array(value: Any, kind: str, what: str, dtype: Any = None) -> NDArray[Any]:
    try:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        array = array.astype(dtype) if dtype else array
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{kind}: expected {what}, got {value!r}.")
    native = np.dtype(np.float64) if array.dtype.char == "g" else array.dtype.newbyteorder("=")
    return array.astype(native, copy=False)  # torch has neither long doubles nor another byte order


def _times(value: Any) -> FloatArray:
    times = _array(value, "Stamps", "seconds", np.float64).reshape(-1)
    if np.isnan(times).any():
        raise DataError(
            f"Stamps: expected seconds, got NaN at position {int(np.argmax(np.isnan(times)))}.",
            "Correct or remove it in the dataset.",
        )
    return times


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    if dtype.kind == "f":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return low <= number <= high and number == int(number)


def _rows(value: Any) -> list[tuple[Any, ...]]:
    if not hasattr(value, "__len__") or isinstance(value, str | Mapping) or getattr(value, "ndim", 1) == 0:
        raise DataError(f"Segments: expected a list of rows (start, end, ...), got {value!r}.")
    return [_row(row) for row in value]


def _row(row: Any) -> tuple[Any, ...]:
    try:
        cells = tuple(row.tolist() if isinstance(row, np.ndarray | torch.Tensor) else row)
        float(cells[0]), float(cells[1])
    except (TypeError, ValueError, IndexError):
        raise DataError(f"Segments: expected rows (start, end, ...) with both in seconds, got {row!r}.") from None
    return cells


def _bounds(rows: Sequence[tuple[Any, ...]]) -> FloatArray:
    """Return starts and ends, (S, 2); raise ``DataError`` if one is NaN, or an end lies before its start."""
    bounds_S2 = np.asarray([row[:2] for row in rows], dtype=np.float64).reshape(-1, 2)
    is_valid_S = bounds_S2[:, 0] <= bounds_S2[:, 1]
    if not is_valid_S.all():
        raise DataError(
            "Segments: expected rows (start, end, ...) in seconds, with start no later than end, got "
            f"{rows[int(np.argmin(is_valid_S))]!r}.",
            "Correct or remove it in the dataset.",
        )
    return bounds_S2


def _columns(rows_of: Sequence[Sequence[tuple[Any, ...]]], values: Sequence[Any]) -> int:
    """Return how many columns the rows of several values have; raise ``DataError`` if they differ."""
    columns = sorted({len(row) for rows in rows_of for row in rows})
    if len(columns) > 1:
        raise DataError(
            f"Segments with {columns[0]} and {columns[-1]} columns cannot be one array.",
            "Give all arrays the same columns, or give lists of tuples.",
        )
    return columns[0] if columns else max([2, *(value.shape[1] for value in values if getattr(value, "ndim", 0) == 2)])


def _as_tensor(segments: list[tuple[Any, ...]], columns: int) -> torch.Tensor:
    """Return segments as a tensor, (S, columns); raise ``DataError`` if they hold something else than numbers."""
    try:
        return torch.tensor(segments, dtype=torch.float32).reshape(len(segments), columns)
    except (TypeError, ValueError):
        is_text = (row for row in segments if not all(isinstance(cell, numbers.Real) for cell in row))
        raise DataError(
            f"Segments: an array holds numbers only, got the row {next(is_text, segments[0])!r}.",
            "Give all segments as lists of tuples.",
        ) from None


def _padded(value: torch.Tensor, count: int, fill: float) -> torch.Tensor:
    padded = value.new_full((count, *value.shape[1:]), fill)
    padded[: len(value)] = value
    return padded
