"""Examples: where the audio is in what a dataset returns, and in the batch made of it.

Known forms: a bare wave; a tuple or list whose first item is the wave; a dict with the wave under ``"audio"``, also as
Hugging Face has it (``{"array": ..., "sampling_rate": ...}``).

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.errors import DataError
from audioaug.units import format_hz

KEY = "audio"

Where = str | int
"""Where something is in an example or batch: a key of a dict, or a position in a tuple."""


def get_wave(example: Any) -> Any:
    """Return the audio of an example or batch as it is there; raise ``DataError`` if its form is none of the known."""
    if isinstance(example, Mapping):
        if KEY not in example:
            raise DataError(
                f"An example is a dict with {', '.join(map(repr, example))}, but the audio must be under {KEY!r}.",
                "Rename the column.",
            )
        return example[KEY]
    if isinstance(example, tuple | list) and example:
        return example[0]
    if isinstance(example, torch.Tensor | np.ndarray):
        return example
    raise DataError(
        f"An example is a {type(example).__name__}, but it must be a wave, a tuple that starts with one, or a dict "
        f"with one under {KEY!r}."
    )


def with_wave(example: Any, wave: Any) -> Any:
    """Return the example or batch with other audio; the original is not changed."""
    if isinstance(example, Mapping):
        return {**example, KEY: wave}
    if isinstance(example, tuple) and hasattr(example, "_fields"):
        return type(example)(wave, *example[1:])
    if isinstance(example, tuple | list):
        return type(example)([wave, *example[1:]])
    return wave


def samples_of(example: Any, sample_rate: int) -> NDArray[np.float32]:
    """Return an example's audio as an array (T,) or (C, T); raise ``DataError`` if it is at another sample rate."""
    wave = get_wave(example)
    if hasattr(wave, "__getitem__") and not isinstance(wave, np.ndarray | torch.Tensor | list | tuple):
        rate, wave = _hugging_face(wave)
        if rate != sample_rate:
            raise DataError(
                f"An example is at {format_hz(rate)}, but the chain is for {format_hz(sample_rate)}.",
                f"Convert the dataset, for example with cast_column('audio', Audio(sampling_rate={sample_rate})).",
            )
    return wave.detach().cpu().numpy() if isinstance(wave, torch.Tensor) else np.asarray(wave)


def _hugging_face(audio: Any) -> tuple[int, Any]:
    """Return sample rate and samples of a dict, or of the decoder that replaced it in ``datasets`` 4."""
    try:
        return audio["sampling_rate"], audio["array"]
    except (KeyError, TypeError, IndexError):
        raise DataError(
            f"The audio of an example is a {type(audio).__name__}, but it must be a wave or have 'array' and "
            "'sampling_rate'."
        ) from None


def own_length(example: Any, place: Where, samples: int) -> int:
    """Return an example's length in samples, of a wave padded to so many; raise ``DataError`` if it has none there."""
    value = item_of(example, place, "An example", "Give lengths the key or the position.")
    try:
        length = int(value)
    except (TypeError, ValueError):
        length = -1
    if not 0 <= length <= samples or length != value:
        raise DataError(f"The length of a clip of {samples} samples is {value!r}, but it must be from 0 to {samples}.")
    return length


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
    form = f"a {type(content).__name__}"
    if isinstance(content, Mapping):
        form = f"a dict with {', '.join(map(repr, content))}"
    elif isinstance(content, tuple | list):
        form += f" of {len(content)}"
    raise DataError(f"{what} has nothing at {place!r}: it is {form}.", cure)


def with_item(content: Any, place: Where, value: Any) -> Any:
    """Return the example or batch with another value at a place that it has; the original is not changed."""
    if isinstance(content, Mapping):
        return {**content, place: value}
    items = list(content)
    items[int(place)] = value
    return type(content)(*items) if hasattr(content, "_fields") else type(content)(items)
