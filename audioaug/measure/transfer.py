"""What it costs to copy a batch to the device, from ordinary and from page-locked memory."""

import torch

from audioaug.measure.clock import Clock
from audioaug.measure.repeat import Work, interleave
from audioaug.records import Timing
from audioaug.units import Seconds


def measure_transfer(
    example: torch.Tensor, device: torch.device, clock: Clock, *, seconds: Seconds
) -> dict[str, Timing]:
    """Time the copy of one batch to the device, start to end (nothing overlaps it).

    Args:
        example: a batch in ordinary CPU memory.
        device: where it goes.
        clock: the clock of that device.
        seconds: how long all this may take.

    Returns:
        Seconds a copy for ``"pageable"`` and, on CUDA, ``"pinned"`` memory (locked beforehand: what locking costs is
        not in it). Nothing for the CPU, where there is no copy.
    """
    if device.type == "cpu":
        return {}
    works: dict[str, Work] = {"pageable": lambda: example.to(device)}
    if device.type == "cuda":
        pinned = example.pin_memory()
        works["pinned"] = lambda: pinned.to(device, non_blocking=True)
    return interleave(works, clock, seconds=seconds)
