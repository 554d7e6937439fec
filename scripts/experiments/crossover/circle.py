"""Points inside or outside a circle, and networks whose widths double with every layer.

Shapes: N points; B points of a batch.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from audioaug.measure import clock_for, interleave
from experiments.crossover.records import CPU, GPU, Net, Trained

POINTS, BATCH, LEARNING_RATE = 1000, 100, 0.1
RADIUS = math.sqrt(1 / (2 * math.pi))
"""Of the circle around the origin, whose area is 1/2: half of the unit square around it."""


def circle(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return standardised points (N, 2) of the unit square around the origin, and whether each is inside (N)."""
    points_N2 = torch.rand(POINTS, 2, generator=torch.Generator().manual_seed(seed)) - 0.5
    inside_N = (points_N2.norm(dim=1) < RADIUS).long()
    return (points_N2 - points_N2.mean(0)) / points_N2.std(0), inside_N


def network(layers: int) -> nn.Sequential:
    """Return a ReLU network 2 -> 4 -> 8 -> ... -> 2 with so many linear layers."""
    torch.manual_seed(0)
    widths = [2**k for k in range(1, layers + 1)]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], 2))


def parameters(model: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def epoch_of(model: nn.Module, device: torch.device) -> Callable[[], None]:
    """Return one epoch of training on a device, in batches; the points lie there already."""
    model.to(device)
    points_N2, inside_N = (part.to(device) for part in circle())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def epoch() -> None:
        for chosen_B in torch.randperm(POINTS).to(device).split(BATCH):
            loss = cross_entropy(model(points_N2[chosen_B]), inside_N[chosen_B])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return epoch


def sweep(layers: tuple[int, ...], device: torch.device, seconds: float, rounds: int) -> tuple[Net, ...]:
    """Time an epoch of every network, on the CPU and on the GPU if there is one, all in turn."""
    devices = {CPU: torch.device("cpu")} | ({GPU: device} if device.type != "cpu" else {})
    works = {f"{name} {count}": epoch_of(network(count), where) for count in layers for name, where in devices.items()}
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(
        Net(count, parameters(network(count)), {name: times[f"{name} {count}"] for name in devices}) for count in layers
    )


def train(net: Net, device: torch.device, epochs: int) -> Trained:
    """Train a network to the end and say what that took beside what its epochs promise."""
    model, clock = network(net.layers), clock_for(device)
    epoch = epoch_of(model, device)
    clock.synchronize()
    begin = clock.now()
    for _ in range(epochs):
        epoch()
    clock.synchronize()
    seconds = clock.now() - begin
    points_N2, inside_N = (part.to(device) for part in circle())
    accuracy = (model(points_N2).argmax(1) == inside_N).float().mean().item()
    expected = epochs * net.epoch[CPU if device.type == "cpu" else GPU].median
    return Trained(net.layers, epochs, seconds, expected, accuracy)
