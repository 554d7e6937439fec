"""Kinds of work on each device: the table "when to choose which", with measurements instead of opinions."""

from collections.abc import Callable
from functools import partial

import torch

from audioaug.measure import clock_for, interleave
from experiments.crossover.audio import step_of
from experiments.throughput.network import FEATURES, Trainer, full_batch_epoch, network, resident
from experiments.throughput.records import Choice

Work = Callable[[], object]

TURNS = 50


def works(device: torch.device, examples: int) -> dict[str, tuple[str, Work]]:
    """Return each kind of work on a device, with where it is said to belong."""
    one = torch.randn(1, FEATURES, device=device)
    model = network().to(device).eval()
    small = partial(Trainer(device).epoch, resident(device, 100, 100))
    return {
        "small: the network's answer for one example": ("cpu", partial(_answer, model, one)),
        "small: a step on 100 examples": ("cpu", small),
        f"branching: {TURNS} steps, each decided by the last": ("cpu", partial(_branch, one)),
        f"large: a step on {examples:,} examples": ("gpu", full_batch_epoch(device, "fp32", examples)),
        "audio: keyword_cnn.py, a step on 32 clips of 1 s": ("gpu", step_of(1.0, 32, device)),
    }


def choices(devices: list[torch.device], examples: int, seconds: float, rounds: int) -> tuple[Choice, ...]:
    """Time every kind of work on every device, in turn."""
    by_device = {"gpu" if device.type != "cpu" else "cpu": works(device, examples) for device in devices}
    together = {f"{name}|{work}": run for name, some in by_device.items() for work, (_, run) in some.items()}
    times = interleave(together, clock_for(devices[-1]), seconds=seconds, at_least=rounds)
    return tuple(
        Choice(work, said, {name: times[f"{name}|{work}"] for name in by_device})
        for work, (said, _) in by_device["cpu"].items()
    )


def _answer(model: torch.nn.Module, one: torch.Tensor) -> float:
    with torch.no_grad():
        return float(model(one)[0, 0])


def _branch(one: torch.Tensor) -> torch.Tensor:
    """Halve or double, as the sum says: the host has to know it before it goes on."""
    for _ in range(TURNS):
        one = one * 0.5 if float(one.abs().sum()) > FEATURES else one * 2.0
    return one
