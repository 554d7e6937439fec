"""What workers cost beside their work: planted times, and what real workers keep and how often they are started."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise import example_probe, worker_probe
from audioaug.advise.arms import open_loader, stock_of
from audioaug.advise.example_probe import FEWEST, look_at_examples
from audioaug.advise.worker_probe import Memory, Ready, receive_ms, start_and_gap
from audioaug.loader.prefetch import tensors
from audioaug.measure import FakeClock
from audioaug.records import Cell
from tests.advise.planted import CLOCK, LOOK


class Data:
    """Clips of two lengths; reading one calls ``read`` with its index and keeps ``keeps`` bytes for good."""

    def __init__(self, read: Callable[[int], object] = lambda index: None, keeps: int = 0) -> None:
        self.read, self.keeps, self.kept = read, keeps, []

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index):
        self.read(index)
        self.kept.append(b"." * self.keeps)
        return torch.full((1, 400 + index % 2), 0.1)


def trained(**planted):
    """A target of such data."""
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
        clip_of=torch.Tensor.numpy,
    )


def test_the_start_and_the_gap_are_the_first_batches_of_two_epochs(monkeypatch) -> None:
    clock = FakeClock()

    def messages(epoch):
        for seconds in ((3.0, 0.5)[epoch], 9.0):
            clock.advance(seconds)
            yield "batch"

    monkeypatch.setattr(worker_probe, "open_brief_loader", lambda *_: SimpleNamespace(worker_batches=messages))
    assert start_and_gap(trained(), Cell("cpu", 1, num_workers=2), clock) == (3.0, 0.5)


def test_the_same_workers_serve_both_epochs(tmp_path: Path) -> None:
    target = trained(read=lambda index: (tmp_path / str(os.getpid())).touch())
    assert min(start_and_gap(target, Cell("cpu", 1, num_workers=2), CLOCK)) > 0
    assert len(list(tmp_path.iterdir())) == 2


def test_a_message_is_sent_anew_for_every_batch_that_is_timed() -> None:
    message = [torch.ones(100), 3]
    sent, number = Ready(message)[7]
    assert sent is not message[0] and torch.equal(sent, message[0]) and number == 3
    assert receive_ms(message, 1, CLOCK, 0.1) == pytest.approx(1e3 * LOOK / 2)  # a block is two batches


def test_workers_that_keep_what_they_read_grow() -> None:
    cell = Cell("cpu", 1, num_workers=1)
    found = {}
    for keeps in (0, 1_000_000):
        loader, memory = open_loader(trained(keeps=keeps), cell), Memory()
        memory.watch(loader.worker_batches(), stock_of(cell), FakeClock(), 1.0)  # the deadline never passes
        found[keeps] = memory.growth_bytes
        assert memory.worker_bytes > 1_000_000
    assert found[1_000_000] == pytest.approx(4 * 1_000_000, rel=0.5) and found[0] < 1_000_000


def test_examples_are_looked_at_one_by_one(monkeypatch) -> None:
    clock, core, delay = FakeClock(), FakeClock(), FakeClock()

    def read(index: int) -> None:
        clock.advance(0.008 * (1 + index % 2))  # of which 1 ms is on a core, and for 4 ms there is none
        core.advance(0.001)
        delay.advance(0.004)

    monkeypatch.setattr(example_probe, "delayed_seconds", delay.now)
    monkeypatch.setattr(example_probe, "time", SimpleNamespace(thread_time=core.now))
    found = look_at_examples(trained(read=read), clock, 0.05)
    assert len(found.samples) == FEWEST and set(found.samples) == {400, 401}
    read_ms = pytest.approx([4 if samples == 400 else 12 for samples in found.samples])
    assert found.first_ms == read_ms == found.again_ms and found.cpu_ms == pytest.approx([1] * FEWEST)
    assert found.augment_ms == pytest.approx([0] * FEWEST)


def test_tensors_are_found_wherever_they_are() -> None:
    assert len(list(tensors({"audio": torch.zeros(2), "more": [torch.zeros(1), "text", (torch.ones(1), 3)]}))) == 3
