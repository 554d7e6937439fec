"""Pickling: what cannot be sent to a worker that is not forked, by name."""

import pickle
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any


def why_not_picklable(parts: Mapping[str, Any]) -> str:
    """Name the innermost object in some named parts that cannot be pickled, and why; nothing if all can be."""
    for name, part in parts.items():
        for path, value in _inside(name, part, set()):
            if reason := _reason(value):
                kind = getattr(value, "__qualname__", None) or type(value).__qualname__
                return f"`{path}` ({kind}) does not pickle ({reason})"
    return ""


def _inside(name: str, part: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield what to blame, the innermost first: what an object holds, then itself."""
    if id(part) in seen or not _reason(part):
        return
    seen.add(id(part))
    for key, value in _held(part):
        yield from _inside(f"{name}{key}", value, seen)
    yield name, part


def _held(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, each with how to get at it."""
    if isinstance(part, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in part.items())
    elif isinstance(part, list | tuple):
        yield from ((f"[{place}]", value) for place, value in enumerate(part))
    if hasattr(part, "__dict__") and not isinstance(part, type):
        yield from ((f".{key}", value) for key, value in vars(part).items())


def _reason(value: Any) -> str:
    """Return why an object does not pickle, in one line."""
    try:
        ForkingPickler.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, ValueError, OSError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ""
