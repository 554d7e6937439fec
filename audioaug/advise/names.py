"""Names: those that a model file may define, and public names in it that look like one of them, misspelt."""

import inspect
from collections.abc import Iterator, Mapping
from numbers import Real
from types import ModuleType
from typing import Any

CALLABLE = ("build_model", "train_step", "collate_fn")
NUMBERS = ("batch_size", "num_workers", "clip_seconds", "sample_rate")
OTHERS = ("model", "optimizer", "loss", "dataset", "augment", "pad", "lengths", "targets", "audio_key")
KNOWN = (*CALLABLE, *NUMBERS, *OTHERS)
"""What the advisor reads from a model file."""

SHORTEST = 7
"""Letters of a name that is compared: too many ordinary names are one letter from ``pad``, ``loss`` or ``model``."""


def misspelt(defined: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each public name that is probably misspelt, with the one that was probably meant.

    These are names one edit from a known one that the file does not define: a letter more, less or other, or two
    neighbours swapped. A plural and a numbered name (``target``, ``dataset2``) are names of their own, as are classes
    and modules, and what cannot be what the known name holds.
    """
    missing = [name for name in KNOWN if name not in defined and len(name) >= SHORTEST]
    for name, value in defined.items():
        if name.startswith("_") or name in KNOWN or inspect.isclass(value) or isinstance(value, ModuleType):
            continue
        near = (known for known in missing if _is_near(name.lower(), known) and _may_hold(known, value))
        if known := next(near, None):
            yield name, known


def _may_hold(known: str, value: Any) -> bool:
    if known in CALLABLE:
        return callable(value)
    return known not in NUMBERS or isinstance(value, Real)


def _is_near(name: str, known: str) -> bool:
    """Return whether a name is at most one edit from a known one, and not its plural, singular or numbered form."""
    is_variant = name.rstrip("_0123456789") == known and name != known
    is_plural = "_" not in known and known in (name + "s", name.removesuffix("s"))
    return not is_variant and not (is_plural and name != known) and _one_edit_apart(name, known)


def _one_edit_apart(a: str, b: str) -> bool:
    same = next((place for place, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    a, b = a[same:], b[same:]
    swapped = a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or swapped
