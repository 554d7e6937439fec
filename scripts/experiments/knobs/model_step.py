"""The model's own step: what mixed precision and accumulation do to its time and memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from audioaug.advise.target import Target
from audioaug.loader.examples import get_wave
from audioaug.measure import Clock, interleave, peak_extra_bytes
from experiments.knobs.records import StepCost

SMALL, LARGE = 32, 128
"""Examples of a batch, and of an effective batch that is accumulated from such."""

ACCUMULATED = f"{LARGE}, accumulated from {SMALL}"


def step_costs(target: Target, batch: Any, clock: Clock, seconds: float) -> tuple[StepCost, ...]:
    """Time steps on batches of 32 (both precisions) and 128 (at once, accumulated); see what memory each needs."""
    small, large = resized(batch, SMALL), resized(batch, LARGE)
    works: dict[str, Callable[[], object]] = {
        "fp32": partial(target.step, small),
        "bf16": partial(replace(target, precision="bf16").step, small),
        str(LARGE): partial(target.step, large),
        ACCUMULATED: partial(accumulate, target, [small] * (LARGE // SMALL)),
    }
    times = interleave(works, clock, seconds=seconds, at_least=3)
    peaks = {name: peak_extra_bytes(work, target.device) for name, work in works.items()}
    return tuple(StepCost(name, timing.ms, timing.ci_ms, peaks[name]) for name, timing in times.items())


def accumulate(target: Target, batches: list[Any]) -> None:
    """Train one step on several batches, one after the other: the gradient is their mean."""
    target.optimizer.zero_grad(set_to_none=True)
    for batch in batches:
        loss = target.loss(target.model(get_wave(batch)), batch)
        (loss / len(batches)).backward()
    target.optimizer.step()


def resized(batch: Any, examples: int) -> Any:
    """Return a batch of so many examples, made of those of this one."""
    if isinstance(batch, torch.Tensor):
        return batch[torch.arange(examples, device=batch.device) % len(batch)]
    return type(batch)(resized(part, examples) for part in batch)
