"""Internals: every private part of torch, Python and pyroomacoustics that audioaug uses, each behind a guard.

No other module may use one (a test reads the source of all). Where a version of such a library lacks a part, the
function here returns a value that says so, and ``doctor`` prints what is lost: the ``fallback`` in ``INTERNALS``.

Two more dependencies are public elsewhere but not promised by torch, and are guarded where they are used: MKL's FFT
(``DftiCreateDescriptor_s_1d`` in ``libtorch_cpu.so``, ``dsp/fft.py``) and GNU OpenMP's ``GOMP_parallel``
(``dsp/loops.py``).
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from audioaug.errors import UsageError

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

    DispatchMode = TorchDispatchMode
else:
    try:
        from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
    except ImportError:

        class DispatchMode:
            """What stands in for torch's where it has none: it cannot be used."""

            def __init__(self) -> None:
                raise UsageError(
                    f"torch {torch.__version__} cannot report which operations run, which this needs.",
                    "Use the batched engine.",
                )


@dataclass(frozen=True)
class Internal:
    """A private part: what it is used for, what happens without it, and whether the installed version has it.

    ``exists`` is given the iterator of a DataLoader with workers, and that DataLoader.
    """

    name: str
    purpose: str
    fallback: str
    exists: Callable[[Any, Any], bool]


def operations_are_watched() -> bool:
    """Return whether a dispatch mode is active in this thread (a tracer, say); ``False`` where torch cannot tell."""
    try:
        from torch.utils._python_dispatch import _get_current_dispatch_mode
    except ImportError:
        return False
    return _get_current_dispatch_mode() is not None


def current_iterator(loader: "DataLoader[Any]") -> Any:
    """Return the iterator that a DataLoader with persistent workers keeps, if it has one and torch shows it."""
    return getattr(loader, "_iterator", None)


def drop_iterator(loader: "DataLoader[Any]") -> None:
    """Let a DataLoader forget the iterator that it keeps; its workers end when nothing else refers to it."""
    if hasattr(loader, "_iterator"):
        loader._iterator = None


def worker_processes(iterator: Any) -> tuple[Any, ...]:
    """Return the worker processes of a DataLoader's iterator; none where it has none or torch does not show them."""
    return tuple(getattr(iterator, "_workers", ())) if _is_of_torch(iterator) else ()


def _is_of_torch(iterator: Any) -> bool:
    return type(iterator).__module__.startswith("torch.utils.data.")


def worker_pids(iterator: Any) -> frozenset[int] | None:
    """Return the process ids of the workers of a DataLoader's iterator; ``None`` where that cannot be known."""
    return frozenset(worker.pid for worker in worker_processes(iterator) if worker.pid) or None


def end_workers(iterator: Any) -> None:
    """End the workers of a DataLoader's iterator now, where torch can; otherwise they end with the iterator."""
    getattr(iterator, "_shutdown_workers", lambda: None)()


def batches_ready(iterator: Any) -> int | None:
    """Return how many finished batches wait for the training process; ``None`` where that cannot be known.

    Args:
        iterator: of a ``DataLoader`` with workers; of anything else nothing is known.
    """
    if not _is_of_torch(iterator):
        return None
    try:
        queues: set[Any] = {iterator._worker_result_queue, iterator._data_queue}  # one, or two with pinned memory
        waiting = sum(queue.qsize() for queue in queues)
        return waiting + sum(len(task) == 2 for task in iterator._task_info.values())  # and those out of order
    except (AttributeError, NotImplementedError):  # the latter: macOS
        return None


def named_dimensions(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has named dimensions, which torch 2.14 no longer knows."""
    return bool(getattr(tensor, "has_names", lambda: False)())


def calling_frame(depth: int) -> FrameType | None:
    """Return the frame of a caller, 0 being that of the function that asks; ``None`` where Python has no such API."""
    get_frame = getattr(sys, "_getframe", None)
    return None if get_frame is None else get_frame(depth + 1)


def numba_cache(function: Callable[..., Any]) -> Any:
    """Return numba's cache in files of one function; raise ``RuntimeError`` if there is none, or no folder for it."""
    try:
        from numba.core.caching import FunctionCache
    except ImportError:
        raise RuntimeError("This numba has no cache of functions in files.") from None
    make: Any = FunctionCache
    return make(function)


def set_numba_cache(compiled: Any, cache: Any) -> None:
    """Let a function compiled by numba use that cache; numba has no public way to do so."""
    if hasattr(compiled, "_cache"):
        compiled._cache = cache


@contextlib.contextmanager
def keep_room_generator(generator: Any) -> Iterator[None]:
    """Restore the numpy generator of ``pyroomacoustics.random`` afterwards, where that library shows it."""
    known, before = hasattr(generator, "_rng"), getattr(generator, "_rng", None)
    try:
        yield
    finally:
        if known:
            generator._rng = before


def _has(owner: Any, *names: str) -> bool:
    return all(hasattr(owner, name) for name in names)


def _importable(module: str, name: str) -> bool:
    try:
        return hasattr(__import__(module, fromlist=[name]), name)
    except ImportError:
        return False


def _numba_has_caches() -> bool:
    try:
        import numba
    except Exception:  # which doctor reports by itself
        return True
    return _importable("numba.core.caching", "FunctionCache") and hasattr(numba.njit(_has), "_cache")


def _room_generator() -> bool:
    try:
        import pyroomacoustics
    except Exception:  # which doctor reports by itself
        return True
    return hasattr(pyroomacoustics.random.generator, "_rng")


INTERNALS: tuple[Internal, ...] = (
    Internal(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "finds what a CUDA graph reads, and what makes the host wait for the GPU",
        "the cuda_graph engine and the advisor's list of waits are unavailable",
        lambda *_: _importable("torch.utils._python_dispatch", "TorchDispatchMode"),
    ),
    Internal(
        "torch.utils._python_dispatch._get_current_dispatch_mode",
        "lets traced work run as torch operations",
        "torch.compile's tracing is still seen; other tracers see less",
        lambda *_: _importable("torch.utils._python_dispatch", "_get_current_dispatch_mode"),
    ),
    Internal(
        "torch.utils.data.DataLoader._iterator",
        "ends persistent workers with their Loader",
        "they end when Python exits",
        lambda _, loader: hasattr(loader, "_iterator"),
    ),
    Internal(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter._workers, ._shutdown_workers",
        "names a worker that was killed, and ends the others",
        "torch's own error is shown",
        lambda iterator, _: _has(iterator, "_workers", "_shutdown_workers"),
    ),
    Internal(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter._worker_result_queue, ._data_queue, ._task_info",
        "counts the batches that are ready",
        "Monitor and the report do not show them",
        lambda iterator, _: _has(iterator, "_worker_result_queue", "_data_queue", "_task_info"),
    ),
    Internal(
        "torch.Tensor.has_names",
        "keeps the names of a tensor's dimensions (torch before 2.14)",
        "there are no such names",
        lambda *_: True,
    ),
    Internal(
        "sys._getframe",
        "lets a warning name the user's own line",
        "it names a line of audioaug",
        lambda *_: hasattr(sys, "_getframe"),
    ),
    Internal(
        "numba.core.caching.FunctionCache, Dispatcher._cache",
        "keeps compiled loops in files, also where such a file is damaged or the disk is full",
        "each process compiles them anew",
        lambda *_: _numba_has_caches(),
    ),
    Internal(
        "pyroomacoustics.random.generator._rng",
        "keeps that library's random state as it was",
        "RoomSimulator seeds it",
        lambda *_: _room_generator(),
    ),
)
"""All of them. A test asks each whether it exists with the versions installed, in every environment that is tested."""


def missing_internals(iterator: Any, loader: Any) -> tuple[Internal, ...]:
    """Return those that the installed versions lack, given a DataLoader with workers and its iterator."""
    return tuple(each for each in INTERNALS if not each.exists(iterator, loader))
