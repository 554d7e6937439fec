"""Jit: Triton's compiler, told to compile each kernel once, for all sizes and addresses; and what kernels share."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


def kernel(function: Callable[..., None]) -> Any:
    """Declare a kernel; ``tl.constexpr`` arguments are the only ones that it is compiled anew for.

    By default Triton also does so where a size or an address is a multiple of 16, or a size is 1. With batches of many
    lengths, and numbers packed into one buffer, that makes some 25 variants, of 0.06 to 0.75 s each.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [each.name for each in parameters if each.annotation is not tl.constexpr]
    return triton.jit(function, do_not_specialize=names)


def grid_of(y: torch.Tensor, block: int) -> tuple[int, int]:
    """Return the programs that compute a block of a row each, whatever the dimensions before the last."""
    return y.shape[:-1].numel(), triton.cdiv(y.shape[-1], block)


def memory_for(x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return where a result as large as x goes: ``out``, if it is contiguous, else new memory."""
    if out is not None and out.is_contiguous():
        return out
    return torch.empty_like(x, memory_format=torch.contiguous_format)
