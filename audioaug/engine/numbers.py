"""Numbers: all parameters of one batch, in one tensor for one copy to the device or, on a CPU, as separate arrays.

Packing the few arrays of an op into one tensor, and making views of it, takes NumPy and torch about 50 us.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core.params import Buffer, Span, View

TYPES: dict[Buffer, type[np.generic]] = {"ints": np.int64, "floats": np.float32}

FILL = np.zeros(2)
"""Follows the float numbers: one or two zeros, to make their count even, and not 0, of which torch has no view."""


class Numbers:
    """Arrays of numbers, which are added one after the other, and then become tensors: int64 or float32."""

    def __init__(self) -> None:
        self._sizes: dict[Buffer, int] = {"ints": 0, "floats": 0}
        self._arrays: dict[Span, NDArray[Any]] = {}
        self._packed: torch.Tensor | None = None

    def add(self, values: NDArray[Any], buffer: Buffer) -> Span:
        """Add an array, of integers or of floats; return where it lies. Once they are packed, none can be added."""
        assert self._packed is None
        start = self._sizes[buffer]
        self._sizes[buffer] = stop = start + len(values)
        span = buffer, start, stop
        self._arrays[span] = values
        return span

    def pack(self) -> torch.Tensor:
        """Return all of them on the host, in one int64 tensor: first the integers, then the floats, two in each."""
        if self._packed is None:
            parts: dict[Buffer, list[NDArray[Any]]] = {"ints": [], "floats": []}
            for (buffer, _, _), values in self._arrays.items():
                parts[buffer].append(values)
            fill = FILL[self._sizes["floats"] % 2 :]
            floats = np.concatenate([*parts["floats"], fill], dtype=np.float32, casting="unsafe")
            both = [*parts["ints"], floats.view(np.int64)]
            self._packed = torch.from_numpy(np.concatenate(both, dtype=np.int64, casting="unsafe"))
            self._arrays = {}  # what `on` has returned keeps those that it needs
        return self._packed

    def views_of(self, packed: torch.Tensor) -> View:
        """Return a function from spans to views of the packed numbers, wherever these were copied to."""
        ints = self._sizes["ints"]
        buffers = {"ints": packed[:ints], "floats": packed[ints:].view(torch.float32)}
        return lambda span: buffers[span[0]][span[1] : span[2]]

    def on(self, device: torch.device) -> View:
        """Return a function from spans to tensors on a device."""
        arrays = self._arrays
        if self._packed is None and device.type == "cpu":
            return lambda span: torch.from_numpy(arrays[span].astype(TYPES[span[0]]))
        return self.views_of(self.pack().to(device, non_blocking=True))

    def pinned(self) -> "Numbers":
        """Return them packed in page-locked memory."""
        pinned = Numbers()
        pinned._sizes, pinned._packed = self._sizes, self.pack().pin_memory()
        return pinned

    def __getstate__(self) -> dict[str, Any]:
        self.pack()
        return vars(self)
