"""What is trained: the example model in several widths, with its chain once or several times over."""

from dataclasses import replace
from pathlib import Path

import torch

from audioaug import Chain
from audioaug.advise.target import Target, load_module, load_target
from audioaug.decide.shortlist import placement_of
from audioaug.measure import host_facts
from audioaug.records import Cell, Report

MODEL = Path(__file__).parents[2] / "models" / "keyword_cnn.py"
BATCH_SIZE = 16


def make_target(device: torch.device, batch_size: int = BATCH_SIZE, augment: str | None = None) -> Target:
    """Return the example model with its chain and the demo speech; without a GPU, give training one thread."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    return load_target(str(MODEL), device, augment=augment, batch_size=batch_size)


def with_width(target: Target, width: int) -> Target:
    """Return the target with a model whose layers are that wide."""
    torch.manual_seed(0)
    model = load_module(str(MODEL)).KeywordCNN(width=width).to(target.device).train()
    return replace(target, model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4))


def with_repeats(target: Target, repeats: int) -> Target:
    """Return the target with every op so many times over: a stand-in for a chain that is as many times as dear."""
    ops_ = [op for op in target.chain.ops for _ in range(repeats)]
    return replace(target, chain=Chain(ops_, target.chain.sample_rate))


def widths(device: torch.device) -> tuple[int, ...]:
    """Return how wide the layers of a small, a middling and a large model are, for the device it trains on."""
    return (8, 32, 128) if device.type == "cpu" else (32, 256, 1024)


def worker_counts(target: Target) -> tuple[int, ...]:
    """Return the worker counts to measure: none, and one for each core but one (eight at most)."""
    cores = host_facts(target.device).usable_cores
    return 0, max(1, min(8, int(cores) - 1))


def cell_at(report: Report, cut: int, workers: int) -> Cell:
    """Return the cell of that cut, with audiomentations in so many workers and our ops on the device."""
    return Cell(placement_of(cut, len(report.chain.ops)), cut, num_workers=workers, pin_memory=report.host.has_gpu)
