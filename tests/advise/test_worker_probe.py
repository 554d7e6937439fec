"""What workers cost beside their work, measured on real workers with planted costs."""

import os
import time

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.arms import open_loader, stock_of
from audioaug.advise.example_probe import look_at_examples
from audioaug.advise.worker_probe import Memory, receive_ms, start_and_gap
from audioaug.measure import WallClock
from audioaug.records import Cell
from audioaug.train.device_prefetch import tensors

CLOCK = WallClock()


class Data:
    """Clips that take so long to read; the first one in another process takes longer."""

    def __init__(self, seconds: float = 0.0, opening: float = 0.0, keeps: int = 0) -> None:
        self.seconds, self.opening, self.keeps, self.opened_by, self.kept = seconds, opening, keeps, os.getpid(), []

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index):
        if self.opened_by != os.getpid():
            time.sleep(self.opening)
            self.opened_by = os.getpid()
        time.sleep(self.seconds * (1 + index % 2))
        self.kept.append(b"." * self.keeps)
        return torch.full((1, 400 + index % 2), 0.1)


@pytest.fixture
def trained():
    """A target of such data."""
    from tests.advise.test_racing import SimpleNamespace

    def build(**planted):
        return SimpleNamespace(
            dataset=Data(**planted),
            chain=Chain([ops.Gain(p=1.0)], 16000),
            batch_size=4,
            device=torch.device("cpu"),
            precision="fp32",
            collate_fn=None,
            pad=True,
            lengths=None,
            targets=None,
            audio_key=None,
            is_stream=False,
        )

    return build


def test_a_slow_start_and_the_gap_between_epochs(trained) -> None:
    start, gap = start_and_gap(trained(seconds=0.01, opening=0.5), Cell("cpu", 1, num_workers=1), CLOCK)
    assert start > 0.5 + 0.04 and 0.04 < gap < start


def test_a_larger_batch_takes_longer_from_a_worker() -> None:
    small, large = (receive_ms([torch.zeros(size), 3], 1, CLOCK, 0.1) for size in (100, 20_000_000))
    assert 0 < small < large


def test_workers_that_keep_what_they_read_grow(trained) -> None:
    cell = Cell("cpu", 1, num_workers=1)
    found = {}
    for keeps in (0, 2_000_000):
        loader, memory = open_loader(trained(keeps=keeps), cell), Memory()
        memory.watch(loader.messages(), stock_of(cell), CLOCK, 1.0)
        found[keeps] = memory.growth_bytes
        assert memory.worker_bytes > 1_000_000
    assert found[2_000_000] == pytest.approx(4 * 2_000_000, rel=0.5) and found[0] < 2_000_000


def test_examples_are_looked_at_one_by_one(trained) -> None:
    found = look_at_examples(trained(seconds=0.004), CLOCK, 0.05)
    assert 16 <= len(found.again_ms) == len(found.samples) == len(found.augment_ms)
    for read, on_core, samples in zip(found.again_ms, found.cpu_ms, found.samples, strict=True):
        assert read >= 3.9 * (samples - 399) and on_core < read  # the longer ones take twice as long, without a core


def test_tensors_are_found_wherever_they_are() -> None:
    assert len(list(tensors({"audio": torch.zeros(2), "more": [torch.zeros(1), "text", (torch.ones(1), 3)]}))) == 3
