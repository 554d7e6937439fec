"""Pickling: what passes between the training process and its workers, and clear errors for what cannot.

A worker hands its batches to a thread that pickles and sends them. If pickling fails there, Python only prints a
traceback: the batch is lost, and torch waits for it forever. So a ``WorkerBatch`` pickles its own content, or the error
that the training process is to raise.

torch moves every tensor to shared memory; the training process has to ask the worker for each one, and waits while the
worker computes. A small tensor is cheaper as part of the pickled bytes, and a large one in a buffer (``buffers.py``).
"""

import contextlib
import io
import pickle
import sys
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

from audioaug.core import Key
from audioaug.engine import Prepared
from audioaug.errors import AudioaugError, DataError, first_line
from audioaug.internals import named_dimensions
from audioaug.loader.buffers import FREE, reduce_to_buffer, set_state
from audioaug.loader.examples import Field
from audioaug.loader.failures_of_resources import open_files_error, shared_memory_error

SMALL = 16 * 1024
"""Bytes up to which a tensor is pickled by value: a pipe holds several of them."""


MOST_TENSORS = 240
"""That a worker started by a fork server can receive: Linux passes on 253 open files, some of which it needs itself."""


class WorkerBatch(NamedTuple):
    """What a worker sends: a batch, what the device is to do with it, and a sentence for each unreadable example.

    ``batch`` and ``prepared`` are ``None`` if no example is left. ``keys`` are those of the examples in the batch, in
    ``epoch``, and ``audio_key`` is the field that holds the audio of each.
    """

    batch: Any
    prepared: Prepared | None
    skipped: list[str]
    keys: list[Key]
    epoch: int
    audio_key: Field | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_batch, (pickle_content(tuple(self)),)


def unpickle_batch(content: bytes) -> WorkerBatch | AudioaugError:
    """Return the batch that a worker has sent, or the error in its place."""
    found = pickle.loads(content)
    return found if isinstance(found, AudioaugError) else WorkerBatch(*found)


def pickle_content(content: Any) -> bytes:
    """Pickle what a worker sends; if that fails, pickle the error that the training process is to raise."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    try:
        pickler.dump(content)
    except Exception as error:  # whatever the user's objects raise while they are pickled
        for taken in pickler.taken:
            set_state(taken, FREE)
        return pickle.dumps(shared_memory_error(error) or open_files_error(error) or _unpicklable_batch(error))
    return buffer.getvalue()


class _Pickler(ForkingPickler):
    """Pickles as torch's queues do, except for small and large tensors. ``taken``: the buffers of the latter."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.taken: list[torch.Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        """Return how such a tensor is pickled; leave everything else to the reducers that torch registers."""
        if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):  # torch would leave that out
            return torch.Tensor.contiguous, (value.resolve_conj().resolve_neg(),)
        if type(value) is torch.Tensor and not named_dimensions(value):
            with contextlib.suppress(TypeError, RuntimeError):  # numpy lacks the type or layout, or there is a gradient
                if value.nbytes <= SMALL:
                    return torch.from_numpy, (value.numpy(),)
                if reduced := reduce_to_buffer(value):
                    self.taken.append(reduced[1][0])
                    return reduced
        return NotImplemented


def _unpicklable_batch(error: Exception) -> DataError:
    return DataError(
        f"A worker cannot send a batch: {type(error).__name__} ({first_line(error)}).",
        "Return picklable objects from the dataset and collate_fn, or use num_workers=0.",
    )


def why_not_picklable(objects: Mapping[str, Any]) -> str:
    """Name the innermost object that cannot be pickled in some named objects, and why; empty if all can be pickled."""
    for name, value in objects.items():
        for path, inner in _unpicklable(name, value, set()):
            if reason := _pickling_error(inner):
                kind = getattr(inner, "__qualname__", None) or type(inner).__qualname__
                return f"`{path}` ({kind}) does not pickle ({reason})"
    return ""


def _unpicklable(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield objects that cannot be pickled with their paths, the innermost first: what an object holds, then itself."""
    if id(value) in seen or not _pickling_error(value):
        return
    seen.add(id(value))
    for suffix, inner in _children(value):
        yield from _unpicklable(f"{path}{suffix}", inner, seen)
    yield path, value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, each with the expression that accesses it."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", inner) for index, inner in enumerate(value))
    if hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f".{name}", inner) for name, inner in vars(value).items())


def too_many_tensors(objects: Mapping[str, Any], method: str) -> str:
    """Name the object with the most tensors if these are more than workers can receive; return an empty text if not.

    torch sends each as an open file, unless its sharing strategy is another one.
    """
    if method != "forkserver" or torch.multiprocessing.get_sharing_strategy() != "file_descriptor":
        return ""
    pickler, held = _StrictPickler(io.BytesIO()), dict[str, int]()
    for name, value in objects.items():
        before = len(pickler.tensors)
        with contextlib.suppress(Exception):  # ``why_not_picklable`` reports it
            pickler.dump(value)
        held[name] = len(pickler.tensors) - before
    if len(pickler.tensors) <= MOST_TENSORS:
        return ""
    name = max(held, key=lambda name: held[name])
    return f"`{name}` holds {held[name]} tensors, and a fork server can pass on {MOST_TENSORS} in all"


class _StrictPickler(ForkingPickler):
    """Also refuses what a new process cannot import: classes and functions of a notebook, which has no file.

    Tensors and arrays that could be sent are neither copied nor moved to shared memory. ``tensors``: the addresses of
    the former.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tensors = set[int]()

    def persistent_id(self, value: Any) -> str | None:
        """Raise ``PicklingError`` for such a class or function; return something for a tensor that can be sent."""
        if type(value) is torch.Tensor and value.device.type == "cpu" and not value.requires_grad:
            self.tensors.add(id(value))
            return "tensor"
        if type(value) is np.ndarray and not value.dtype.hasobject:
            return "array"
        main = sys.modules["__main__"]
        has_file = main.__spec__ is not None or Path(getattr(main, "__file__", "") or "-").is_file()
        if not has_file and isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is defined in a notebook or an interactive session")
        return None


def _pickling_error(value: Any) -> str:
    """Return why an object cannot be pickled, in one line; empty if it can be."""
    try:
        _StrictPickler.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, ValueError, OSError) as error:
        return first_line(error)
    return ""
