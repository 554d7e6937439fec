"""Precompile: the kernels that ops will launch, compiled side by side in threads before they run.

Otherwise each first launch waits for its own compilation. A tenth of that time holds Python's lock; the rest is LLVM,
ptxas, and the C compiler, with which Triton builds a launcher for each list of argument types.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch

from audioaug.dsp import dispatch
from audioaug.internals import build_launcher, hash_triton

MOST_THREADS = 8
"""With more, the slowest kernel alone takes longer than all others."""


def precompile(calls: Iterable[Callable[[], object]], device: torch.device) -> None:
    """Compile for a device the kernels that these calls would launch there.

    What fails is skipped: it is compiled again, and its error raised, when it is launched.

    Args:
        calls: work on CPU tensors. No kernel runs, so the results are undefined.
        device: an NVIDIA GPU.
    """
    found = set[Any]()
    _start_triton(device)
    with ThreadPoolExecutor(_threads()) as pool:

        def submit(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
            types = tuple(getattr(each, "dtype", type(each)) for each in arguments)
            if (variant := (kernel, types, *sorted(constants.items()))) not in found:
                found.add(variant)
                pool.submit(_compile, device, kernel, arguments, constants)

        for call in calls:
            with suppress(Exception), dispatch.launched_by(submit):
                call()


def _start_triton(device: torch.device) -> None:
    """Let Triton build what calls the driver, and hash its own files: threads would all do so at the same time."""
    with suppress(Exception):
        hash_triton()
    with suppress(Exception), torch.cuda.device(device):
        importlib.import_module("triton.runtime").driver.active.get_current_target()


def _threads() -> int:
    """Return how many threads compile: more than there are cores would only slow each other down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, cores)


def _compile(device: torch.device, kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
    with torch.cuda.device(device):
        build_launcher(kernel.warmup(*arguments, grid=(1,), **constants))
