"""A worker sends batches in the same memory again, but never while anything still refers to one."""

import gc
import multiprocessing
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.loader import buffers
from audioaug.loader.buffers import FREE, IN_USE, MOST, SMALLEST, Buffers, received, sent
from tests.integration.loader.material import RATE

CHAIN = Chain([ops.PolarityInversion(p=1.0)], RATE)
SAMPLES = SMALLEST // 4
COUNT = 5 * MOST


def numbered(lengths: list[int], **arguments: Any) -> Loader:
    """Return a loader of batches of one clip, whose samples are its negative number."""
    clips = [torch.full((length,), float(number)) for number, length in enumerate(lengths)]
    plan = Plan(cut=1, num_workers=1, worker_engine=arguments.pop("worker_engine", "batched"))
    return Loader(clips, CHAIN, plan, batch_size=1, device="cpu", **arguments)


def with_count(examples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate, and add how many buffers the worker has."""
    return {"audio": torch.stack(examples), "buffers": torch.tensor(len(buffers._buffers._kept))}


@pytest.mark.parametrize("part", [slice(None), (0, slice(5, 9))], ids=["whole", "in part"])
@pytest.mark.parametrize("worker_engine", ["batched", "audiomentations"])
def test_batches_that_are_kept_stay_as_they_are(worker_engine, part):
    kept = [batch[part] for batch in numbered([SAMPLES] * COUNT, worker_engine=worker_engine)]
    assert all(bool((batch == -number).all()) for number, batch in enumerate(kept))


@pytest.mark.parametrize("keep", [1, 2])
def test_memory_of_batches_that_were_dropped_is_used_again(keep):
    kept, count = [], 0
    for number, batch in enumerate(numbered([SAMPLES] * COUNT, collate_fn=with_count)):
        assert bool((batch["audio"] == -number).all())
        kept = [*kept, batch["audio"]][-keep:]
        count = int(batch["buffers"])
    assert 0 < count <= keep + 5 < MOST  # others wait to be taken, or are just sent or received


def test_no_more_buffers_than_allowed_and_torch_sends_the_rest():
    kept = list(numbered([SAMPLES] * COUNT, collate_fn=with_count))
    assert int(kept[-1]["buffers"]) == MOST
    assert [batch["audio"].is_shared() for batch in kept].count(False) == MOST


def test_batches_of_other_lengths():
    lengths = [SAMPLES * (1 + number * 7 % 5) for number in range(COUNT)]
    for number, batch in enumerate(numbered(lengths)):
        assert batch.shape == (1, lengths[number]) and bool((batch == -number).all())


def test_a_received_tensor_may_be_written_to():
    batch = next(iter(numbered([SAMPLES] * 2)))
    batch.add_(1.0)
    assert bool((batch == 1.0).all())


def _drop(held: list[torch.Tensor]) -> None:
    held.clear()
    gc.collect()


def test_a_fork_that_drops_its_copy_frees_nothing():
    buffer = torch.full((SMALLEST + 1,), IN_USE, dtype=torch.uint8).share_memory_()
    held = [received(buffer, np.dtype(np.float32), (SAMPLES,))]
    child = multiprocessing.get_context("fork").Process(target=_drop, args=(held,))
    child.start()
    child.join()
    assert child.exitcode == 0 and buffer[-1] == IN_USE
    view = held.pop()[3:4]
    assert buffer[-1] == IN_USE
    del view
    assert buffer[-1] == FREE


# What is sent in a buffer


@pytest.fixture
def in_worker(monkeypatch):
    monkeypatch.setattr(buffers, "get_worker_info", object)
    monkeypatch.setattr(buffers, "_buffers", Buffers())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_tensors_are_sent_as_they_are(dtype, in_worker):
    value = torch.randn(3, 5, SMALLEST).gt(0).to(dtype)
    function, arguments = sent(value)
    found = function(*arguments)
    assert found.dtype == dtype and torch.equal(found, value)


OTHERS = {
    "small": torch.zeros(SMALLEST - 1, dtype=torch.uint8),
    "transposed": torch.zeros(1024, 1024).T,
    "shared already": torch.zeros(SMALLEST).share_memory_(),
    "without memory": torch.zeros(SMALLEST, device="meta"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_torch_sends_other_tensors(name, in_worker):
    assert sent(OTHERS[name]) is None


def test_only_workers_have_buffers():
    assert sent(torch.zeros(SMALLEST)) is None


def test_another_way_to_share_memory_is_left_to_torch(in_worker, monkeypatch):
    monkeypatch.setattr(buffers, "get_sharing_strategy", lambda: "file_system")
    assert sent(torch.zeros(SMALLEST)) is None


# Which buffer


Usage = namedtuple("Usage", "total used free")


def test_a_new_buffer_leaves_half_of_the_shared_memory_free(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(100 * SMALLEST, 48 * SMALLEST, 52 * SMALLEST))
    assert Buffers().take(2 * SMALLEST) is not None
    assert Buffers().take(3 * SMALLEST) is None


def test_the_smallest_free_buffer_that_is_large_enough():
    ours = Buffers()
    large, small = ours.take(3 * SMALLEST), ours.take(2 * SMALLEST)
    large.numpy()[-1] = small.numpy()[-1] = FREE
    assert ours.take(2 * SMALLEST) is small
    assert ours.take(2 * SMALLEST) is large
    large.numpy()[-1] = FREE
    assert len(ours.take(SMALLEST)) == SMALLEST + 1  # the free one is more than twice as large


def test_free_buffers_that_are_too_small_give_way():
    ours = Buffers()
    taken = [ours.take(SMALLEST) for _ in range(MOST)]
    assert ours.take(2 * SMALLEST) is None
    for buffer in taken[:3]:
        buffer.numpy()[-1] = FREE
    assert len(ours.take(2 * SMALLEST)) == 2 * SMALLEST + 1
    assert len(ours._kept) == MOST - 2
