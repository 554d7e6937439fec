"""Dispatch: which of a primitive's implementations runs.

A primitive is declared once, by its definition in torch operations, which runs anywhere. It may also have a loop,
which numba compiles for CPUs (``dsp.loops``), and a kernel, which Triton compiles for NVIDIA GPUs:

    @primitive
    def doubled(x_RCT): ...

    @doubled.loop()
    def _double_by_loop(x_RCT): ...

    @doubled.kernel(when=_is_contiguous)
    def _double_by_kernel(x_RCT): ...

All take the same arguments, and the first one, a tensor, decides. ``AUDIOAUG_BACKEND=torch`` or ``backend("torch")``
leaves only the definitions.
"""

import contextlib
import functools
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar

import torch

from audioaug.errors import UsageError
from audioaug.internals import is_transformed, operations_are_watched

P = ParamSpec("P")
T = TypeVar("T")
Implementation: TypeAlias = Literal["torch", "loop", "kernel"]

FASTEST: dict[str, Implementation] = {"cpu": "loop", "cuda": "kernel"}
"""What runs on a type of device if it can: tests let the CPU run kernels, which Triton interprets there."""

BACKENDS = ("auto", "torch")

LEAST_TRITON = 3, 6
"""The first version that the kernels were tested with; 3.0, which torch 2.4 brings, makes wrong noise."""

MOST_BLOCKS = 65535
"""CUDA launches no more programs along the second axis of a grid, which are the blocks of a row."""

CACHED = 2**19
"""This many samples, and what is computed from them on the way, fit into a CPU's cache: 2 MiB of float32."""


def _known(name: str) -> str:
    if name not in BACKENDS:
        raise UsageError(f"AUDIOAUG_BACKEND is {name!r}, which is not a backend.", f"Known: {', '.join(BACKENDS)}.")
    return name


_backend = _known(os.environ.get("AUDIOAUG_BACKEND") or "auto")


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Choose implementations within this block, for all threads of this process.

    Args:
        name: ``"torch"`` for the definitions only, or ``"auto"`` for the fastest that each device supports.

    Raises:
        UsageError: there is no such backend.
    """
    global _backend
    before, _backend = _backend, _known(name)
    try:
        yield
    finally:
        _backend = before


class _OfThread(threading.local):
    """What holds for one thread: several may run ops at the same time, one for each GPU."""

    used: "list[Compiled] | None" = None
    launch: "Launch | None" = None
    """What it calls to launch kernels, if not Triton."""


_of_thread = _OfThread()
_off: "set[Compiled]" = set()


@contextlib.contextmanager
def used() -> "Iterator[list[Compiled]]":
    """Collect the loops and kernels that run in this thread and block."""
    before, found = _of_thread.used, list[Compiled]()
    _of_thread.used = found
    try:
        yield found
    finally:
        _of_thread.used = before


@contextlib.contextmanager
def without(compiled: "Iterable[Compiled]") -> Iterator[None]:
    """Run the definitions in place of these within this block."""
    more = {*compiled} - _off
    _off.update(more)
    try:
        yield
    finally:
        _off.difference_update(more)


def switch_off(compiled: "Compiled") -> None:
    """Run the definition in place of this one from now on."""
    _off.add(compiled)


def switched_off(kind: Implementation) -> list["Primitive[Any, Any]"]:
    """Return the primitives whose loops, or kernels, are switched off."""
    return [primitive for primitive, off in tuple(_off) if off == kind]


class Primitive(Generic[P, T]):
    """A function on a tensor, its definition in torch operations, and faster implementations of it."""

    def __init__(self, definition: Callable[Concatenate[torch.Tensor, P], T]) -> None:
        self.definition = definition
        self._declared: dict[Implementation, list[tuple[Any, Any]]] = {}
        functools.update_wrapper(self, definition)

    def __call__(self, x: torch.Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the first implementation of those for x whose condition holds, else the definition."""
        fastest = _fastest_on(x.device)
        if fastest in self._declared and supports(fastest, x) and (self, fastest) not in _off:
            for function, when in self._declared[fastest]:
                if when is None or when(x, *args, **kwargs):
                    if _of_thread.used is not None:
                        _of_thread.used.append((self, fastest))
                    return function(x, *args, **kwargs)
        return self.definition(x, *args, **kwargs)

    @property
    def name(self) -> str:
        """Where it is defined and how it is called, as in ``dsp.noise.gaussian``."""
        module = self.definition.__module__.removeprefix("audioaug.")
        return f"{module}.{self.definition.__name__.lstrip('_')}"

    def loop(self, when: Callable[Concatenate[torch.Tensor, P], bool] | None = None) -> "Decorator[P, T]":
        """Declare a function that does the same by loops on a CPU; perhaps only ``when`` its arguments allow it."""
        return self._declare("loop", when)

    def kernel(self, when: Callable[Concatenate[torch.Tensor, P], bool] | None = None) -> "Decorator[P, T]":
        """Declare a function that does the same by kernels on an NVIDIA GPU; as ``loop``."""
        return self._declare("kernel", when)

    def _declare(self, kind: Implementation, when: Any) -> "Decorator[P, T]":
        def declare(function: Callable[Concatenate[torch.Tensor, P], T]) -> Callable[Concatenate[torch.Tensor, P], T]:
            self._declared.setdefault(kind, []).append((function, when))
            return function

        return declare


Compiled: TypeAlias = tuple[Primitive[Any, Any], Implementation]
"""A primitive's loops, or its kernels."""

Decorator: TypeAlias = Callable[[Callable[Concatenate[torch.Tensor, P], T]], Callable[Concatenate[torch.Tensor, P], T]]


def primitive(definition: Callable[Concatenate[torch.Tensor, P], T]) -> Primitive[P, T]:
    """Declare a primitive by its torch definition."""
    return Primitive(definition)


def implementation_for(x: torch.Tensor) -> Implementation:
    """Return which implementation of a primitive runs on x, if it has that one."""
    fastest = _fastest_on(x.device)
    return fastest if supports(fastest, x) else "torch"


def _fastest_on(device: torch.device) -> Implementation:
    return "kernel" if _of_thread.launch else FASTEST.get(device.type, "torch")


def supports(implementation: Implementation, x: torch.Tensor) -> bool:
    """Return whether loops, or kernels, may be used on x, a tensor on a device that has them.

    While a CUDA graph is captured, kernels are recorded like any other, though operations are watched then.
    """
    if implementation == "torch" or _backend == "torch":
        return implementation == "torch"
    if implementation == "loop":
        return not needs_torch_ops(x) and loops_are_usable()
    return kernels_are_usable() and (not needs_torch_ops(x) or (x.is_cuda and torch.cuda.is_current_stream_capturing()))


def loops_are_usable() -> bool:
    """Return whether numba is installed and compiles, unless only the definitions are to run."""
    return _backend != "torch" and is_installed("numba") and numba_compiles()


@functools.cache
def numba_compiles() -> bool:
    """Return whether numba compiles; with ``NUMBA_DISABLE_JIT=1`` it would run loops as they are, in Python."""
    return not importlib.import_module("numba").config.DISABLE_JIT


def is_compiling() -> bool:
    """Return whether ``torch.compile`` or ``torch.export`` is tracing; both import ``torch._dynamo`` first."""
    return "torch._dynamo" in sys.modules and torch.compiler.is_compiling()


def needs_torch_ops(x: torch.Tensor) -> bool:
    """Return whether only torch operations may be used on x: for its gradient, for ``torch.func``, or a tracer."""
    traced = is_compiling() or operations_are_watched() or is_transformed()
    return traced or (x.requires_grad and torch.is_grad_enabled())


@functools.cache
def is_installed(compiler: str) -> bool:
    """Return whether the module that compiles can be imported."""
    try:
        importlib.import_module(compiler)
    except ImportError:  # also where numpy is newer than numba knows
        return False
    return True


def kernels_are_usable() -> bool:
    """Return whether Triton is installed and compiles, in a version that the kernels were tested with."""
    return is_installed("triton") and _triton_version() >= LEAST_TRITON and triton_compiles()


@functools.cache
def triton_compiles() -> bool:
    """Return whether Triton compiles; with ``TRITON_INTERPRET=1`` it would run kernels in Python."""
    return os.environ.get("TRITON_INTERPRET", "").lower() not in ("1", "true", "yes", "on", "y")


@functools.cache
def _triton_version() -> tuple[int, ...]:
    found: str = importlib.import_module("triton").__version__
    return tuple(map(int, re.findall(r"\d+", found)[:2]))


def launch(kernel: Any, grid: Sequence[int], x: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch this many programs of a kernel on the device that x, its first argument, is on.

    The blocks of a very long row, which a second number counts, get larger: ``BLOCK``, their samples, is a constant.
    Products and sums are fused unless a kernel forbids that: Triton 3.9 warns that its default will change.
    """
    constants = {"enable_fp_fusion": True, **constants}
    if len(grid) > 1 and grid[1] > MOST_BLOCKS:
        times = 1 << (-(-grid[1] // MOST_BLOCKS) - 1).bit_length()
        grid, constants["BLOCK"] = (grid[0], -(-grid[1] // times)), constants["BLOCK"] * times
    (_of_thread.launch or launch_by_triton)(kernel, grid, x, *arguments, **constants)


def launch_by_triton(kernel: Any, grid: Sequence[int], x: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel: for functions that ``launched_by`` is given, which launch nothing by themselves."""
    with torch.cuda.device_of(x):
        kernel[tuple(grid)](x, *arguments, **constants)


Launch: TypeAlias = Callable[..., None]


@contextlib.contextmanager
def launched_by(launch: Launch) -> Iterator[None]:
    """Run kernels on any device, but by this function, in this thread and block: called as ``launch``."""
    before, _of_thread.launch = _of_thread.launch, launch
    try:
        yield
    finally:
        _of_thread.launch = before


def map_chunks(work: Callable[[slice], torch.Tensor], x_RCT: torch.Tensor, samples: int) -> torch.Tensor:
    """Return what ``work`` makes of all rows: on a CPU in chunks that stay in its cache, else of all rows together.

    Args:
        work: returns the result for a slice of the rows, (R, ...).
        x_RCT: these rows.
        samples: of a row, at its longest on the way.
    """
    parts = [work(some) for some in chunks(x_RCT, len(x_RCT), samples)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def chunks(x_RCT: torch.Tensor, rows: int, samples: int) -> Iterator[slice]:
    """Yield slices of a number of x's rows: on a CPU as many as stay in its cache, else all together.

    Args:
        x_RCT: the rows, or more.
        rows: how many.
        samples: of a row, at its longest on the way.
    """
    one = x_RCT.device.type != "cpu" or needs_torch_ops(x_RCT)
    step = max(1, rows if one else _chunk(samples))
    return (slice(first, first + step) for first in range(0, max(1, rows), step))


def _chunk(samples: int) -> int:
    """Return how many rows fit into the cache, as many for each thread, since loops give each its own rows."""
    threads = torch.get_num_threads()
    return max(1, CACHED // max(1, samples) // threads) * threads
