"""Which examples stand for all of a dataset, however large it is."""

import random

POOL = 4096
"""Examples that loaders are measured with: all of a smaller dataset."""


def drawn(size: int, count: int, seed: int = 0) -> list[int]:
    """Return so many of the indices below ``size``, all if there are fewer, in an order that the seed draws.

    Fewer are the first of more, at most ``POOL``. Nothing is as long as the dataset: of ten million examples it takes
    no longer than of ten thousand.
    """
    return random.Random(seed).sample(range(size), min(size, POOL))[:count]
