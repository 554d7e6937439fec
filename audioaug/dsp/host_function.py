"""Host function: one that fills NumPy arrays on the host, and a loop that does the same, which numba compiles.

NumPy takes a microsecond or more for each of its functions, however few the numbers of a batch are.
"""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from audioaug.dsp.dispatch import loops_are_usable
from audioaug.errors import AudioaugWarning, first_line

MANY = 256
"""As many numbers as this are worth importing numba for, which takes 0.3 s, once."""


class HostFunction:
    """A function whose last arguments are arrays that it fills: by its loop, once that gives what NumPy does.

    Args:
        definition: the function, in NumPy.
        loop: the same function as a loop.
        example: makes arguments to compare them with, once in each process.
        filled: how many of the arguments are filled.
        rtol: how far the numbers may be apart.
    """

    def __init__(
        self,
        definition: Callable[..., None],
        loop: Callable[..., None],
        example: Callable[[], tuple[Any, ...]],
        filled: int = 1,
        rtol: float = 0.0,
    ) -> None:
        self.definition, self.loop = definition, loop
        self._example, self._filled, self._rtol = example, filled, rtol

    def __call__(self, *args: Any) -> None:
        """Fill the last arrays."""
        is_worth_it = "numba" in sys.modules or args[-1].size >= MANY
        by_loop = is_worth_it and loops_are_usable() and self._loop_agrees
        (self.loop if by_loop else self.definition)(*args)

    @functools.cached_property
    def _loop_agrees(self) -> bool:
        """Whether the loop gives what the definition does; warn if it does not."""
        expected, found = self._example(), self._example()
        self.definition(*expected)
        for array in found[-self._filled :]:
            array.view(np.uint8).fill(255)  # NaN, or -1
        try:
            self.loop(*found)
            pairs = zip(found[-self._filled :], expected[-self._filled :])
            is_right = all(np.allclose(*pair, rtol=self._rtol, atol=0.0) for pair in pairs)
            reason = "" if is_right else "gives other numbers"
        except Exception as error:
            reason = f"raises {type(error).__name__} ({first_line(error)})"
        if reason:
            name = f"{self.definition.__module__.removeprefix('audioaug.')}.{self.definition.__name__.lstrip('_')}"
            warnings.warn(
                f"{name} is switched off: its compiled form {reason}. NumPy does the same in its place.",
                AudioaugWarning,
                stacklevel=4,
            )
        return not reason
