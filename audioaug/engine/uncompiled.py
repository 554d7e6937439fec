"""Uncompiled: calls that ``torch.compile`` leaves out of its graphs. Imported once dynamo is, which takes seconds."""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def uncompiled(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the function returns, run as it is."""
    return function(*arguments)
