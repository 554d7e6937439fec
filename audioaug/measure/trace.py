"""What a piece of work asks of its device: how many kernels, and how often the host waits for an answer.

On a CUDA device the profiler tells. On the CPU nothing ever waits, so calls are watched for those that would wait if
the tensors were on a GPU: reading a value, a shape that depends on values, a copy of the host's numbers.
"""

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
"""Operators whose result, or its shape, the host must know before it can go on."""

ALLOCATES = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
"""Operators that fill nothing, so that no kernel runs."""

CONVERTS = {"tolist", "numpy", "__array__", "cpu"}
"""Methods that bring a tensor to the host. They never reach an operator where it is there already."""

FROM_HOST = {"tensor", "as_tensor", "new_tensor"}
"""Functions that copy a number of Python's or numpy's to the device, and wait until that is done.

Where they copy several, an operator tells (``lift_fresh``), as it does of lists and arrays that are indices.
"""

CUDA_WAITS = {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy"}


@dataclass(frozen=True)
class Trace:
    """What was asked of the device: the number of kernels, and what the host waited for, one name each time."""

    kernels: int
    waits: tuple[str, ...]


def trace(work: Callable[[], object], device: torch.device) -> Trace:
    """Run ``work`` once and return what it asked of the device that its tensors are on.

    On the CPU, each operator that computes something counts as a kernel (views and bare allocations do not), and a wait
    is what would be one on a GPU. Copies from the device that ``work`` makes itself, and what other threads do, are
    not seen.
    """
    return _trace_cuda(work) if device.type == "cuda" else _trace_calls(work)


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
    """Return whether a function copies a tensor to the host, or a single number from it."""
    if name == "to":  # a device that is no string may be another tensor's, so be the GPU
        return any(isinstance(each, str) and each == "cpu" for each in (*args[1:], *kwargs.values()))
    if name == "__setitem__":  # of several samples it is a fill
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
    """Return whether the host must wait for what an operator computes, or for numbers of its own to be copied."""
    if name == "lift_fresh":
        return bool(args[0].ndim)
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_"):
        masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
        filled = name != "index" and args[2].numel() == 1  # which is done as masked_fill
        return bool(masks) and not filled
    return name in READS


def _trace_cuda(work: Callable[[], object]) -> Trace:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        work()
        torch.cuda.synchronize()
    events = profile.events() or []
    on_device = [e.name for e in events if e.device_type.name == "CUDA"]
    kernels = [name for name in on_device if not name.startswith(("Memcpy", "Memset"))]
    return Trace(len(kernels), tuple(e.name for e in events if e.name in CUDA_WAITS))
