"""Numbers: all parameters of one batch: packed into one tensor, for one copy to the device.

On a CPU they may stay the arrays that they are: to pack them, and to make views, takes NumPy and torch some 50 us.
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
        """Add an array, of integers or of floats; return where it lies."""
        start = self._sizes[buffer]
        self._sizes[buffer] = stop = start + len(values)
        span = buffer, start, stop
        self._arrays[span] = values
        return span

    @property
    def sizes(self) -> tuple[int, int]:
        """How many integers and floats there are."""
        return self._sizes["ints"], self._sizes["floats"]

    def pack(self) -> torch.Tensor:
        """Return all of them on the host, in one int64 tensor: first the integers, then the floats, two in each."""
        if self._packed is None:
            parts: dict[Buffer, list[NDArray[Any]]] = {"ints": [], "floats": []}
            for (buffer, _, _), values in self._arrays.items():
                parts[buffer].append(values)
            fill = FILL[self._sizes["floats"] % 2 :]
            floats = np.concatenate([*parts["floats"], fill], dtype=np.float32, casting="unsafe")
            whole = [*parts["ints"], floats.view(np.int64)]
            self._packed = torch.from_numpy(np.concatenate(whole, dtype=np.int64, casting="unsafe"))
        return self._packed

    def views_of(self, packed: torch.Tensor) -> View:
        """Return what gives the tensor of each span: a view of the packed numbers, wherever these were copied to."""
        whole = self._sizes["ints"]
        buffers = {"ints": packed[:whole], "floats": packed[whole:].view(torch.float32)}
        return lambda span: buffers[span[0]][span[1] : span[2]]

    def on(self, device: torch.device) -> View:
        """Return what gives the tensor of each span on a device."""
        if self._packed is None and device.type == "cpu":
            return lambda span: torch.from_numpy(self._arrays[span].astype(TYPES[span[0]]))
        return self.views_of(self.pack().to(device, non_blocking=True))

    def pinned(self) -> "Numbers":
        """Return them packed in page-locked memory."""
        found = Numbers()
        found._sizes, found._packed = self._sizes, self.pack().pin_memory()
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"_sizes": self._sizes, "_arrays": {}, "_packed": self.pack()}
