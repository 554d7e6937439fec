"""Torch's default DataLoader with audiomentations in its dataset, and its knobs, as arms of a race."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from torch.utils.data import DataLoader, Dataset

from audioaug import Chain
from audioaug.advise.arms import EndlessBatches
from audioaug.advise.target import Target
from audioaug.loader.prefetch import to_device
from audioaug.records import Cell
from experiments.placement.target import MODEL
from experiments.races import Arm, cell_arm

DEFAULT = "default DataLoader"
DEMO = MODEL.parents[2] / "datasets" / "demo"


def declared_chain(path: Path) -> Chain:
    """Return a chain that is declared with the demo's files, wherever the process was started."""
    return Chain.from_dict(yaml.safe_load(path.read_text().replace("datasets/demo/", f"{DEMO}/")))


class Augmented(Dataset[Any]):
    """A dataset of mono clips (1, T) that are augmented where they are read, as most people do it."""

    def __init__(self, dataset: Any, augment: Callable[..., Any], sample_rate: int) -> None:
        self.dataset, self.augment, self.sample_rate = dataset, augment, sample_rate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        wave_CT, *rest = self.dataset[index]
        return self.augment(wave_CT[0], self.sample_rate)[None], *rest


def augmented(target: Target) -> Augmented:
    """Return the target's dataset with audiomentations in it."""
    return Augmented(target.dataset, target.chain.to_audiomentations(), int(target.chain.sample_rate))


def torch_arm(name: str, target: Target, **knobs: Any) -> Arm:
    """Return torch's DataLoader, default but for these knobs, as an arm."""
    stock = (knobs.get("prefetch_factor") or 2) * knobs.get("num_workers", 0) + 2
    return Arm(name, partial(_torch_batches, target, knobs), target.step, target.batch_size, stock)


def _torch_batches(target: Target, knobs: dict[str, Any]) -> Iterator[Any]:
    batches = EndlessBatches(len(target.dataset), target.batch_size)
    for batch in DataLoader(augmented(target), batch_sampler=batches, **knobs):
        yield to_device(batch, target.device)


def alone(target: Target, plan: Cell) -> list[Arm]:
    """Return each knob turned alone (``prefetch_factor`` beside as many workers as the plan has)."""
    default = Cell("cpu", len(target.chain))
    workers = max(1, plan.num_workers)
    large, halved = replace(target, batch_size=2 * target.batch_size), replace(target, precision="bf16")
    arms = [
        torch_arm("num_workers", target, num_workers=workers),
        torch_arm("prefetch_factor", target, num_workers=workers, prefetch_factor=4),
        cell_arm("audioaug.Loader, same settings", target, default),
        cell_arm("worker engine", target, replace(default, worker_engine="batched")),
        cell_arm("placement", target, Cell("gpu", target.chain.device_from)),
        replace(torch_arm("threads", target), threads=1),
        torch_arm("batch size, twice", large),
        replace(torch_arm("mixed precision", target), step=halved.step),
    ]
    if target.device.type == "cuda":
        arms.append(torch_arm("pin_memory", target, num_workers=workers, pin_memory=True))
    return arms


def base_of(arm: Arm) -> str:
    """Return which arm one is compared with: the default, or the one that differs in this knob alone."""
    return "num_workers" if arm.name in ("prefetch_factor", "pin_memory") else DEFAULT


def ceiling_arm(target: Target, batches: list[Any]) -> Arm:
    """Return training on batches that already lie on the device, as an arm."""

    def feed() -> Iterator[Any]:
        while True:
            yield from batches

    return Arm("ceiling", feed, target.step, target.batch_size)
