"""What ``GraphCache`` can keep: a CUDA graph, or what ``torch.compile`` makes of it.

Either runs the same kernels again, without the Python code between them.

Shapes: B examples, C channels, T samples.
"""

import contextlib
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug.dsp.dispatch import launch_by_triton, launched_by
from audioaug.engine.graph_cache import Work, log
from audioaug.internals import DispatchMode, close_capture_pool

MOST_OF_PEAK = 1e-3
"""By how much compiled work may differ, as a share of the peak: rounding alone is 1e-6."""


class TorchCompile:
    """Traces the operators, which leaves no Python to break the graph or to recompile for, and compiles them.

    That takes some 10 s for each layout, so few are worth it. On a CPU it takes the place of loops (``dsp.loops``),
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
            compiled: Work = torch.compile(traced(work, x_BCT, numbers), fullgraph=True, dynamic=False)
            y_BCT = compiled(x_BCT, numbers)  # compiles it
        check_equal(y_BCT, work(x_BCT, numbers), "torch.compile")
        return compiled


def check_equal(found_BCT: torch.Tensor, y_BCT: torch.Tensor, what: str) -> None:
    """Raise ``RuntimeError`` if a result differs from that of the work itself: compiled noise does, with torch 2.4."""
    difference, peak = (found_BCT - y_BCT).abs().max().item(), y_BCT.abs().max().item()
    if not difference <= MOST_OF_PEAK * peak:
        raise RuntimeError(f"{what} gives a result that is off by {difference:.2g} (peak {peak:.2g})")


def traced(work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
    """Return the work's operators, one after the other."""
    operators: Work = make_fx(work)(x_BCT, numbers)
    return operators


class CudaGraphs:
    """Captures work as CUDA graphs, which share their memory: one runs at a time, whatever stream it is called on.

    The first replay of each is compared with a run without graphs, which waits for the device.

    Graphs hold addresses. So what they read besides (banks of noise) is kept, and once torch may have dropped FFT plans
    (it keeps 4,096 for a device), none is used there any more.
    """

    most = 16

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None  # of memory on any device
        self._batches: dict[tuple[Any, ...], torch.Tensor] = {}
        self._done: dict[torch.device, torch.cuda.Event] = {}
        self._full: set[torch.device] = set()

    def takes(self, x_BCT: torch.Tensor) -> bool:
        """Capture on NVIDIA GPUs, while all FFT plans are kept; log once when that ends."""
        if not x_BCT.is_cuda:
            return False
        device = x_BCT.device
        plans = torch.backends.cuda.cufft_plan_cache[device.index]
        if plans.size >= plans.max_size and device not in self._full:
            self._full.add(device)
            log.warning(
                "Batches on %s run without CUDA graphs from now on, as torch keeps %d FFT plans and may drop theirs: "
                "set torch.backends.cuda.cufft_plan_cache[%d].max_size higher at the start.",
                *(device, plans.max_size, device.index),
            )
        return device not in self._full

    def __call__(self, work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
        """Capture."""
        device, place = x_BCT.device, (x_BCT.shape, x_BCT.stride(), x_BCT.dtype, x_BCT.device)
        if place not in self._batches:
            self._batches[place] = x_BCT.clone()
        mine, outside = (self._batches[place], numbers.clone()), Outside()
        with _capturing(device, self._pool) as graph, outside, launched_by(outside.launch):
            mine[0].copy_(work(*mine))

        def replay(*tensors: torch.Tensor) -> torch.Tensor:
            stream = torch.cuda.current_stream(device)  # on which torch replays, whatever the current device is
            if device in self._done:
                stream.wait_event(self._done[device])
            for own, other in zip(mine, tensors, strict=True):
                own.copy_(other)
                own.record_stream(stream)
            graph.replay()
            y_BCT = mine[0].clone()
            self._done[device] = stream.record_event()
            return y_BCT

        replay.reads = outside.tensors  # type: ignore[attr-defined]
        check_equal(replay(x_BCT, numbers), work(x_BCT, numbers), "The replay of a CUDA graph")
        return replay


@contextlib.contextmanager
def _capturing(device: torch.device, pool: Any) -> Iterator[torch.cuda.CUDAGraph]:
    """Capture on a stream of that device. Where that fails, nothing is left of it: neither stream nor pool are in use.

    ``torch.cuda.graph`` would wait for the device and return all free memory to the system, in the middle of training.
    Other threads may allocate meanwhile, as the one that pins batches does: only this thread is captured.
    """
    with torch.cuda.device(device):
        graph, stream = torch.cuda.CUDAGraph(), _stream_of(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                yield graph
                graph.capture_end()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # what was captured is invalid
                    graph.capture_end()
                close_capture_pool(device, pool)
                raise


@functools.cache
def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which graphs are captured: memory of the pool is only shared on the same one."""
    return torch.cuda.Stream(device)


class Outside(DispatchMode):
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
        self._note(args, kwargs)
        self._made.update({_place(tensor) for tensor in _tensors(result)} - self._read.keys())
        return result

    def launch(self, kernel: Any, grid: Sequence[int], *arguments: Any, **constants: Any) -> None:
        """Launch a kernel, which is no operator: what it alone reads would not be known otherwise."""
        self._note(arguments)
        launch_by_triton(kernel, grid, *arguments, **constants)

    def _note(self, *read: Any) -> None:
        for tensor in _tensors(read):
            if _place(tensor) not in self._made:
                self._read[_place(tensor)] = tensor


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors among an operator's arguments or results."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
