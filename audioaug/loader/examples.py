"""Examples: where the audio is in what a dataset returns, and in the batch made of it.

Known forms: a bare wave; a tuple or list, with the wave as its first item; a dict, with the wave under ``"audio"`` or
in the only field that can be audio. ``audio_key`` names another field. A wave may also come as Hugging Face has it: a
dict with ``"array"`` and ``"sampling_rate"``, a decoder, or undecoded, a dict with ``"bytes"`` and ``"path"``.

Shapes: B examples, C channels, T samples.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.encoded import decode
from audioaug.errors import DataError, UsageError, first_line
from audioaug.units import format_hz

KEY = "audio"

LONGER = 10
"""How many times longer than any other floating-point field a wave is, if nothing names it."""

Where = str | int
"""Where something is in an example or batch: a key of a dict, or a position in a tuple."""


def audio_field(example: Any, key: Where | None = None, what: str = "An example") -> Where | None:
    """Return where the audio is in an example or batch; ``None`` if the example is the audio itself.

    Without a key, it is the first item of a tuple or list. In a dict it is ``"audio"``, else the one field that can be
    audio: Hugging Face's audio, or a floating-point tensor, array or list with 1 to 3 axes. Integers, booleans, numbers
    and text are never audio. If several fields can be, Hugging Face's is taken, else the one whose longest axis is more
    than 10 times that of every other, as a wave is beside embeddings, spectrograms and frame labels.

    Args:
        example: an example or a batch.
        key: where its audio is: a key of a dict, or a position in a tuple.
        what: to call it in an error.

    Raises:
        DataError: there is nothing at the key, nothing that can be audio, or several fields that can.
    """
    if isinstance(key, str | int) and isinstance(example, Mapping) and key in example:
        return key  # without a look at the value, which may cost a decoding
    if key is not None:
        item_of(example, key, what, "Give audio_key the key or the position of the audio.")
        if isinstance(key, int) and key < 0 and isinstance(example, tuple | list):
            return len(example) + key
        return key
    if isinstance(example, Mapping):
        return KEY if KEY in example else _likely_field(example, what)
    if isinstance(example, tuple | list) and example:
        return 0
    if isinstance(example, torch.Tensor | np.ndarray):
        return None
    raise DataError(
        f"{what} is {form_of(example)}, but it must be a wave, a tuple that starts with one, or a dict with one "
        f"under {KEY!r}.",
        "If it is elsewhere, give audio_key its key or position.",
    )


def _likely_field(example: Mapping[Any, Any], what: str) -> Where:
    """Return the field of a dict that is its audio; raise ``DataError`` if that is unclear."""
    longest = {key: axis for key, value in example.items() if (axis := _longest_axis(value)) is not None}
    if not longest:
        raise DataError(
            f"{what} is {form_of(example)}, of which nothing can be audio: no floating-point array.",
            "Give audio_key the key of the audio.",
        )
    first, *others = sorted(longest, key=longest.__getitem__, reverse=True)
    if others and not LONGER * longest[others[0]] < longest[first]:
        several = [repr(key) for key in longest]
        raise DataError(
            f"{what} is {form_of(example)}, of which {', '.join(several[:-1])} and {several[-1]} can be the audio.",
            f"Name one, as in audio_key={several[0]}.",
        )
    return first


def _longest_axis(value: Any) -> float | None:
    """Return the longest axis of a field that can be audio, infinite for Hugging Face's; ``None`` for other fields."""
    if isinstance(value, Mapping):
        return math.inf if {"array", "sampling_rate"} <= value.keys() or _is_encoded(value) else None
    if hasattr(value, "get_all_samples"):  # the decoder of torchcodec, and datasets' subclass of it
        return math.inf
    if isinstance(value, list):
        return len(value) if value and isinstance(value[0], float) else None
    floating = (isinstance(value, torch.Tensor) and value.is_floating_point()) or (
        isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )
    return max(value.shape) if floating and 1 <= value.ndim <= 3 else None


def batch_field(batch: Any, where: Where | None = None) -> Where | None:
    """Return where the audio is in a batch of examples that have it at ``where``.

    That is the same place, unless a collate_fn made a batch of another form, such as a dict of tuples: then it is where
    ``audio_field`` finds it.
    """
    named = isinstance(batch, Mapping) and where in batch
    alike = named or isinstance(batch, Mapping if isinstance(where, str) else tuple | list)
    return audio_field(batch, where if alike else None)


def get_wave(batch: Any, where: Where | None = None) -> Any:
    """Return the audio of a batch or example as it is there; raise ``DataError`` if it has none.

    ``where`` is what ``audio_field`` returned for an example.
    """
    place = batch_field(batch, where)
    return batch if place is None else batch[place]


def with_wave(batch: Any, wave: Any, where: Where | None = None) -> Any:
    """Return the batch or example with other audio; the original is not changed. ``where`` is that of ``get_wave``."""
    place = batch_field(batch, where)
    return wave if place is None else with_item(batch, place, wave)


def samples_of(example: Any, sample_rate: int, where: Where | None = None) -> NDArray[np.float32]:
    """Return an example's audio as an array (T,) or (C, T); raise ``DataError`` if it is at another sample rate.

    Undecoded audio is decoded and converted to the sample rate. ``where`` is what ``audio_field`` returned for it.
    """
    wave = get_wave(example, where)
    if _is_encoded(wave):
        return decode(wave, sample_rate)
    if hasattr(wave, "__getitem__") and not isinstance(wave, np.ndarray | torch.Tensor | list | tuple):
        rate, wave = _hugging_face(wave)
        if rate != sample_rate:
            raise DataError(
                f"An example is at {format_hz(rate)}, but the chain is for {format_hz(sample_rate)}.",
                f"Convert the dataset, for example with cast_column('audio', Audio(sampling_rate={sample_rate})).",
            )
    return wave.detach().cpu().numpy() if isinstance(wave, torch.Tensor) else np.asarray(wave)


def _is_encoded(audio: Any) -> bool:
    return isinstance(audio, Mapping) and {"bytes", "path"} <= audio.keys() and "array" not in audio


def _hugging_face(audio: Any) -> tuple[int, Any]:
    """Return sample rate and samples of a dict, or of the decoder that replaced it in ``datasets`` 4."""
    try:
        return audio["sampling_rate"], audio["array"]
    except (KeyError, TypeError, IndexError):
        raise DataError(
            f"The audio of an example is a {type(audio).__name__}, but it must be a wave or have 'array' and "
            "'sampling_rate'."
        ) from None


def without_torchcodec(error: Exception) -> UsageError | None:
    """Return what to say of an exception that torchcodec has caused, which is missing or cannot be loaded here."""
    missing = isinstance(error, ImportError) and "torchcodec" in str(error).lower()
    unloadable = isinstance(error, RuntimeError) and "Could not load libtorchcodec" in str(error)
    if not (missing or unloadable):
        return None
    return UsageError(
        "Reading an example needs torchcodec, which cannot be used here "
        f"({type(error).__name__}: {first_line(error)}).",
        "Install torchcodec and FFmpeg, or let the Loader decode with soundfile: for a Hugging Face dataset, "
        "cast_column('audio', Audio(decode=False)).",
    )


def own_length(example: Any, place: Where, samples: int) -> int:
    """Return an example's length in samples, of a wave padded to so many; raise ``DataError`` if it has none there."""
    value = item_of(example, place, "An example", "Give lengths the key or the position.")
    single = isinstance(value, torch.Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1
    number = value.item() if single else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= samples:
        raise DataError(
            f"Expected an example's length at {place!r} in samples, an integer from 0 to {samples}, got {value!r}.",
            "Convert a relative length, as SpeechBrain has them, with round(length * wave.shape[-1]).",
        )
    return number


def add_lengths(batch: Any, length_B: torch.Tensor) -> Any:
    """Return the batch with the clips' lengths: under ``"lengths"`` in a dict, as the last item otherwise."""
    if isinstance(batch, Mapping):
        return {**batch, "lengths": length_B}
    return [*batch, length_B] if isinstance(batch, tuple | list) else [batch, length_B]


def with_lengths(batch: Any, length_B: torch.Tensor, place: Where | None = None) -> Any:
    """Return a batch that has lengths, at some place or where ``add_lengths`` puts them, with other ones."""
    if place is None:
        place = "lengths" if isinstance(batch, Mapping) else -1
    return with_item(batch, place, length_B)


def item_of(content: Any, place: Where, what: str = "An example", cure: str = "") -> Any:
    """Return what an example or batch has at a place; raise ``DataError``, saying ``what`` has nothing there."""
    if isinstance(content, Mapping | tuple | list):
        try:
            return content[place]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            pass
    raise DataError(f"{what} has nothing at {place!r}: it is {form_of(content)}.", cure)


def form_of(content: Any) -> str:
    """Describe an example or batch: its type, and what is in it."""
    if isinstance(content, Mapping):
        return "a dict with " + ", ".join(f"{key!r} ({_kind(value)})" for key, value in content.items())
    return f"a {type(content).__name__}" + (f" of {len(content)}" if isinstance(content, tuple | list) else "")


def _kind(value: Any) -> str:
    """Describe a field: type and shape of an array, type of anything else."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')}, {tuple(value.shape)}"
    return type(value).__name__


def with_item(content: Any, place: Where, value: Any) -> Any:
    """Return the example or batch with another value at a place that it has; the original is not changed."""
    if isinstance(content, Mapping):
        return {**content, place: value}
    items = list(content)
    items[int(place)] = value
    return type(content)(*items) if hasattr(content, "_fields") else type(content)(items)
