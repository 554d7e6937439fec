"""Recorders: work as a CUDA graph, or compiled by ``torch.compile``.

Either repeats the kernels, and nothing of what Python did between them.

Shapes: B examples, C channels, T samples.
"""

import warnings
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from audioaug.build.recording import Work


class Compiler:
    """Traces the operators, which leaves no Python to break the graph or to recompile for, and compiles them.

    That takes some 10 s for each layout, so few are worth it. On a CPU it takes the place of loops (``dsp.compiled``),
    which it cannot see: the light chain takes 1.3 times as long as with these (one thread, 32 clips of 1 s).
    """

    most = 4

    def takes(self, x_BCT: torch.Tensor) -> bool:
        """Compile for CPUs and NVIDIA GPUs."""
        return x_BCT.device.type in ("cpu", "cuda")

    def __call__(self, work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
        """Trace and compile."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that complex numbers are left to torch's own kernels
            found: Work = torch.compile(traced(work, x_BCT, numbers), fullgraph=True, dynamic=False)
            found(x_BCT, numbers)  # compiles it
        return found


def traced(work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
    """Return the work's operators, one after the other."""
    found: Work = make_fx(work)(x_BCT, numbers)
    return found


class CudaGraphs:
    """Captures work as CUDA graphs, which share their memory: one runs at a time, whatever stream it is called on.

    Graphs hold addresses. So what they read besides (banks of noise) is kept, and where torch is about to drop FFT
    plans (it keeps 4,096 for a device), none is used.
    """

    most = 16

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None
        self._batches: dict[tuple[Any, ...], torch.Tensor] = {}
        self._done: torch.cuda.Event | None = None

    def takes(self, x_BCT: torch.Tensor) -> bool:
        """Capture on NVIDIA GPUs, while all FFT plans are kept."""
        if not x_BCT.is_cuda:
            return False
        plans = torch.backends.cuda.cufft_plan_cache[x_BCT.device.index]
        return bool(plans.size < plans.max_size)

    def __call__(self, work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
        """Capture."""
        place = (x_BCT.shape, x_BCT.dtype, x_BCT.device)
        mine = (self._batches.setdefault(place, x_BCT.clone()), numbers.clone())
        graph, outside = torch.cuda.CUDAGraph(), Outside()
        # Other threads may allocate meanwhile, as the one that pins batches does: only this thread's work is captured.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"), outside:
            mine[0].copy_(work(*mine))

        def replay(*given: torch.Tensor) -> torch.Tensor:
            stream = torch.cuda.current_stream(given[0].device)
            if self._done is not None:
                stream.wait_event(self._done)
            for own, other in zip(mine, given, strict=True):
                own.copy_(other)
                own.record_stream(stream)
            graph.replay()
            y_BCT = mine[0].clone()
            self._done = stream.record_event()
            return y_BCT

        replay.reads = outside.tensors  # type: ignore[attr-defined]
        return replay


class Outside(TorchDispatchMode):
    """Collects the tensors that work reads and has not made itself."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: set[int] = set()
        self._read: dict[int, torch.Tensor] = {}

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those, one of each storage."""
        return list(self._read.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors((args, kwargs)):
            if _place(tensor) not in self._made:
                self._read[_place(tensor)] = tensor
        self._made.update({_place(tensor) for tensor in _tensors(result)} - self._read.keys())
        return result


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
