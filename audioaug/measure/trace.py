"""Trace a call: how many kernels it launches, and how often the host waits for the device.

On CUDA this uses the profiler. On the CPU nothing waits, so calls that would synchronize with a GPU are counted:
reading a value, a shape that depends on values, a copy of host data.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from audioaug.internals import DispatchMode

READS = {
    "_linalg_check_errors",
    "_local_scalar_dense",
    "_unique2",
    "argwhere",
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
"""Operators whose result or shape the host must wait for."""

ALLOCATES = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
"""Operators that only allocate: no kernel runs."""

CONVERTS = {"tolist", "numpy", "__array__", "cpu"}
"""Methods that copy a tensor to the host. On the CPU they do not reach an operator."""

FROM_HOST = {"tensor", "as_tensor", "new_tensor"}
"""Functions that copy a Python or numpy number to the device and wait.

Copies of several numbers, and indices from lists and arrays, reach an operator (``lift_fresh``).
"""

CUDA_WAITS = {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy"}


@dataclass(frozen=True)
class Trace:
    """The number of kernels, and the names of the calls that the host waited for."""

    kernels: int
    waits: tuple[str, ...]


def trace(work: Callable[[], object], device: torch.device) -> Trace:
    """Run ``work`` once and return its kernels and waits.

    On the CPU, each operator that computes counts as a kernel (views and allocations do not), and calls that would wait
    on a GPU count as waits. Copies from the device that ``work`` makes itself, and other threads, are not covered.
    """
    return _trace_cuda(work, device) if device.type == "cuda" else _trace_calls(work)


def _trace_calls(work: Callable[[], object]) -> Trace:
    methods, operators = _Methods(), _Operators()
    with methods, operators:
        work()
    return Trace(operators.kernels, (*operators.waits, *methods.waits))


class _Methods(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        result = func(*args, **kwargs)
        if name in CONVERTS or _exchanges(name, args, kwargs, result):
            self.waits.append(name)
        return result


def _exchanges(name: str, args: Any, kwargs: dict[str, Any], result: Any) -> bool:
    """Return whether a function copies a tensor to the host, or a single number from the host."""
    if name == "to":  # a torch.device may be another tensor's, thus a GPU
        return any(isinstance(each, str) and each == "cpu" for each in (*args[1:], *kwargs.values()))
    if name == "__setitem__":  # several elements: a fill
        x, index, value = args
        places = index if isinstance(index, tuple) else (index,)
        return x.ndim == len(places) and all(type(each) is int for each in places) and not torch.is_tensor(value)
    return name in FROM_HOST and not isinstance(args[-1] if args else None, torch.Tensor) and not result.ndim


class _Operators(DispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels, self.waits = 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.kernels += not func.is_view and name not in ALLOCATES
        if _reads(name, args, kwargs):
            self.waits.append(name)
        return func(*args, **kwargs)


def _reads(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether the host must wait for an operator's result, or for a copy of its own data."""
    if name == "lift_fresh":
        return bool(args[0].ndim)
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_"):
        masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
        filled = name != "index" and args[2].numel() == 1  # becomes masked_fill
        return bool(masks) and not filled
    return name in READS


def _trace_cuda(work: Callable[[], object], device: torch.device) -> Trace:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler warns that its events are cleared
        with torch.profiler.profile(activities=activities) as profile:
            work()
            torch.cuda.synchronize(device)
    events = profile.events() or []
    on_device = [e.name for e in events if e.device_type.name == "CUDA"]
    kernels = [name for name in on_device if not name.startswith(("Memcpy", "Memset"))]
    return Trace(len(kernels), tuple(e.name for e in events if e.name in CUDA_WAITS))
