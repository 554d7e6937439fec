"""Loops over samples on a CPU, where they are faster than what torch operations can make of it.

A loop (``dsp.loops``) is compiled by numba when it first runs. Its twin of torch operations runs on all other devices,
where gradients flow or operations are recorded, and where numba does not work.
"""

import ctypes
import functools
import importlib
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import threadpoolctl
import torch

from audioaug.internals import operations_are_watched

ENABLED = True
"""Whether loops are run at all: tests of what GPUs do say no."""


def fits(x: torch.Tensor) -> bool:
    """Return whether a loop may do what is to be done with x."""
    return ENABLED and x.device.type == "cpu" and not is_followed(x) and is_installed("numba")


def is_followed(x: torch.Tensor) -> bool:
    """Return whether somebody looks for torch operations on x: a tracer, or a gradient."""
    followed = torch.compiler.is_compiling() or operations_are_watched()
    return followed or (x.requires_grad and torch.is_grad_enabled())


@functools.cache
def is_installed(compiler: str) -> bool:
    """Return whether the module that compiles can be imported."""
    try:
        importlib.import_module(compiler)
    except ImportError:  # also where numpy is newer than numba knows
        return False
    return True


def of_rows(
    loop: Callable[..., None],
    x_RCT: torch.Tensor,
    *arguments: Any,
    samples_out: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what a loop makes of rows, which for it are the channels one after the other: (R, C, samples_out or T).

    Args:
        loop: its arguments are these rows, the ``arguments``, C, where the result goes, and from where to where.
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
        loop: its last two arguments are from which row to which.
        rows: how many there are.
        arguments: its others: numbers, and tensors; those that it writes to are contiguous.
        most_threads: 1 where little is done: the others take 40 microseconds to be there.
    """
    arrays = [each.detach().contiguous().numpy() if isinstance(each, torch.Tensor) else each for each in arguments]
    threads = min(most_threads or torch.get_num_threads(), rows)
    if threads < 2:
        return loop(*arrays, 0, rows)
    bounds = [rows * part // threads for part in range(threads + 1)]
    parts, wrong = itertools.pairwise(bounds), list[BaseException]()

    def work(_: None = None) -> None:
        try:
            for part in parts:
                loop(*arrays, *part)
        except BaseException as error:  # which would be lost in another thread
            wrong.append(error)

    together = _team() or _pool
    together(work, threads)
    if wrong:
        raise wrong[0]


@functools.cache
def _team() -> Callable[[Callable[..., None], int], None] | None:
    """Return what calls a function in each of torch's own threads at once, if these are GNU OpenMP's.

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
