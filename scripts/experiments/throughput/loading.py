"""The same epoch, fed: by a DataLoader with and without a worker, by copies before each step, or on a stream beside."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.utils.data import DataLoader, TensorDataset

from experiments.throughput.network import Data, Trainer, data, resident, timed_ways
from experiments.throughput.records import Way

LOADED, AHEAD = "DataLoader, no worker", "DataLoader, 1 worker"
COPIED, STREAMED = "copied before each step", "copied on a stream beside"


def ways_to_load(device: torch.device, batch: int, examples: int, seconds: float, rounds: int) -> tuple[Way, ...]:
    """Time epochs in batches of that size, loaded in each way that this device has."""
    dataset = TensorDataset(*data(examples))
    works: dict[str, Callable[[], None]] = {
        "slices in memory": partial(Trainer(device).epoch, resident(device, examples, batch)),
        LOADED: partial(Trainer(device).epoch, DataLoader(dataset, batch)),
        AHEAD: partial(Trainer(device).epoch, DataLoader(dataset, batch, num_workers=1, persistent_workers=True)),
    }
    if device.type == "cuda":
        pinned = [(x_BF.pin_memory(), label_B.pin_memory()) for x_BF, label_B in resident(CPU, examples, batch)]
        works[COPIED] = partial(Trainer(device).epoch, pinned)
        works[STREAMED] = partial(_streamed_epoch, Trainer(device), pinned)
    return timed_ways(works, examples, device, seconds, rounds)


CPU = torch.device("cpu")


def _streamed_epoch(trainer: Trainer, pinned: list[Data]) -> None:
    trainer.epoch(_streamed(pinned, trainer.device))


def _streamed(pinned: list[Data], device: torch.device) -> Iterator[Data]:
    """Yield batches that were copied while the step before was trained."""
    side, training = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    waiting: list[tuple[torch.Tensor, ...]] = []
    for batch in pinned:
        with torch.cuda.stream(side):
            copied = tuple(part.to(device, non_blocking=True) for part in batch)
        while waiting:
            yield waiting.pop()
        training.wait_stream(side)
        for part in copied:
            part.record_stream(training)
        waiting.append(copied)
    yield from waiting
