"""Internals: every private part of torch, Python and other libraries that audioaug uses, each behind a guard.

No other module may use one (a test reads all sources). If a version of a library lacks a part, the function here
returns a value that says so, and ``doctor`` prints the consequence: the ``fallback`` in ``INTERNALS``. What changes the
process, such as signal handlers, is in ``process.py``.

Two more dependencies are public elsewhere but not promised by torch, and are guarded where they are used: MKL's FFT
(``DftiCreateDescriptor_s_1d`` in ``libtorch_cpu.so``, ``dsp/fft/__init__.py``) and GNU OpenMP's ``GOMP_parallel``
(``dsp/loops.py``).
"""

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from audioaug.errors import UsageError

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

    DispatchMode = TorchDispatchMode
else:
    try:
        from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
    except ImportError:

        class DispatchMode:
            """Replacement for versions of torch without it: raises when constructed."""

            def __init__(self) -> None:
                raise UsageError(
                    f"This needs a dispatch mode, which torch {torch.__version__} does not have.",
                    "Use the batched engine.",
                )


@dataclass(frozen=True)
class Internal:
    """A private part: its purpose, what happens without it, and whether the installed version has it.

    ``exists`` takes the iterator of a DataLoader with workers.
    """

    name: str
    purpose: str
    fallback: str
    exists: Callable[[Any], bool]


def operations_are_watched() -> bool:
    """Return whether a dispatch mode, such as a tracer, is active in this thread; ``False`` if it is unknown."""
    current_mode = _current_mode()
    return current_mode is not None and current_mode() is not None


@functools.cache
def _current_mode() -> Callable[[], object] | None:
    try:
        from torch.utils._python_dispatch import _get_current_dispatch_mode
    except ImportError:
        return None
    found: Callable[[], object] = _get_current_dispatch_mode
    return found


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` is active in this thread; ``False`` if it is unknown."""
    innermost_transform = _innermost_transform()
    return innermost_transform is not None and innermost_transform() is not None


@functools.cache
def _innermost_transform() -> Callable[[], object] | None:
    found: Callable[[], object] | None = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
    return found


def is_vectorized() -> bool:
    """Return whether ``torch.vmap`` is active in this thread; ``False`` if it is unknown."""
    if not is_transformed() or not _has(torch._C._functorch, "get_interpreter_stack", "TransformType"):
        return False
    vmap = torch._C._functorch.TransformType.Vmap
    return any(each.key() == vmap for each in torch._C._functorch.get_interpreter_stack())


def is_in_backward() -> bool:
    """Return whether this thread computes gradients (``backward``); ``False`` if it is unknown."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def worker_processes(iterator: Any) -> tuple[Any, ...]:
    """Return the worker processes of a DataLoader's iterator; none if there are none or they are unknown."""
    return tuple(getattr(iterator, "_workers", ())) if _is_of_torch(iterator) else ()


def _is_of_torch(iterator: Any) -> bool:
    return type(iterator).__module__.startswith("torch.utils.data.")


def worker_pids(iterator: Any) -> frozenset[int] | None:
    """Return the process ids of the workers of a DataLoader's iterator; ``None`` if they are unknown."""
    return frozenset(worker.pid for worker in worker_processes(iterator) if worker.pid) or None


def report_worker_deaths() -> None:
    """Let torch install its handler of SIGCHLD now, as it would once the first workers have been started, if it can."""
    from torch.utils.data._utils import signal_handling

    getattr(signal_handling, "_set_SIGCHLD_handler", lambda: None)()


def end_workers(iterator: Any) -> None:
    """End the workers of a DataLoader's iterator now, if torch can; otherwise they end with the iterator."""
    getattr(iterator, "_shutdown_workers", lambda: None)()


def receive_whole_messages(queue: Any) -> Any:
    """Let this process receive from a ``multiprocessing.Queue`` what has arrived as a whole; return the queue.

    A worker that is killed while it sends leaves half a message, for the rest of which ``get`` would wait forever.
    """
    if sys.platform != "win32" and _has(queue, "_reader", "_poll", "_recv_bytes"):
        messages = _WholeMessages(queue._reader)
        queue._poll, queue._recv_bytes = messages.poll, messages.take  # processes that inherit it reset both
    return queue


class _WholeMessages:
    """Receives what ``multiprocessing.connection.Connection`` sends: four bytes with a message's size, and the message.

    For 2 GiB and more they are -1, and eight bytes with the size follow.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._start()

    def _start(self) -> None:
        self._received, self._head, self._expected = bytearray(), 4, 4

    def poll(self, timeout: float = 0.0) -> bool:
        """Return whether a message has arrived within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while len(self._received) < self._expected:
            if not self._reader.poll(max(0.0, deadline - time.monotonic())):
                return False
            part = os.read(self._reader.fileno(), min(self._expected - len(self._received), 2**20))
            if not part:
                raise EOFError
            self._received += part
            if len(self._received) == self._expected == self._head:
                size = int.from_bytes(self._received[-8 if self._head == 12 else -4 :], "big", signed=True)
                self._head, self._expected = (12, 12) if size < 0 else (self._head, self._head + size)
        return True

    def take(self) -> memoryview:
        """Return the next message, once it has arrived."""
        while not self.poll(1.0):
            pass
        message = memoryview(self._received)[self._head :]
        self._start()
        return message


def is_failed_start(unraisable: Any) -> bool:
    """Return whether torch cannot delete an iterator whose workers could not be started; why is raised elsewhere."""
    where = f"{getattr(unraisable.object, '__qualname__', '')} {unraisable.err_msg}"  # the latter from Python 3.14 on
    return unraisable.exc_type is AttributeError and "_MultiProcessingDataLoaderIter.__del__" in where


def batches_ready(iterator: Any) -> int | None:
    """Return how many finished batches wait for the training process; ``None`` if it is unknown.

    Args:
        iterator: of a ``DataLoader`` with workers; for anything else the result is ``None``.
    """
    if not _is_of_torch(iterator):
        return None
    try:
        queues: set[Any] = {iterator._worker_result_queue, iterator._data_queue}  # one, or two with pinned memory
        queued = sum(queue.qsize() for queue in queues)
        # and those that arrived out of order
        return queued + sum(len(task) == 2 for task in iterator._task_info.values())
    except (AttributeError, NotImplementedError):  # the latter: macOS
        return None


def process_group_store() -> Any:
    """Return the key-value store of the default process group; ``None`` without one, or if it is unknown."""
    try:
        from torch.distributed.distributed_c10d import _get_default_store

        return _get_default_store()
    except (ImportError, ValueError, RuntimeError):  # the latter two: torch.distributed is not initialized
        return None


POOL_ENDS = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"
"""The names of one function, that of older versions last."""


def close_capture_pool(device: torch.device, pool: Any) -> None:
    """Let memory no longer come from the pool of a CUDA graph whose capture has failed, if it still does.

    torch up to 2.11 leaves it open then: all later memory of that stream would come from it, and stay in it.
    """
    end = next((getattr(torch._C, name) for name in POOL_ENDS if hasattr(torch._C, name)), None)
    if end is None or not hasattr(torch._C, "_cuda_releasePool"):
        return
    with contextlib.suppress(RuntimeError):  # it is closed
        end(device.index, pool)
        torch._C._cuda_releasePool(device.index, pool)


def named_dimensions(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has named dimensions, which torch 2.14 has removed."""
    return bool(getattr(tensor, "has_names", lambda: False)())


def calling_frame(depth: int) -> FrameType | None:
    """Return a frame of the call stack, 0 being that of the calling function; ``None`` if Python has no such API."""
    get_frame = getattr(sys, "_getframe", None)
    return None if get_frame is None else get_frame(depth + 1)


def numba_cache(function: Callable[..., Any]) -> Any:
    """Return numba's file cache for a function; raise ``RuntimeError`` if there is none, or no folder for it."""
    try:
        from numba.core.caching import FunctionCache
    except ImportError:
        raise RuntimeError("This version of numba has no file cache.") from None
    make: Any = FunctionCache
    return make(function)


def set_numba_cache(compiled: Any, cache: Any) -> None:
    """Make a function compiled by numba use a cache, for which numba has no public API."""
    if hasattr(compiled, "_cache"):
        compiled._cache = cache


def prefer_wide_vectors(function: Any) -> None:
    """Let LLVM use vectors of 512 bits in a function, an ``llvmlite.ir.Function``, if there is a way."""
    if _vectors_can_be_wide():
        set.add(function.attributes, WIDE_VECTORS)  # their own method refuses all that llvmlite does not know


WIDE_VECTORS = '"prefer-vector-width"="512"'


@functools.cache
def _vectors_can_be_wide() -> bool:
    """Return whether LLVM understands what llvmlite writes for a function with that attribute."""
    try:
        from llvmlite import binding, ir

        function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), ()), "function")
        set.add(function.attributes, WIDE_VECTORS)
        return WIDE_VECTORS in str(binding.parse_assembly(str(function.module)))
    except Exception:  # whatever another version raises
        return False


def hash_triton() -> None:
    """Let Triton compute the hash of its own files now, if it can: several threads would all compute it."""
    from triton.runtime import cache

    getattr(cache, "triton_key", lambda: None)()


def build_launcher(kernel: Any) -> None:
    """Let Triton load a compiled kernel, and build its launcher, now instead of for its first launch, if it can."""
    getattr(kernel, "run", None)


@contextlib.contextmanager
def keep_room_generator(generator: Any) -> Iterator[None]:
    """Restore the numpy generator of ``pyroomacoustics.random`` afterwards, if that library exposes it."""
    exposed, before = hasattr(generator, "_rng"), getattr(generator, "_rng", None)
    try:
        yield
    finally:
        if exposed:
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
    except Exception:  # doctor reports it
        return True
    compiled = numba.njit(_has)
    is_off = compiled is _has  # by NUMBA_DISABLE_JIT
    return is_off or (_importable("numba.core.caching", "FunctionCache") and hasattr(compiled, "_cache"))


def _numba_has_wide_vectors() -> bool:
    try:
        import numba  # noqa: F401
    except Exception:  # doctor reports it
        return True
    return _vectors_can_be_wide()


def _triton_has_launchers() -> bool:
    try:
        from triton.compiler import CompiledKernel
    except Exception:  # doctor reports it
        return True
    return hasattr(CompiledKernel, "run")


def _room_generator() -> bool:
    try:
        import pyroomacoustics
    except Exception:  # doctor reports it
        return True
    return hasattr(pyroomacoustics.random.generator, "_rng")


INTERNALS: tuple[Internal, ...] = (
    Internal(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "finds the inputs of a CUDA graph, and what makes the host wait for the GPU",
        "the cuda_graph engine and the advisor's list of waits are unavailable",
        lambda _: _importable("torch.utils._python_dispatch", "TorchDispatchMode"),
    ),
    Internal(
        "torch.utils._python_dispatch._get_current_dispatch_mode",
        "runs torch operations instead of compiled loops while a tracer is active",
        "tracing by torch.compile is still detected, other tracers are not",
        lambda _: _importable("torch.utils._python_dispatch", "_get_current_dispatch_mode"),
    ),
    Internal(
        "torch._C._functorch.peek_interpreter_stack, .get_interpreter_stack, .TransformType",
        "runs torch operations instead of compiled loops in transforms of torch.func, and refuses new draws in vmap",
        "torch.func.grad, jvp and vmap of a module raise an exception",
        lambda _: _has(
            getattr(torch._C, "_functorch", None), "peek_interpreter_stack", "get_interpreter_stack", "TransformType"
        ),
    ),
    Internal(
        "torch._C._current_graph_task_id",
        "refuses new draws where activation checkpointing runs a module again",
        "gradients of a module that draws anew are wrong there",
        lambda _: _has(torch._C, "_current_graph_task_id"),
    ),
    Internal(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter._workers, ._shutdown_workers",
        "names a worker that was killed, and ends workers with their Loader",
        "torch's own error is raised, and workers end when Python exits",
        lambda iterator: _has(iterator, "_workers", "_shutdown_workers"),
    ),
    Internal(
        "multiprocessing.queues.Queue._reader, ._poll, ._recv_bytes",
        "notes that a worker was killed while it sent a batch",
        "after such a kill, the training process can wait forever",
        lambda iterator: (
            sys.platform == "win32"
            or _has(getattr(iterator, "_worker_result_queue", None), "_reader", "_poll", "_recv_bytes")
        ),
    ),
    Internal(
        "torch.utils.data._utils.signal_handling._set_SIGCHLD_handler",
        "lets the error about a program's first workers wait until a queue has taken its item",
        "such an error can leave a thread",
        lambda _: _importable("torch.utils.data._utils.signal_handling", "_set_SIGCHLD_handler"),
    ),
    Internal(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter._worker_result_queue, ._data_queue, ._task_info",
        "counts the batches that are ready",
        "Monitor and the report do not show that number",
        lambda iterator: _has(iterator, "_worker_result_queue", "_data_queue", "_task_info"),
    ),
    Internal(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__del__",
        "recognizes what torch prints when workers cannot be started",
        "a traceback of torch is printed before the error",
        lambda _: _importable("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter"),
    ),
    Internal(
        "torch.distributed.distributed_c10d._get_default_store",
        "reads what other ranks wait for, without waiting for them",
        "Monitor does not name the slowest rank",
        lambda _: (
            not torch.distributed.is_available()
            or _importable("torch.distributed.distributed_c10d", "_get_default_store")
        ),
    ),
    Internal(
        "torch._C._cuda_endAllocateToPool, ._cuda_releasePool",
        "closes the memory pool of a CUDA graph that could not be captured",
        "after such a failure, memory that is freed is not used again",
        lambda _: not torch.cuda.is_available() or any(_has(torch._C, name, "_cuda_releasePool") for name in POOL_ENDS),
    ),
    Internal(
        "torch.Tensor.has_names",
        "keeps the names of a tensor's dimensions (torch before 2.14)",
        "dimensions have no names",
        lambda _: True,
    ),
    Internal(
        "sys._getframe",
        "lets a warning name the user's line",
        "it names a line of audioaug",
        lambda _: hasattr(sys, "_getframe"),
    ),
    Internal(
        "numba.core.caching.FunctionCache, Dispatcher._cache",
        "caches compiled loops in files, even if one is damaged or the disk is full",
        "each process compiles them again",
        lambda _: _numba_has_caches(),
    ),
    Internal(
        "llvmlite.ir.Function.attributes",
        "compiles some loops with vectors of 512 bits where the processor does not slow down with them",
        "these loops are 1.1x slower",
        lambda _: _numba_has_wide_vectors(),
    ),
    Internal(
        "triton.runtime.cache.triton_key",
        "hashes Triton's files once (0.4 s) before threads compile kernels",
        "each of up to 8 threads hashes them",
        lambda _: not _importable("triton", "jit") or _importable("triton.runtime.cache", "triton_key"),
    ),
    Internal(
        "triton.compiler.CompiledKernel.run",
        "builds the launchers of kernels in threads before they are proven",
        "they are built one by one, 0.1 to 0.3 s each",
        lambda _: _triton_has_launchers(),
    ),
    Internal(
        "pyroomacoustics.random.generator._rng",
        "restores that library's random state",
        "RoomSimulator leaves it seeded",
        lambda _: _room_generator(),
    ),
)
"""All of them. A test checks in every tested environment that each exists."""


def missing_internals(iterator: Any) -> tuple[Internal, ...]:
    """Return those that the installed versions lack, given the iterator of a DataLoader with workers."""
    return tuple(each for each in INTERNALS if not each.exists(iterator))
