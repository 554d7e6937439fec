"""Failures of examples: which of them cannot be read, and what is counted and said when they are left out."""

import typing
import warnings
from collections.abc import Sequence
from typing import Literal

from audioaug.errors import (
    AudioaugWarning,
    DataError,
    UsageError,
    first_line,
    modules_of,
    printable_lines,
    text_of,
)
from audioaug.internals import calling_frame
from audioaug.units import plural
from audioaug.writing import TOO_MANY_FILES

OnError = Literal["skip", "replace", "raise"]
"""What happens when an example cannot be read."""

DECODERS = ("soundfile", "torchcodec", "torchaudio._backend", "torchaudio.io")
"""The modules whose RuntimeErrors say that a file cannot be decoded."""


def is_unreadable(error: BaseException | None) -> bool:
    """Return whether an exception means that an example cannot be decoded, rather than a mistake in the user's code.

    That is a ``DataError``, an ``OSError``, or a ``RuntimeError`` of soundfile, torchcodec or torchaudio: of a type of
    theirs, raised by them, or raised from such an error.
    """
    if isinstance(error, DataError | OSError):
        return getattr(error, "errno", None) not in TOO_MANY_FILES
    if not isinstance(error, RuntimeError):
        return False
    innermost = next((name for name in reversed(modules_of(error)) if not name.startswith("torch.")), "")
    modules = type(error).__module__, innermost
    from_decoder = any(f"{module}.".startswith(f"{decoder}.") for module in modules for decoder in DECODERS)
    return from_decoder or is_unreadable(error.__cause__)


def torchcodec_error(error: Exception) -> UsageError | None:
    """Return a clear error if an exception means that torchcodec is missing or cannot be loaded; else ``None``."""
    missing = isinstance(error, ImportError) and "torchcodec" in text_of(error).lower()
    unloadable = isinstance(error, RuntimeError) and "Could not load libtorchcodec" in text_of(error)
    if not (missing or unloadable):
        return None
    return UsageError(
        "Reading an example needs torchcodec, which cannot be used here "
        f"({type(error).__name__}: {first_line(error)}).",
        "Install torchcodec and FFmpeg, or let the Loader decode with soundfile: for a Hugging Face dataset, "
        "cast_column('audio', Audio(decode=False)).",
    )


class SkippedExamples:
    """Counts examples that were left out or replaced, and warns of the first.

    Raises:
        UsageError: there is no such ``on_error``.
    """

    def __init__(self, on_error: OnError) -> None:
        if on_error not in typing.get_args(OnError):
            raise UsageError(f"Expected on_error to be 'skip', 'replace' or 'raise', got {on_error!r}.")
        self.on_error, self.count, self.last = on_error, 0, ""

    def add(self, reasons: Sequence[str]) -> None:
        """Count examples, given a sentence on each; warn of the first at the user's loop over the batches."""
        if reasons and not self.count:
            outcome = "It was replaced by another example" if self.on_error == "replace" else "It was left out"
            warnings.warn(
                f"{reasons[0]} {outcome} (on_error={self.on_error!r}); Loader.skipped counts such examples.",
                AudioaugWarning,
                stacklevel=user_stacklevel(),
            )
        self.count += len(reasons)
        self.last = printable_lines(reasons[-1]) if reasons else self.last

    def __str__(self) -> str:
        if not self.count:
            return "Every example could be read."
        outcome = "replaced" if self.on_error == "replace" else "left out"
        were = "was" if self.count == 1 else "were"
        return f"{plural(self.count, 'example')} could not be read and {were} {outcome}. The last one: {self.last}"


def user_stacklevel() -> int:
    """Return the ``stacklevel`` with which a warning of the calling function names the user's line."""
    frame = calling_frame(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("audioaug."):
        frame, level = frame.f_back, level + 1
    return level
