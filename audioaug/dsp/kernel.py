"""Kernels of our own on an NVIDIA GPU, where torch operations would read and write a whole batch for every step.

A kernel (``dsp.kernels``) is compiled by Triton, which torch brings along on Linux, when it first runs: half a second,
kept in a file for later processes. Its twin of torch operations runs on all other devices, where gradients flow or
operations are traced, and where Triton is missing.
"""

import functools
import importlib
import re
from collections.abc import Sequence
from typing import Any

import torch

from audioaug.dsp.compiled import is_followed, is_installed

DEVICES = ("cuda",)
"""Where kernels run: tests add the CPU, on which Triton interprets them."""


LEAST_TRITON = 3, 6
"""The first version that the kernels were tested with; 3.0, which torch 2.4 brings, makes wrong noise."""


def is_usable() -> bool:
    """Return whether Triton is installed, in a version that the kernels were tested with."""
    return is_installed("triton") and _triton_version() >= LEAST_TRITON


@functools.cache
def _triton_version() -> tuple[int, ...]:
    found: str = importlib.import_module("triton").__version__
    return tuple(map(int, re.findall(r"\d+", found)[:2]))


def fits(x: torch.Tensor) -> bool:
    """Return whether a kernel may do what is to be done with x.

    While a CUDA graph is captured, kernels are recorded like any other, though operations are watched then.
    """
    if x.device.type not in DEVICES or not is_usable():
        return False
    return not is_followed(x) or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def launch(kernel: Any, grid: Sequence[int], x: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel of so many programs on the device that x, its first argument, is on."""
    with torch.cuda.device_of(x):
        kernel[tuple(grid)](x, *arguments, **constants)
