"""A small fully connected network on random examples, and one epoch of its training.

Shapes: N examples; B examples of a batch; F features (1000).
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from audioaug.measure import clock_for, interleave
from experiments.throughput.records import Way

FEATURES = 1000
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

Data = tuple[torch.Tensor, torch.Tensor]


def data(examples: int) -> Data:
    """Return random examples (N, F) and labels (N)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(examples, FEATURES, generator=generator), torch.randint(2, (examples,), generator=generator)


def network() -> nn.Module:
    """Return 1000 -> 512 -> 256 -> 2."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2))


class Trainer:
    """The network, Adam and a precision on a device. Takes one step on a batch."""

    def __init__(self, device: torch.device, precision: str = "fp32") -> None:
        self.device, self.precision = device, precision
        self.model = network().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def step(self, x_BF: torch.Tensor, label_B: torch.Tensor) -> None:
        """Train on a batch that lies on the device."""
        with torch.autocast(self.device.type, DTYPES.get(self.precision), enabled=self.precision in DTYPES):
            loss = cross_entropy(self.model(x_BF), label_B)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def epoch(self, batches: Iterable[Data]) -> None:
        """Train on batches that lie anywhere."""
        for x_BF, label_B in batches:
            self.step(x_BF.to(self.device, non_blocking=True), label_B.to(self.device, non_blocking=True))


def resident(device: torch.device, examples: int, batch: int) -> list[Data]:
    """Return the data in batches that lie on the device."""
    x_NF, label_N = (part.to(device) for part in data(examples))
    return list(zip(x_NF.split(batch), label_N.split(batch), strict=True))


def full_batch_epoch(device: torch.device, precision: str, examples: int) -> Callable[[], None]:
    """Return one epoch that is one step on all examples."""
    return partial(Trainer(device, precision).epoch, resident(device, examples, examples))


def timed_ways(
    works: dict[str, Callable[[], None]], examples: int, device: torch.device, seconds: float, rounds: int
) -> tuple[Way, ...]:
    """Time epochs of several ways in turn."""
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(Way(name, examples, timing) for name, timing in times.items())


def precisions(devices: list[torch.device], examples: int, seconds: float, rounds: int) -> tuple[Way, ...]:
    """Time full-batch epochs on every device in every precision it trains in."""
    works = {
        f"{device.type} {precision}": full_batch_epoch(device, precision, examples)
        for device in devices
        for precision in ("fp32", "bf16", *(["fp16"] if device.type == "cuda" else []))
    }
    return timed_ways(works, examples, devices[-1], seconds, rounds)


def batch_sizes(
    device: torch.device, sizes: tuple[int, ...], examples: int, seconds: float, rounds: int
) -> tuple[Way, ...]:
    """Time epochs in batches of each size, all of them on the device."""
    works = {f"batches of {size:,}": partial(Trainer(device).epoch, resident(device, examples, size)) for size in sizes}
    return timed_ways(works, examples, device, seconds, rounds)
