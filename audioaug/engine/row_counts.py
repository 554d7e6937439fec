"""Row counts: each step gets as many rows in every batch, so that the same kernels do the work of many batches.

How many examples an op touches differs from batch to batch. It gets as many rows as that may easily be; those that are
not needed repeat the last one, and what becomes of that is the same.

Shapes: R rows.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Chain, Node
from audioaug.engine.fuse import Fused

EXAMPLES = 4096
"""Examples that are drawn to find out how often an op is applied."""

DEVIATIONS = 2.0
"""So many standard deviations more than on average: enough for 98 of 100 batches."""


class RowCounts:
    """How many rows each of these parts of a chain gets, by the draws of some examples."""

    def __init__(self, chain: Chain, parts: Sequence[Node | Fused]) -> None:
        draws, rows = chain.draw(np.arange(EXAMPLES)), np.arange(EXAMPLES)
        self._share: dict[str, float] = {}
        for part in parts:
            for each, touched in part.steps(draws, rows):
                self._share[each.path] = max(self._share.get(each.path, 0.0), len(touched) / EXAMPLES)

    def filled(self, path: str, rows_R: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
        """Return the rows, the last one repeated to as many as usual; where there are more than that, to all."""
        share = self._share.get(path, 1.0)
        usual = math.ceil(batch * share + DEVIATIONS * math.sqrt(batch * share * (1 - share)))
        count = usual if len(rows_R) <= usual < batch else batch
        return np.concatenate([rows_R, np.full(count - len(rows_R), rows_R[-1])])
