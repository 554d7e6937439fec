"""Devices, nested batches, and the next batch launched while this one trains."""

import dataclasses
import itertools
from collections import namedtuple
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from audioaug import Loader, Plan
from audioaug.errors import DeviceError
from audioaug.loader.pipeline import Pipeline
from audioaug.loader.prefetch import as_device, run_ahead, to_device
from tests.helpers.fake_streams import Buffer, FakeGpu, FakeStream, Race
from tests.integration.loader.material import Words, assert_same_audio, by_index, exact_chain

CPU = torch.device("cpu")
Pair = namedtuple("Pair", ["wave", "label"])

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_cpu_batch_is_finished_on_demand():
    finished: list[int] = []
    batches = run_ahead(range(3), CPU, lambda batch: finished.append(batch) or batch * 10)
    assert finished == []
    assert next(batches) == 0 and finished == [0]
    assert list(batches) == [10, 20] and finished == [0, 1, 2]
    assert list(run_ahead([], CPU, str)) == []


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    for name in ("Stream", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def train(gpu: FakeGpu, batches: Iterable[int], most_steps: int | None = None) -> list[int]:
    """Copy batches to the device, augment and train on them; return what was trained on."""

    def finish(batch: int) -> Buffer:
        copied = Buffer(gpu, batch)
        augmented = Buffer(gpu, batch)
        copied.touch()
        return augmented

    seen = []
    for batch in itertools.islice(run_ahead(batches, torch.device("cuda:1"), finish), most_steps):
        batch.touch()
        activations = Buffer(gpu, "activations")
        batch.touch()
        activations.touch()
        seen.append(batch.content)
    return seen


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_on_a_gpu_all_batches_come_in_order_and_memory_is_used_in_order(gpu: FakeGpu, count: int) -> None:
    assert train(gpu, range(count)) == [*range(count)]


def test_epochs_share_one_side_stream_and_its_memory(gpu: FakeGpu) -> None:
    train(gpu, range(5))
    known = len(gpu.used)
    for _ in range(3):
        train(gpu, range(5))
        train(gpu, range(5), most_steps=2)
    assert len(gpu.streams) == 2 and len(gpu.used) == known


def test_the_next_batch_is_launched_before_this_one_trains_and_no_other(gpu: FakeGpu) -> None:
    side = []
    finish = lambda batch: side.append((batch, gpu.current_stream().number)) or batch  # noqa: E731
    for batch in run_ahead(range(4), torch.device("cuda:1"), finish):
        assert [number for number, _ in side] == [*range(min(4, batch + 2))] and gpu.current_stream().number == 0
    assert {stream for _, stream in side} == {1}


@pytest.mark.parametrize(
    ("method", "how"),
    [("wait_stream", "reused"), ("wait_event", "read")],
    ids=["the side stream does not wait", "the training stream does not wait"],
)
def test_a_missing_wait_is_a_race(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, method: str, how: str) -> None:
    wait = FakeStream.wait_event
    monkeypatch.setattr(FakeStream, method, lambda self, other: None)
    if method == "wait_event":
        monkeypatch.setattr(FakeStream, "wait_stream", lambda self, other: wait(self, other.record_event()))
    with pytest.raises(Race, match=how):
        train(gpu, range(7))


@pytest.mark.parametrize(
    ("device", "pin_memory", "pinned"),
    [("cuda", None, True), ("cuda", True, True), ("cuda", False, False), ("cpu", None, False), ("cpu", True, False)],
)
def test_memory_is_pinned_on_cuda_by_default(device, pin_memory, pinned):
    config = Loader([torch.ones(4)], exact_chain(), device="cpu")._config
    pipeline = Pipeline(dataclasses.replace(config, device=torch.device(device)), Plan(pin_memory=pin_memory))
    assert pipeline.data_loader.pin_memory is pinned


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=3, num_workers=1)], ids=["all", "part"])
def test_cuda_matches_cpu(plan):
    chain = exact_chain()
    there, here = (by_index(Loader(Words(), chain, plan, batch_size=4, device=device)) for device in ("cuda", "cpu"))
    assert_same_audio(there, here, 5e-5)


@pytest.mark.cuda
@needs_cuda
def test_cuda_training_stream_waits_for_the_copy():
    device = torch.device("cuda")
    training, seen = torch.cuda.current_stream(device), []
    pinned = [torch.full((4096, 4096), float(k)).pin_memory() for k in range(4)]

    def finish(batch: torch.Tensor) -> torch.Tensor:
        seen.append(torch.cuda.current_stream(device))
        moved = batch.to(device, non_blocking=True)
        for _ in range(20):  # enough work for a missing wait to show
            moved = moved @ torch.eye(4096, device=device)
        return moved

    sums = [batch.sum() for batch in run_ahead(pinned, device, finish)]
    assert len(seen) == 4 and training not in seen and len(set(seen)) == 1
    assert [each.item() for each in sums] == [k * 4096.0**2 for k in range(4)]


def test_to_device_maps_nested_containers():
    class Row(list):
        """A subclass of list."""

    tensor, meta = torch.ones(2), torch.device("meta")
    moved = to_device({"a": [tensor, "x"], "b": (tensor, Pair(tensor, 3)), "c": Row([tensor]), "d": None}, meta)
    assert moved["a"][0].device == moved["b"][0].device == moved["b"][1].wave.device == moved["c"][0].device == meta
    assert moved["a"][1] == "x" and moved["b"][1].label == 3 and moved["d"] is None
    assert [type(moved[key]) for key in "abc"] == [list, tuple, Row] and type(moved["b"][1]) is Pair
    assert tensor.device == CPU
    array = np.ones(2)
    assert to_device(array, meta) is array


def test_as_device_resolves_names(monkeypatch):
    assert as_device("cpu") == as_device(CPU) == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert as_device(None) == as_device("auto") == as_device("cuda") == torch.device("cuda")
    assert as_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceError, match=r"There is no cuda:7: this machine has 2 CUDA device\(s\)"):
        as_device("cuda:7")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert as_device(None) == as_device("auto") == CPU
    for name in ("cuda", "cuda:7"):
        with pytest.raises(DeviceError, match="This machine has no usable CUDA device"):
            as_device(name)
    with pytest.raises(DeviceError, match="This machine has no MPS device"):
        as_device("mps")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "", "gpu"])
def test_unknown_device_is_refused(name):
    with pytest.raises(DeviceError) as caught:
        as_device(name)
    assert str(caught.value) == f"There is no device {name!r}. Use auto, cpu, cuda, cuda:N or mps."
    with pytest.raises(DeviceError):
        Loader(Words(1), exact_chain(), device=name)


@pytest.mark.parametrize("name", ["xla", "meta"])
def test_unsupported_device_is_refused(name):
    with pytest.raises(DeviceError, match=f"cannot be augmented on {name}"):
        as_device(name)
