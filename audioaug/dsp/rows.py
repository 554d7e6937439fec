"""Rows in turn: on a CPU, what one pass over a few rows leaves in the cache the next one finds there.

Shapes: R rows.
"""

from collections.abc import Callable

import torch

from audioaug.dsp.compiled import is_followed

CACHED = 2**19
"""So many samples, and what is made of them on the way, fit into a CPU's cache: 2 MiB of float32."""


def in_turn(work: Callable[[slice], torch.Tensor], x_RCT: torch.Tensor, samples: int) -> torch.Tensor:
    """Return what ``work`` makes of all rows: on a CPU of a few at a time, elsewhere or traced of all at once.

    Args:
        work: from which rows to what becomes of them, (R, ...).
        x_RCT: these rows.
        samples: of a row, at its longest on the way.
    """
    rows = len(x_RCT)
    few = _few(samples) if x_RCT.device.type == "cpu" and not is_followed(x_RCT) else rows
    if few >= rows:
        return work(slice(0, rows))
    return torch.cat([work(slice(first, first + few)) for first in range(0, rows, few)])


def _few(samples: int) -> int:
    """Return how many rows fit into the cache; as many for each thread, since loops give each its own rows."""
    threads = torch.get_num_threads()
    return max(1, CACHED // max(1, samples) // threads) * threads
