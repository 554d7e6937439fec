"""The program that torchrun starts for test_processes.py: real training steps, recorded in a file per process."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.distributed import destroy_process_group, get_rank, get_world_size, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, IterableDataset, get_worker_info

from audioaug import Loader, Plan
from tests.integration.loader.material import Words, exact_chain

SEED, EPOCHS, WORKERS = 5, 2, 5


class Dealt(IterableDataset):  # type: ignore[type-arg]
    """Twelve words, dealt out in turn to the workers of all processes."""

    def __iter__(self) -> Iterator[Any]:
        worker, words = get_worker_info(), Words(12)
        assert worker is not None
        shards = self.processes * worker.num_workers
        return (words[k] for k in range(self.rank * worker.num_workers + worker.id, 12, shards))

    def __init__(self) -> None:
        self.rank, self.processes = get_rank(), get_world_size()


def train(loader: Loader, model: torch.nn.Module, seen: dict[str, Any]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        for wave, _, index in loader:
            optimizer.zero_grad()
            model(wave[:, 0]).square().mean().backward()
            optimizer.step()
            seen |= {f"{epoch} {k}": each for k, each in zip(index.tolist(), wave.numpy())}
            seen[f"order {epoch}"] = np.append(seen.get(f"order {epoch}", []), index)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    init_process_group("gloo")
    torch.manual_seed(get_rank())  # DistributedDataParallel makes the models equal, and keeps them so
    model = DistributedDataParallel(torch.nn.Linear(8000, 2))
    words = Words(12)
    for name in ("map", "stream", "auto"):
        sampler = None if name == "stream" else DistributedSampler(words, seed=1)
        dataset: Any = Dealt() if name == "stream" else words
        plan: Any = "auto" if name == "auto" else Plan(cut=3, num_workers=WORKERS)
        loader = Loader(dataset, exact_chain(), plan, batch_size=2, device="cpu", sampler=sampler, seed=SEED)
        seen: dict[str, Any] = {}
        train(loader, model, seen)
        workers = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        np.savez(out / f"{name} {get_rank()}", workers=len(workers), weight=model.module.weight.detach(), **seen)
        del loader
    destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
