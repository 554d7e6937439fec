"""Everything that can go wrong, in one tree.

    AudioaugError                 exit 1   the root: never raised itself
      UsageError                  exit 2   what was asked for cannot be done as asked
        ChainError                         an unknown transform or argument, a value out of range
        ModelFileError                     the model file is missing, raises, or has no usable model
        DataError                          no audio, a file that cannot be decoded, shapes that do not fit
        PlanError                          a plan that does not belong to this chain, or a cut that cannot be
        LibraryMissing                     an optional library that is not installed, or does not work
        DeviceError                        a device that this machine does not have
        OutputError                        a report or plan that cannot be written
      MeasurementError            exit 1   a measurement could not be made
      ContractError               exit 1   two builds of one chain do not do the same thing
      WorkerError                 exit 1   a DataLoader worker was killed, or has no room for a batch
      OpError                     exit 1   an op raised an exception
      ParamError                  exit 1   an op returns parameters other than it declares
      ClipRefused                 exit 1   the reference of an op refuses a clip
    AudioaugWarning                        something works, but not as well as it should

Each message is one sentence that says what, where, and which limit; ``next_step`` says what to do about it.
"""

import difflib
from collections.abc import Iterable


class AudioaugError(Exception):
    """The root. ``exit_code`` is what a command line ends with; ``next_step`` is appended to the message."""

    exit_code = 1

    def __init__(self, message: str, next_step: str = "") -> None:
        self.message = message
        self.next_step = next_step
        super().__init__(message, next_step)

    def __str__(self) -> str:
        return printable_lines(f"{self.message} {self.next_step}".strip())


class UsageError(AudioaugError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class ChainError(UsageError):
    """An augmentation chain names something that does not exist, or a value that is out of range."""


class ModelFileError(UsageError):
    """The file given as ``--model`` is missing, raises, or defines no usable model."""


class DataError(UsageError):
    """Audio is missing, cannot be decoded, or has a shape that does not fit."""


class PlanError(UsageError):
    """A plan does not belong to this chain, or asks for a cut that cannot be."""


class LibraryMissing(UsageError):
    """An optional library that was asked for is not installed, or does not work."""


class DeviceError(UsageError):
    """This machine does not have the device that was asked for."""


class OutputError(UsageError):
    """A report or plan cannot be written where it was asked for."""


class MeasurementError(AudioaugError):
    """A measurement could not be made."""


class ContractError(AudioaugError):
    """Two builds of one chain do not do the same thing."""


class WorkerError(AudioaugError, RuntimeError):
    """A DataLoader worker was killed, or has no room for a batch: by which signal, and what the likely cause is."""


class OpError(AudioaugError):
    """An op raised an exception: which, on which example, with which draws, and how to see it alone."""


class ParamError(AudioaugError):
    """An op returns parameters other than it declares: which, of what type, and what is declared."""


class ClipRefused(AudioaugError):
    """The reference of an op refuses a clip, which the op's batched build can augment."""


class AudioaugWarning(UserWarning):
    """Something works, but not as well as it should."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


def printable(text: str) -> str:
    """Escape what could break a line, steer a terminal or reverse its text: an escape code is shown as ``\\x1b``."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """Escape what could steer a terminal, and keep the line feeds."""
    return "\n".join(map(printable, text.split("\n")))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name what was probably meant: the sentence that follows "unknown ..." in an error message."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception says, without its full stop, for use inside a sentence."""
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
