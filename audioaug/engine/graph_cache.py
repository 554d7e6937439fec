"""GraphCache: the kernels that batches of one layout need are kept as a graph, which later batches replay in one call.

The device part is a function of two tensors: the batch and its packed numbers. All else that Python decides by is in
the batch's layout. So the kernels of each layout that returns can be captured.

Of 200 batches of 32 clips (128), the demo chain has 200 layouts; with ``row_counts`` 12 (8), of which 4 make up 190
(195). The speech chain has 147 (174): how its equaliser's cascades are grouped follows the draws. The most frequent 16
are 50 (37) of its batches; the others run without a graph.

Shapes: B examples, C channels, T samples.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

from audioaug.engine.prepare import Prepared

Work = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From a batch (B, C, T) and its packed numbers to a batch of the same shape."""

CAPTURED_AT = 3
"""How often a layout is seen before it is captured: until then FFT plans are made and banks copied."""

WATCHED = 256
"""Layouts that are counted, the last ones seen."""

log = logging.getLogger("audioaug")


class GraphBackend(Protocol):
    """Captures work; ``most`` is how many layouts it is worth doing that for."""

    most: int

    def takes(self, x_BCT: torch.Tensor) -> bool:
        """Return whether work on this batch can be captured, and graphs be used, now."""

    def __call__(self, work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor) -> Work:
        """Return what does the same work, on tensors of these shapes."""


class GraphCache:
    """Keeps the graphs of layouts that came often enough. A copy starts empty."""

    def __init__(self, make_backend: Callable[[], GraphBackend]) -> None:
        self._make_backend = make_backend
        self._backend: GraphBackend | None = make_backend()
        self._known: dict[Hashable, Work] = {}
        self._seen: OrderedDict[Hashable, int] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphCache, (self._make_backend,)

    def __len__(self) -> int:
        """How many layouts have a graph."""
        return len(self._known)

    def find(self, work: Work, x_BCT: torch.Tensor, numbers: torch.Tensor, prepared: Prepared) -> Work | None:
        """Return the graph that does the work on such a batch, if there is one.

        Work that changes lengths, or that gradients flow through, has none.
        """
        if self._backend is None or not prepared.steps or prepared.changes_length or not self._backend.takes(x_BCT):
            return None
        if x_BCT.requires_grad and torch.is_grad_enabled():
            return None
        key = _key(x_BCT, prepared)
        is_due = key not in self._known and len(self._known) < self._backend.most and self._count(key) >= CAPTURED_AT
        if is_due and x_BCT.isfinite().all():  # else its results could not be compared
            self._capture(key, work, x_BCT, numbers)
        return self._known.get(key)

    def has(self, x_BCT: torch.Tensor, prepared: Prepared) -> bool:
        """Return whether there is a graph for such a batch."""
        return _key(x_BCT, prepared) in self._known

    def _count(self, key: Hashable) -> int:
        self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > WATCHED:
            self._seen.popitem(last=False)
        return self._seen[key]

    def _capture(self, key: Hashable, work: Work, *tensors: torch.Tensor) -> None:
        assert self._backend is not None
        try:
            with torch.inference_mode(False), torch.no_grad():
                self._known[key] = self._backend(work, *tensors)
        except Exception as error:  # whatever a compiler raises: the work runs without
            log.warning(
                "The device part cannot be captured as a graph and runs without: %s: %s", type(error).__name__, error
            )
            self._backend = None
            self._known.clear()


def _key(x_BCT: torch.Tensor, prepared: Prepared) -> Hashable:
    return x_BCT.shape, x_BCT.stride(), x_BCT.dtype, x_BCT.device, prepared.layout
