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
from audioaug.loader.buffers import (
    FREE,
    IN_USE,
    LOST,
    MAX_BUFFERS,
    MAX_EXCESS,
    MIN_BYTES,
    Buffers,
    rebuild_from_buffer,
    reduce_to_buffer,
    set_state,
)
from audioaug.loader.pickling import pickle_content
from tests.integration.loader.material import RATE

CHAIN = Chain([ops.PolarityInversion(p=1.0)], RATE)
SAMPLES = MIN_BYTES // 4
COUNT = 3 * MAX_BUFFERS


def numbered(lengths: list[int], **arguments: Any) -> Loader:
    """Return a loader of batches of one clip, whose samples are its negative number."""
    clips = [torch.full((length,), float(number)) for number, length in enumerate(lengths)]
    plan = Plan(cut=1, num_workers=1, worker_engine=arguments.pop("worker_engine", "batched"))
    return Loader(clips, CHAIN, plan, batch_size=1, device="cpu", **arguments)


def with_count(examples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate, and add how many buffers the worker has."""
    return {"audio": torch.stack(examples), "buffers": torch.tensor(len(buffers._buffers))}


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
    assert 0 < count <= keep + 5 < MAX_BUFFERS  # others wait to be taken, or are just sent or received


def test_no_more_buffers_than_allowed_and_torch_sends_the_rest():
    kept = list(numbered([SAMPLES] * COUNT, collate_fn=with_count))
    assert int(kept[-1]["buffers"]) == MAX_BUFFERS
    assert [batch["audio"].is_shared() for batch in kept].count(False) == MAX_BUFFERS


def test_batches_of_other_lengths():
    lengths = [SAMPLES * (1 + number * 7 % 5) for number in range(COUNT)]
    for number, batch in enumerate(numbered(lengths)):
        assert batch.shape == (1, lengths[number]) and bool((batch == -number).all())


def test_a_received_tensor_may_be_written_to():
    batch = next(iter(numbered([SAMPLES] * 2)))
    batch.add_(1.0)
    assert bool((batch == 1.0).all())


def in_use() -> torch.Tensor:
    return torch.full((MIN_BYTES + 1,), IN_USE, dtype=torch.uint8).share_memory_()


HOLDERS = {
    "a view": lambda tensor: tensor[3:4],
    "an array": lambda tensor: tensor.numpy(),
    "its storage": lambda tensor: tensor.untyped_storage(),
    "a detached tensor": lambda tensor: tensor.detach(),
    "DLPack": lambda tensor: torch.from_dlpack(tensor),
    "a graph": lambda tensor: (torch.ones(SAMPLES, requires_grad=True) * tensor).sum(),
    "a cycle": lambda tensor: (cycle := [tensor]).append(cycle) or cycle,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_buffer_is_in_use_while_anything_refers_to_it(name):
    buffer = in_use()
    holder = HOLDERS[name](rebuild_from_buffer(buffer, np.dtype(np.float32), (SAMPLES,)))
    assert buffer[-1] == IN_USE
    del holder
    gc.collect()
    assert buffer[-1] == FREE


def _drop(held: list[torch.Tensor]) -> None:
    held.clear()
    gc.collect()


def test_a_fork_that_drops_its_copy_frees_nothing():
    buffer = in_use()
    held = [rebuild_from_buffer(buffer, np.dtype(np.float32), (SAMPLES,))]
    child = multiprocessing.get_context("fork").Process(target=_drop, args=(held,))
    child.start()
    child.join()
    assert child.exitcode == 0 and buffer[-1] == IN_USE
    held.clear()
    assert buffer[-1] == LOST


def _read(batch: torch.Tensor, may_read: Any, found: Any) -> None:
    samples = batch.numpy()
    may_read.wait(60)
    found.put((float(samples.min()), float(samples.max())))


def test_what_a_fork_has_is_not_overwritten():
    context = multiprocessing.get_context("fork")
    batches, may_read, found = iter(numbered([SAMPLES] * COUNT)), context.Event(), context.SimpleQueue()
    held = [next(batches)]
    child = context.Process(target=_read, args=(held[0], may_read, found))
    child.start()
    held.clear()
    for _ in range(COUNT // 2):
        next(batches)
    may_read.set()
    assert found.get() == (0.0, 0.0)
    child.join()


# What is sent in a buffer


@pytest.fixture
def in_worker(monkeypatch):
    monkeypatch.setattr(buffers, "get_worker_info", object)
    monkeypatch.setattr(buffers, "_buffers", Buffers())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_tensors_are_sent_as_they_are(dtype, in_worker):
    value = torch.randn(3, 5, MIN_BYTES // 8).gt(0).to(dtype)
    function, arguments = reduce_to_buffer(value)
    found = function(*arguments)
    assert found.dtype == dtype and torch.equal(found, value)


OTHERS = {
    "small": torch.zeros(MIN_BYTES - 1, dtype=torch.uint8),
    "transposed": torch.zeros(1024, 1024).T,
    "shared already": torch.zeros(MIN_BYTES).share_memory_(),
    "without memory": torch.zeros(MIN_BYTES, device="meta"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_torch_sends_other_tensors(name, in_worker):
    assert reduce_to_buffer(OTHERS[name]) is None


def test_only_workers_have_buffers():
    assert reduce_to_buffer(torch.zeros(MIN_BYTES)) is None


def test_another_way_to_share_memory_is_left_to_torch(in_worker, monkeypatch):
    monkeypatch.setattr(buffers, "get_sharing_strategy", lambda: "file_system")
    assert reduce_to_buffer(torch.zeros(MIN_BYTES)) is None


# Which buffer


Usage = namedtuple("Usage", "total used free")


def test_a_new_buffer_leaves_half_of_the_shared_memory_free(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(100 * MIN_BYTES, 48 * MIN_BYTES, 52 * MIN_BYTES))
    assert Buffers().take(2 * MIN_BYTES) is not None
    assert Buffers().take(3 * MIN_BYTES) is None


def test_the_smallest_free_buffer_that_is_large_enough():
    ours = Buffers()
    large, small = ours.take(3 * MIN_BYTES), ours.take(2 * MIN_BYTES)
    set_state(large, FREE)
    set_state(small, FREE)
    assert ours.take(2 * MIN_BYTES) is small
    assert ours.take(2 * MIN_BYTES) is large


@pytest.mark.parametrize("size", [MIN_BYTES, 3 * MAX_EXCESS * MIN_BYTES], ids=["too large", "too small"])
@pytest.mark.parametrize("state", [FREE, LOST])
def test_buffers_that_do_not_fit_give_way(size, state):
    ours = Buffers()
    taken = [ours.take((MAX_EXCESS + 1) * MIN_BYTES) for _ in range(MAX_BUFFERS)]
    assert ours.take(size) is None
    for buffer in taken[:3]:
        set_state(buffer, state)
    assert len(ours.take(size)) == size + 1
    assert len(ours) == MAX_BUFFERS - 2


def test_without_memory_torch_sends_it_and_nothing_is_left(in_worker, monkeypatch):
    left = buffers.SHARED_MEMORY / "torch_0_test_buffers"
    left.touch()

    def fail(tensor):
        raise RuntimeError(f"unable to mmap 9 bytes from file </{left.name}>: Cannot allocate memory (12)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", fail)
    assert reduce_to_buffer(torch.zeros(MIN_BYTES)) is None
    assert not left.exists()


class Unpicklable:
    def __reduce__(self):
        raise ValueError("no")


def test_what_could_not_be_pickled_leaves_its_buffers_free(in_worker):
    for _ in range(3):
        pickle_content((torch.zeros(MIN_BYTES), Unpicklable()))
    assert len(buffers._buffers) == 1
