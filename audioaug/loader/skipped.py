"""Skipped: which examples count as unreadable, how many there were, and one warning about the first."""

import traceback
import typing
import warnings
from collections.abc import Sequence
from typing import Literal

from audioaug.errors import AudioaugWarning, DataError, UsageError, printable_lines
from audioaug.internals import calling_frame

OnError = Literal["skip", "replace", "raise"]
"""What becomes of an example that cannot be read."""

POLICIES = typing.get_args(OnError)

DECODERS = ("soundfile", "torchcodec", "torchaudio._backend", "torchaudio.io")
"""The modules whose RuntimeErrors say that a file cannot be decoded."""


def is_unreadable(error: BaseException | None) -> bool:
    """Return whether an exception means that an example cannot be decoded, rather than a mistake in the user's code.

    It does if it is a ``DataError`` or an ``OSError``, or a ``RuntimeError`` of soundfile, torchcodec or torchaudio:
    its type is theirs, or they raised it, or it was raised from such a one.
    """
    if isinstance(error, DataError | OSError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    raised_in = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    innermost = next((name for name in reversed(raised_in) if not name.startswith("torch.")), "")
    modules = type(error).__module__, innermost
    of_decoder = any(f"{module}.".startswith(f"{decoder}.") for module in modules for decoder in DECODERS)
    return of_decoder or is_unreadable(error.__cause__)


class Skipped:
    """Counts examples left out or replaced, and warns of the first.

    Raises:
        UsageError: there is no such policy.
    """

    def __init__(self, on_error: OnError) -> None:
        if on_error not in POLICIES:
            raise UsageError(f"on_error is {on_error!r}, but it must be 'skip', 'replace' or 'raise'.")
        self.on_error, self.count, self.last = on_error, 0, ""

    def add(self, sentences: Sequence[str]) -> None:
        """Count examples of which these sentences say why they cannot be read; warn at the loop over the batches."""
        if sentences and not self.count:
            fate = "Another takes its place" if self.on_error == "replace" else "The example is left out"
            told = f"{sentences[0]} {fate} (on_error={self.on_error!r}); Loader.skipped counts such examples."
            warnings.warn(told, AudioaugWarning, stacklevel=frames_of_ours() + 1)
        self.count += len(sentences)
        self.last = printable_lines(sentences[-1]) if sentences else self.last

    def __str__(self) -> str:
        if not self.count:
            return "Every example could be read."
        fate = "replaced" if self.on_error == "replace" else "left out"
        many = (
            f"{self.count} examples could not be read and were"
            if self.count > 1
            else "1 example could not be read and was"
        )
        return f"{many} {fate}. The last: {self.last}"


def frames_of_ours() -> int:
    """Return how many callers from here on, this one included, are in this package: generators in generators."""
    frame = calling_frame(1)
    count = 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("audioaug."):
        frame, count = frame.f_back, count + 1
    return count
