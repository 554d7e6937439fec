"""Examples: which field holds the audio of what a dataset returns, and of the batch made from it.

Known forms: a bare wave; a tuple or list with the wave as its first item; a dict with the wave under ``"audio"`` or in
the only field that can be audio; a custom type with its own ``to(device)`` and the wave in its attribute ``audio``.
``audio_key`` names another field. A wave may also be in a form of Hugging Face: a dict with ``"array"`` and
``"sampling_rate"``, a decoder, or undecoded, a dict with ``"bytes"`` and ``"path"``.

Shapes: B examples, C channels, T samples.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.encoded import decode
from audioaug.core import Key, key_of
from audioaug.errors import DataError
from audioaug.units import format_hz

Field: TypeAlias = str | int
"""A field of an example or batch: a key of a dict, a position in a tuple, or an attribute of a custom batch."""

KeyOf: TypeAlias = Field | Callable[[Any], Key]
"""Where an example has its key: in a field, or what a function of the example returns."""

AUDIO = "audio"

LENGTH_RATIO = 10
"""A wave that nothing names is more than this many times longer than any other floating-point field."""


def has_own_to(content: Any) -> bool:
    """Return whether a batch, or a part of one, is of a custom type: no tensor, but with its own ``to(device)``.

    Examples are transformers' ``BatchEncoding``, torch's ``PackedSequence``, and classes of the user.
    """
    plain = torch.Tensor, torch.UntypedStorage, torch.TypedStorage  # a storage stays where it is
    return not isinstance(content, plain) and callable(getattr(type(content), "to", None))


def _has_attributes(content: Any) -> bool:
    """Return whether a batch is a custom type whose fields are attributes."""
    return has_own_to(content) and not isinstance(content, Mapping | tuple | list)


def audio_field(example: Any, key: Field | None = None, what: str = "An example") -> Field | None:
    """Return the field that holds the audio of an example or batch; ``None`` if the example is the audio itself.

    Without a key, it is the first item of a tuple or list. In a dict it is ``"audio"``, else the one field that can be
    audio: audio of Hugging Face, or a floating-point tensor, array or list with 1 to 3 axes. Integers, booleans, single
    numbers and text are never audio. Of several candidates, audio of Hugging Face is chosen, else the field whose
    longest axis is more than 10 times that of every other: a wave is that much longer than embeddings, spectrograms and
    frame labels.

    Args:
        example: an example or a batch.
        key: the field, if it is known: a key of a dict, or a position in a tuple.
        what: the subject of an error message.

    Raises:
        DataError: there is no such key, no field that can be audio, or several.
    """
    if isinstance(key, str | int) and isinstance(example, Mapping) and key in example:
        return key  # the value is not read: that may decode it
    if key is not None:
        item_of(example, key, what, "Give audio_key the key or position of the audio.")
        if isinstance(key, int) and key < 0 and isinstance(example, tuple | list):
            return len(example) + key
        return key
    if isinstance(example, Mapping):
        return AUDIO if AUDIO in example else _likely_field(example, what)
    if isinstance(example, tuple | list) and example:
        return 0
    if isinstance(example, torch.Tensor | np.ndarray):
        return None
    if _has_attributes(example) and hasattr(example, AUDIO):
        return AUDIO
    raise DataError(
        f"{what} is {describe(example)}: expected a wave, a tuple that starts with one, or a dict with one under "
        f"{AUDIO!r}.",
        "If the audio is in another field, give audio_key its key or position.",
    )


def _likely_field(example: Mapping[Any, Any], what: str) -> Field:
    """Return the field of a dict that holds its audio; raise ``DataError`` if there is none, or more than one."""
    longest = {key: axis for key, value in example.items() if (axis := _longest_axis(value)) is not None}
    if not longest:
        raise DataError(
            f"{what} is {describe(example)}: no field can be audio, that is, a floating-point array.",
            "Give audio_key the key of the audio.",
        )
    first, *others = sorted(longest, key=longest.__getitem__, reverse=True)
    if others and not LENGTH_RATIO * longest[others[0]] < longest[first]:
        candidates = [repr(key) for key in longest]
        raise DataError(
            f"{what} is {describe(example)}: {', '.join(candidates[:-1])} and {candidates[-1]} can be the audio.",
            f"Name one, for example audio_key={candidates[0]}.",
        )
    return first


def _longest_axis(value: Any) -> float | None:
    """Return the longest axis of a field that can be audio, infinite for audio of Hugging Face; else ``None``."""
    if isinstance(value, Mapping):
        return math.inf if {"array", "sampling_rate"} <= value.keys() or is_encoded(value) else None
    if hasattr(value, "get_all_samples"):  # the decoder of torchcodec, and datasets' subclass of it
        return math.inf
    if isinstance(value, list):
        return len(value) if value and isinstance(value[0], float) else None
    floating = (isinstance(value, torch.Tensor) and value.is_floating_point()) or (
        isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )
    return max(value.shape) if floating and 1 <= value.ndim <= 3 else None


def batch_field(batch: Any, field: Field | None = None) -> Field | None:
    """Return the field that holds the audio of a batch, given that of its examples.

    That is the same field, unless a collate_fn made a batch of another form, such as a dict of tuples: then it is the
    one that ``audio_field`` finds.
    """
    named = (isinstance(batch, Mapping) and field in batch) or _has_attribute(batch, field)
    same_form = named or isinstance(batch, Mapping if isinstance(field, str) else tuple | list)
    return audio_field(batch, field if same_form else None)


def get_wave(batch: Any, field: Field | None = None) -> Any:
    """Return the audio of a batch or example, unconverted; raise ``DataError`` if it has none.

    ``field`` is what ``audio_field`` returned for an example.
    """
    found = batch_field(batch, field)
    if found is None:
        return batch
    return getattr(batch, str(found)) if _has_attributes(batch) else batch[found]


def with_wave(batch: Any, wave: Any, field: Field | None = None) -> Any:
    """Return the batch or example with other audio, without changing the original. ``field`` is as for ``get_wave``."""
    found = batch_field(batch, field)
    return wave if found is None else with_item(batch, found, wave)


def samples_of(example: Any, sample_rate: int, field: Field | None = None) -> NDArray[np.float32]:
    """Return an example's audio as an array (T,) or (C, T); raise ``DataError`` if it has another sample rate.

    Undecoded audio is decoded and converted to the sample rate. ``field`` is what ``audio_field`` returned for it.
    """
    wave = get_wave(example, field)
    if is_encoded(wave):
        return decode(wave, sample_rate)
    if hasattr(wave, "__getitem__") and not isinstance(wave, np.ndarray | torch.Tensor | list | tuple):
        rate, wave = _hugging_face(wave)
        if rate != sample_rate:
            raise DataError(
                f"The chain is for {format_hz(sample_rate)}, but an example has a sample rate of {format_hz(rate)}.",
                f"Convert the dataset, for example with cast_column('audio', Audio(sampling_rate={sample_rate})).",
            )
    return _as_array(wave) if isinstance(wave, torch.Tensor) else np.asarray(wave)


def _as_array(wave: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's samples; raise ``DataError`` if numpy has no such arrays."""
    try:
        return wave.detach().cpu().numpy()
    except (TypeError, NotImplementedError):  # sparse, without data, or of a type of torch's own
        raise DataError(
            f"Expected the audio of an example to be a dense float32 tensor, got {wave.dtype}, {wave.layout}, on "
            f"{wave.device}.",
            "Convert it in the dataset.",
        ) from None


def is_encoded(audio: Any) -> bool:
    """Return whether audio is undecoded, in the form of Hugging Face."""
    return isinstance(audio, Mapping) and {"bytes", "path"} <= audio.keys() and "array" not in audio


def _hugging_face(audio: Any) -> tuple[int, Any]:
    """Return sample rate and samples of a dict, or of the decoder that replaces it since ``datasets`` 4."""
    try:
        return audio["sampling_rate"], audio["array"]
    except (KeyError, TypeError, IndexError):
        raise DataError(
            "Expected the audio of an example to be a wave, or to have 'array' and 'sampling_rate', got "
            f"{type(audio).__name__}."
        ) from None


def own_length(example: Any, field: Field, samples: int) -> int:
    """Return the length of an example that a field holds; raise ``DataError`` unless it is from 0 to ``samples``."""
    value = item_of(example, field, "An example", "Give lengths the key or position.")
    scalar = isinstance(value, torch.Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1
    number = value.item() if scalar else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= samples:
        raise DataError(
            f"Expected an example's length at {field!r} in samples, an integer from 0 to {samples}, got {value!r}.",
            "Convert a relative length, as in SpeechBrain, with round(length * wave.shape[-1]).",
        )
    return number


def own_key(example: Any, key: KeyOf) -> Key:
    """Return the key of an example, as ``key`` says; raise ``DataError`` if it is none."""
    value = key(example) if callable(key) else item_of(example, key, "An example", "Give key the key or position.")
    return key_of(value, "What key= returns for an example" if callable(key) else f"An example's key at {key!r}")


def add_lengths(batch: Any, length_B: torch.Tensor) -> Any:
    """Return the batch with the clips' lengths: under ``"lengths"`` in a dict, as the last item otherwise."""
    if isinstance(batch, Mapping):
        return {**batch, "lengths": length_B}
    return [*batch, length_B] if isinstance(batch, tuple | list) else [batch, length_B]


def with_lengths(batch: Any, length_B: torch.Tensor, field: Field | None = None) -> Any:
    """Return a batch with other lengths, in the given field or where ``add_lengths`` puts them."""
    if field is None:
        field = "lengths" if isinstance(batch, Mapping) else -1
    return with_item(batch, field, length_B)


def padded(waves: Sequence[torch.Tensor], value: float = 0.0) -> list[torch.Tensor]:
    """Return clips, (..., T) each, all as long as the longest, padded at their ends.

    Raises:
        DataError: their other dimensions differ.
    """
    shapes = {tuple(wave.shape[:-1]) for wave in waves}
    if len(shapes) > 1:
        raise DataError(f"Clips with channel shapes {sorted(shapes)} cannot be one batch.", "Mix them down.")
    longest = max(wave.shape[-1] for wave in waves)
    missing = [longest - wave.shape[-1] for wave in waves]
    if not any(missing):  # padding by zero samples copies, too
        return list(waves)
    return [torch.nn.functional.pad(wave, (0, count), value=value) for wave, count in zip(waves, missing)]


def item_of(content: Any, field: Field, what: str = "An example", next_step: str = "") -> Any:
    """Return a field of an example or batch; raise ``DataError`` if it does not exist.

    ``what`` is the subject of the error message.
    """
    if isinstance(content, Mapping | tuple | list):
        try:
            return content[field]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            pass
    if _has_attribute(content, field):
        return getattr(content, str(field))
    raise DataError(f"{what} has no field {field!r}: it is {describe(content)}.", next_step)


def _has_attribute(content: Any, field: Field | None) -> bool:
    return isinstance(field, str) and _has_attributes(content) and hasattr(content, field)


def describe(content: Any) -> str:
    """Describe an example or batch: its type and its fields."""
    if isinstance(content, Mapping):
        return "a dict with " + ", ".join(f"{key!r} ({_kind(value)})" for key, value in content.items())
    return f"a {type(content).__name__}" + (f" of {len(content)}" if isinstance(content, tuple | list) else "")


def _kind(value: Any) -> str:
    """Describe a field: type and shape of an array, type of anything else."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')}, {tuple(value.shape)}"
    return type(value).__name__


def with_item(content: Any, field: Field, value: Any) -> Any:
    """Return the example or batch with another value in a field that it has, without changing the original."""
    if isinstance(content, tuple | list):
        items = list(content)
        items[int(field)] = value
        return type(content)(*items) if hasattr(content, "_fields") else type(content)(items)
    if not has_own_to(content):
        return {**content, field: value}
    changed = copy.copy(content)
    if isinstance(changed, MutableMapping):
        changed[field] = value
        return changed
    return _with_attribute(changed, str(field), value)


def _with_attribute(changed: Any, name: str, value: Any) -> Any:
    """Set an attribute of a custom batch; raise ``DataError`` if it is read-only."""
    try:
        setattr(changed, name, value)
    except dataclasses.FrozenInstanceError:
        return dataclasses.replace(changed, **{name: value})
    except AttributeError as error:
        raise DataError(
            f"{type(changed).__name__}.{name} cannot be set: {error}.", "Make it a plain attribute."
        ) from None
    return changed
