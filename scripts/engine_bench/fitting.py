"""Which sizes can be measured here: those that fit into memory, and into the time."""

import math

import psutil
import torch

from audioaug.units import format_bytes, format_seconds
from engine_bench.records import RECORDED, REFERENCE, Row, Size

MOST_BATCHES = 80
"""So many times its batch the hungriest engine may need: ours needs 50 for music (by operations), others more."""

CALLS_BESIDE = 8
"""How often each engine is called besides the rounds: warm-up, kernels, memory, where time goes."""


def why_not(name: str, size: Size, device: torch.device, known: list[Row], seconds: float, rounds: int) -> str:
    """Return why a chain is not measured at a size, or an empty string.

    Args:
        name: of the chain.
        size: of the batch.
        device: where the engines run.
        known: what was measured of it at other sizes; of the nearest, times are taken to grow with the samples.
        seconds: that it may take.
        rounds: that it gets at least.
    """
    needs, free = MOST_BATCHES * 4 * size.batch * size.samples, free_bytes(device)
    if needs > free:
        return f"{name}, {size}: may need {format_bytes(needs)} of memory, and {format_bytes(free)} are free."
    measured = [row for row in known if row.times]
    nearest = min(measured, key=lambda row: abs(math.log(_samples(size) / _samples(row.size))), default=None)
    takes = expected_seconds(nearest, size, rounds) if nearest else 0.0
    if takes > seconds:
        return f"{name}, {size}: would take {format_seconds(takes)}, more than {format_seconds(seconds)}."
    return ""


def expected_seconds(row: Row, size: Size, rounds: int) -> float:
    """Return how long a row of another size takes, by this one; engines that record are not measured there."""
    beside = {REFERENCE, *RECORDED.values()}
    one = sum(timing.median for engine, timing in row.times.items() if engine not in beside)
    return (rounds + CALLS_BESIDE) * one * _samples(size) / _samples(row.size)


def free_bytes(device: torch.device) -> int:
    """Return how much memory is free there."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def _samples(size: Size) -> int:
    return size.batch * size.samples
