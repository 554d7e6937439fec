"""Exceptions of every class in the user's code: the dataset, ``collate_fn``, the training step, an op."""

import builtins
import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import default_collate

from audioaug import Chain, ops
from audioaug.errors import AudioaugError, DataError
from tests.campaign.case import COUNT, LOADERS, RATE, Case, check_all, check_once, clip, indices, skipped
from tests.campaign.faults import Violation, kind

WORKERS = (0, 0, 0, 0, 0, 1, 2)


class Unpicklable(Exception):
    """Cannot be sent to another process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.held = lambda: text


class TwoArguments(Exception):
    """Cannot be made from its message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Unprintable(Exception):
    """Has no message."""

    def __str__(self) -> str:
        raise ValueError("no text")


class OwnBase(BaseException):
    """Is no ``Exception``."""


SPECIAL = {
    "Unpicklable": lambda: Unpicklable("planted"),
    "TwoArguments": lambda: TwoArguments("planted", "error"),
    "Unprintable": lambda: Unprintable("planted"),
    "OwnBase": lambda: OwnBase("planted"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "planted"),
    "UnicodeEncodeError": lambda: UnicodeEncodeError("utf-8", "x", 0, 1, "planted"),
    "UnicodeTranslateError": lambda: UnicodeTranslateError("x", 0, 1, "planted"),
    "DataError": lambda: DataError("planted"),
    "OutOfMemoryError": lambda: torch.cuda.OutOfMemoryError("planted"),
}
if hasattr(builtins, "ExceptionGroup"):
    SPECIAL["ExceptionGroup"] = lambda: builtins.ExceptionGroup("planted", [ValueError("a")])
    SPECIAL["BaseExceptionGroup"] = lambda: builtins.BaseExceptionGroup("planted", [OwnBase("a")])
STANDARD = [
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException) and name not in SPECIAL and name == each.__name__
]
ERRORS = (*STANDARD, *SPECIAL)


def planted(name: str) -> BaseException:
    """Return an exception of the class."""
    return SPECIAL[name]() if name in SPECIAL else getattr(builtins, name)("planted")


def names_in(error: BaseException) -> str:
    """Return the types and messages of an exception and of all that it was raised from."""
    texts, each = [], error
    while each is not None:
        try:
            texts.append(f"{type(each).__name__} {each}")
        except ValueError:
            texts.append(type(each).__name__)
        each = each.__cause__ or each.__context__  # type: ignore[assignment]
    return "\n".join(texts)


def raised_in(case: Case, batches: Any, stop: list[bool]) -> str:
    """Run an epoch in which the exception is raised, then one in which it is not."""
    name, found = case.values["error"], list[int]()
    try:
        for batch in batches:
            found += [int(index) for index in batch["index"]]
    except BaseException as error:
        # A worker that ends silently (SystemExit, KeyboardInterrupt in it) is reported as dead, without the exception.
        is_gone = case.plan.num_workers and not issubclass(type(planted(name)), Exception)
        if name not in names_in(error) and not is_gone:
            raise Violation("sentence", f"{name} became {names_in(error)[:500]}") from error
        ended = "raised" if name == type(error).__name__ else f"{type(error).__name__}"
        error.__traceback__ = None
    else:
        if case.target == "prefetch" and name == "StopIteration":
            return "ended the epoch, as in torch"
        left_out = skipped(batches)
        if len(found) + left_out != COUNT or not left_out:
            raise Violation("lost or twice", f"{name} ended the epoch after {sorted(found)}, {left_out} left out")
        ended = "left out"
    check_once(found, range(COUNT))
    stop[0] = True
    check_all(indices(batches), verdict="next run")
    return ended


@kind(
    "exception in __getitem__",
    LOADERS,
    weight=9,
    of_world=False,
    error=ERRORS,
    workers=WORKERS,
    index=(0, 5, 11),
    on_error=("raise", "raise", "skip"),
)
def in_getitem(case: Case) -> str:
    stop = [False]
    return raised_in(case, case.batches(reader(case, stop)), stop)


def reader(case: Case, stop: list[bool]) -> Callable[[int], Any]:
    """Return a dataset's ``__getitem__`` that raises at the fault's index until ``stop`` says so."""

    def read(index: int) -> Any:
        if index == case.values["index"] and not stop[0]:
            raise planted(case.values["error"])
        return clip(index)

    return read


@kind("exception in collate_fn", LOADERS[:4], weight=6, of_world=False, error=ERRORS, workers=WORKERS, index=(0, 5, 11))
def in_collate(case: Case) -> str:
    stop = [False]

    def collate(examples: list[Any]) -> Any:
        if case.values["index"] in [each["index"] for each in examples] and not stop[0]:
            raise planted(case.values["error"])
        return default_collate(examples)

    is_bucketed = case.target == "Loader, bucketed"  # which has no collate_fn here
    batches = case.batches(reader(case, stop)) if is_bucketed else case.batches(collate_fn=collate)
    return raised_in(case, batches, stop)


@kind(
    "exception in train_step",
    LOADERS,
    weight=5,
    of_world=False,
    error=ERRORS,
    workers=WORKERS,
    step=(0, 1, 2),
    persistent=(True, False),
)
def in_step(case: Case) -> str:
    batches = case.batches()
    error = planted(case.values["error"])
    try:
        for step, _ in enumerate(batches):
            if step == case.values["step"]:
                raise error
    except BaseException as caught:
        if caught is not error:
            raise Violation("sentence", f"{case.values['error']} became {names_in(caught)[:300]}") from caught
        error.__traceback__ = None
    check_all(indices(batches), verdict="next run")
    return "raised"


@kind(
    "exception in an op",
    LOADERS[:5],
    weight=5,
    of_world=False,
    error=ERRORS,
    workers=WORKERS,
    index=(0, 5, 11),
    cut=(0, 1, 2),
)
def in_op(case: Case) -> str:
    stop, limit = [False], 0.01 * (case.values["index"] + 1)

    def effect(samples: Any, sample_rate: int) -> Any:
        if abs(float(abs(samples).max()) - limit) < 1e-4 and not stop[0]:
            raise planted(case.values["error"])
        return samples

    chain = Chain([ops.Lambda(transform=effect, p=1.0), ops.PolarityInversion(p=1.0)], RATE)
    if case.target == "prefetch" or case.values["cut"] == 0:
        case.values = {**case.values, "cut": 1}
        case.target = "Loader, map" if case.target == "prefetch" else case.target
    return raised_in(case, case.batches(chain=chain), stop)


@kind(
    "break out of the loop",
    LOADERS,
    weight=3,
    of_world=False,
    workers=WORKERS,
    step=(0, 1, 2),
    persistent=(True, False),
    way=("break", "close", "drop", "two"),
)
def leave_early(case: Case) -> str:
    """Leave an epoch in one of several ways; the next one must be whole."""
    batches, way = case.batches(), case.values["way"]
    iterator = iter(batches)
    for _ in range(case.values["step"] + 1):
        next(iterator)
    if way == "close":
        iterator.close()
    if way == "two":
        other = iter(batches)
        next(other)
        with contextlib.suppress(AudioaugError):
            list(iterator)
        del other
    del iterator
    check_all(indices(batches), verdict="next run")
    return "left"
