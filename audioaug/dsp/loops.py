"""Loops over samples, which numba compiles for CPUs: how they are declared, compiled, and run in threads.

A loop is a plain Python function next to the torch definition of its primitive, or in the file of its op. It
takes as its last two arguments the first row and the one after the last, and needs no lock of Python's. It is compiled
at its first call, and once for all processes where that can be kept in a file. It is compiled again when the file that
it is in changes: what it calls, and the numbers that it reads, have to be in there too.
"""

import ctypes
import functools
import multiprocessing
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np
import threadpoolctl
import torch
from numpy.typing import NDArray

from audioaug.errors import AudioaugWarning, first_line
from audioaug.internals import numba_cache, prefer_wide_vectors, set_numba_cache

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Complex: TypeAlias = NDArray[np.complex64]

P = ParamSpec("P")
T = TypeVar("T")


class Loop(Generic[P, T]):
    """A function that numba compiles when it is first called, by Python or by another loop."""

    def __init__(self, function: Callable[P, T], fastmath: set[str]) -> None:
        self.function, self.fastmath = function, fastmath
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what was compiled."""
        result: T = self.compiled(*args, **kwargs)
        return result

    @functools.cached_property
    def compiled(self) -> Any:
        """What numba makes of it."""
        compiled = _numba().njit(nogil=True, fastmath=self.fastmath, error_model="numpy")(self.function)
        with suppress(RuntimeError):
            set_numba_cache(compiled, Cache(self.function))  # as enable_caching() does with numba's own
        return compiled


def _numba() -> Any:
    """Return numba, with all that is declared with ``lowers`` registered."""
    numba = _numba_with_loops()
    with _registering:  # several threads may compile at a time
        while _pending:
            _register(numba, *_pending[-1])
            _pending.pop()
    return numba


@functools.cache
def _numba_with_loops() -> Any:
    """Return numba, which is to take a loop that another one calls for what is compiled of it."""
    import numba
    from numba.extending import typeof_impl

    typeof_impl.register(Loop)(lambda called, context: typeof_impl(called.compiled, context))
    return numba


Lowering: TypeAlias = Callable[[Any, Any, Any, Any], Any]

_pending: list[tuple[Callable[..., Any], str, Lowering]] = []
"""What is not registered yet: numba is imported with the first loop that is compiled."""

_registering = threading.Lock()


def lowers(function: Callable[..., Any], result: str) -> Callable[[Lowering], Lowering]:
    """Declare a numba lowering of a function that loops call: it writes the LLVM instructions of each call.

    It is called with numba's context, llvmlite's builder, the signature, and the arguments. ``result`` names the numba
    type that the function returns. Arrays must be contiguous, of float32: for others numba reports a ``TypingError``.
    """

    def declare(lower: Lowering) -> Lowering:
        _pending.append((function, result, lower))
        return lower

    return declare


def _register(numba: Any, function: Callable[..., Any], result: str, lower: Lowering) -> None:
    from numba.extending import lower_builtin, type_callable

    @functools.wraps(function)
    def returned(*arguments: Any) -> Any:
        arrays = [each for each in arguments if isinstance(each, numba.types.Array)]
        fits = all(each.layout == "C" and each.dtype == numba.types.float32 for each in arrays)
        return getattr(numba.types, result) if fits else None

    type_callable(function)(lambda context: returned)
    lower_builtin(function, numba.types.VarArg(numba.types.Any))(lower)  # type: ignore[no-untyped-call]


def wide_vectors() -> None:
    """In a loop: let it use vectors of 512 bits where the processor does not slow down with them; LLVM takes 256.

    That helps loops that compute much from few bytes.
    """


@lowers(wide_vectors, "none")
def _prefer_wide_vectors(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Compile ``wide_vectors``: Intel's processors before Ice Lake slow down with wide vectors."""
    from llvmlite.binding import get_host_cpu_features

    with suppress(RuntimeError):  # where LLVM does not know the processor
        if get_host_cpu_features().get("avx512vbmi2"):
            prefer_wide_vectors(builder.function)
    return context.get_dummy_value()


def loop(function: Callable[P, T]) -> Loop[P, T]:
    """Declare a loop that runs without Python's lock, and rounds products only once they are added."""
    return Loop(function, {"contract"})


def loop_of_sums(function: Callable[P, T]) -> Loop[P, T]:
    """Declare a loop that may add numbers in any order, many in one instruction."""
    return Loop(function, {"contract", "reassoc"})


def loop_as_written(function: Callable[P, T]) -> Loop[P, T]:
    """Declare a loop that rounds each product and sum as torch does, where a digit more would decide otherwise."""
    return Loop(function, set())


class Cache:
    """numba's cache of one function, where a damaged entry or a full disk is no error: the function is compiled.

    Raises:
        RuntimeError: there is no folder to keep it in.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cache = numba_cache(function)
        self.cache_path = self._cache.cache_path

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return what was compiled before, or ``None``; forget all of it where that cannot be read."""
        try:
            return self._cache.load_overload(signature, target_context)
        except Exception:  # unpickling a damaged file can raise anything
            with suppress(OSError):
                self._cache.flush()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled, where that can be."""
        try:
            self._cache.save_overload(signature, compiled)
        except Exception as error:
            self._cache.disable()
            _warn_once(f"Compiled loops cannot be kept in {self.cache_path} ({first_line(error)})")


@functools.cache
def _warn_once(reason: str) -> None:
    if multiprocessing.parent_process() is None:
        warnings.warn(
            f"{reason}: each process compiles them again. Free space there, or name a folder in NUMBA_CACHE_DIR.",
            AudioaugWarning,
            stacklevel=3,
        )


def run_rows(
    loop: Callable[..., None],
    x_RCT: torch.Tensor,
    *arguments: Any,
    samples_out: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what a loop makes of rows, which for it are the channels one after the other: (R, C, samples_out or T).

    Args:
        loop: its arguments are these rows, the ``arguments``, C, where the result goes, and the rows to do.
        x_RCT: the rows, of samples or what else loops over them expect.
        arguments: numbers, and tensors with something for each of the R rows.
        samples_out: of the result; T by default.
        out: where the result goes, if it is contiguous there.
    """
    rows, channels = x_RCT.shape[:2]
    if out is None or not out.is_contiguous():
        out = x_RCT.new_empty(rows, channels, x_RCT.shape[-1] if samples_out is None else samples_out)
    run(loop, rows * channels, x_RCT.flatten(0, 1), *arguments, channels, out.flatten(0, 1))
    return out


def run(loop: Callable[..., None], rows: int, *arguments: Any, most_threads: int | None = None) -> None:
    """Run a loop over all rows, in as many threads as torch has.

    Args:
        loop: its last two arguments are the first row and the one after the last.
        rows: how many there are.
        arguments: its others: numbers, and tensors; those that it writes to are contiguous.
        most_threads: 1 where there is little to do: the others take 40 microseconds to start.
    """
    call = loop.compiled if isinstance(loop, Loop) else loop
    arrays = [each.detach().contiguous().numpy() if isinstance(each, torch.Tensor) else each for each in arguments]
    threads = min(most_threads or torch.get_num_threads(), rows)
    if threads < 2:
        call(*arrays, 0, rows)
        return
    wrong: list[BaseException] = []
    parts = iter(range(threads))

    def work(_: None = None) -> None:
        try:
            for part in parts:
                call(*arrays, rows * part // threads, rows * (part + 1) // threads)
        except BaseException as error:  # which would be lost in another thread
            wrong.append(error)

    run_in_threads = _team() or _pool
    run_in_threads(work, threads)
    if wrong:
        raise wrong[0]


@functools.cache
def _team() -> Callable[[Callable[..., None], int], None] | None:
    """Return what calls a function in all of torch's own threads together, if these are GNU OpenMP's.

    Other threads would have to wait for a core while these spin, ready for torch's next operation.
    """
    libraries = [each["filepath"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "openmp"]
    for library in map(ctypes.CDLL, libraries):
        if hasattr(library, "GOMP_parallel"):
            called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
            parallel = library.GOMP_parallel
            parallel.argtypes, parallel.restype = [called, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
            return lambda work, threads: parallel(called(work), None, threads, 0)
    return None


def _pool(work: Callable[..., None], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(threads):
            pool.submit(work)
