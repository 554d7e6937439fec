"""Errors: the exception tree.

    AudioaugError                 exit 1   the root, never raised itself
      UsageError                  exit 2   the request is invalid
        ChainError                         an unknown transform or argument, a value out of range
        ModelFileError                     the model file is missing, raises, or has no usable model
        DataError                          no audio, a file that cannot be decoded, shapes that do not fit
        PlanError                          a plan for another chain, or an invalid cut
        LibraryMissing                     an optional library is not installed, or does not work
        DeviceError                        the machine has no such device
        OutputError                        a report or plan cannot be written
      MeasurementError            exit 1   a measurement failed
      ContractError               exit 1   two builds of one chain are not equivalent
      WorkerError                 exit 1   a DataLoader worker was killed, or shared memory is full
      OpError                     exit 1   an op raised an exception
      ParamError                  exit 1   an op returns parameters other than it declares
      ClipRefused                 exit 1   the reference of an op refuses a clip
    AudioaugWarning                        something works, but not as well as it should

Each message is one sentence that says what is wrong, where, and what the limit is; ``next_step`` says what to do.
"""

import difflib
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable


class AudioaugError(Exception):
    """The root. ``exit_code`` is the exit code of a command; ``next_step`` is appended to the message."""

    exit_code = 1

    def __init__(self, message: str, next_step: str = "") -> None:
        self.message = message
        self.next_step = next_step
        super().__init__(message, next_step)

    def __str__(self) -> str:
        return printable_lines(f"{self.message} {self.next_step}".strip())


class UsageError(AudioaugError):
    """The request is invalid: an argument, option or file."""

    exit_code = 2


class ChainError(UsageError):
    """An augmentation chain names something that does not exist, or a value that is out of range."""


class ModelFileError(UsageError):
    """The file given as ``--model`` is missing, raises, or defines no usable model."""


class DataError(UsageError):
    """Audio is missing, cannot be decoded, or has a shape that does not fit."""


class PlanError(UsageError):
    """A plan is for another chain, or has an invalid cut."""


class LibraryMissing(UsageError):
    """An optional library that was asked for is not installed, or does not work."""


class DeviceError(UsageError):
    """This machine does not have the requested device."""


class OutputError(UsageError):
    """A report or plan cannot be written to the given path."""


class MeasurementError(AudioaugError):
    """A measurement failed."""


class ContractError(AudioaugError):
    """Two builds of one chain are not equivalent."""


class WorkerError(AudioaugError, RuntimeError):
    """A DataLoader worker was killed, or shared memory is full: names the signal and the likely cause."""


class OpError(AudioaugError):
    """An op raised an exception: names the op, the example and its draws, and how to reproduce it."""


class ParamError(AudioaugError):
    """An op returns parameters other than it declares: which, of what type, and what is declared."""


class ClipRefused(AudioaugError):
    """The reference of an op refuses a clip, which the op's batched build can augment."""


class AudioaugWarning(UserWarning):
    """Something works, but not as well as it should."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


def printable(text: str) -> str:
    """Escape characters that break lines, control a terminal or reverse text: an escape code becomes ``\\x1b``."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """Escape characters that control a terminal, except line feeds."""
    return "\n".join(map(printable, text.split("\n")))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the most similar known word, or with all of them, for an error message."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message without its full stop, for use inside a sentence."""
    return (text_of(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")


def text_of(error: BaseException) -> str:
    """Return an exception's message. soundfile's own cannot be printed once torch has sent them from a worker."""
    try:
        return str(error)
    except Exception:
        return " ".join(map(str, error.args))


IN_WORKER = "Original Traceback"
"""What torch writes into the message of a worker's exception, before its traceback."""

OURS, STDLIB = re.escape(os.path.dirname(__file__)), re.escape(sysconfig.get_path("stdlib"))
LIBRARIES = re.compile(rf"<|.*/(site-packages|dist-packages|ipykernel_\d+)/|({OURS}|{STDLIB})/")
"""How names of files begin that are not the user's code."""


def in_one_line(error: BaseException) -> str:
    """Summarize an exception in one line, with the line of the user's code that raised it, in a worker too."""
    text = (error.msg or "" if isinstance(error, SyntaxError) else text_of(error)).strip()
    in_worker = IN_WORKER in text
    message = (text.splitlines() or [""])[-1 if in_worker else 0].rstrip(".")
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    frames += re.findall(r'File "(.+)", line (\d+)', text) if in_worker else []
    frames += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) and error.filename else []
    where = [f" (line {line} of {os.path.basename(file)})" for file, line in frames if not LIBRARIES.match(file)]
    kind = "" if in_worker or message.startswith(type(error).__name__) else f"{type(error).__name__}: "
    return printable(f"{kind}{message}".removesuffix(": ") + "".join(where[-1:]) + ".")


def modules_of(error: BaseException) -> list[str]:
    """Return the modules that an exception has passed through, the innermost last; one without a name if unraised."""
    return [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)] or [""]
