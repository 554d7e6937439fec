"""The same question for audio: the example model's training step over clip length and batch size."""

from collections.abc import Callable
from itertools import product

import torch
from torch.nn.functional import cross_entropy

from audioaug.advise.target import load_module
from audioaug.measure import clock_for, interleave
from experiments.crossover.records import CPU, GPU, AudioPoint
from experiments.placement.target import MODEL


def sweep(
    clip_seconds: tuple[float, ...], batches: tuple[int, ...], device: torch.device, seconds: float, rounds: int
) -> tuple[AudioPoint, ...]:
    """Time steps on clips that lie where the model is, on the CPU and on the GPU if there is one, all in turn."""
    devices = {CPU: torch.device("cpu")} | ({GPU: device} if device.type != "cpu" else {})
    sizes = list(product(clip_seconds, batches))
    works = {f"{name} {size}": step_of(*size, where) for size in sizes for name, where in devices.items()}
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(AudioPoint(*size, {name: times[f"{name} {size}"] for name in devices}) for size in sizes)


def step_of(clip_seconds: float, batch: int, device: torch.device) -> Callable[[], None]:
    """Return a training step of the example model on one batch, (B, 1, T)."""
    module = load_module(str(MODEL))
    model = module.build_model().to(device)
    x_BCT = torch.randn(batch, 1, round(clip_seconds * module.sample_rate), device=device)
    label_B = torch.zeros(batch, dtype=torch.long, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        loss = cross_entropy(model(x_BCT), label_B)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step
