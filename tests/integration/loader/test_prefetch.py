"""Devices, nested batches, and the next batch launched while this one trains."""

import contextlib
import dataclasses
import types
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Loader, Plan
from audioaug.errors import DeviceError
from audioaug.loader.pipeline import Pipeline
from audioaug.loader.prefetch import as_device, run_ahead, to_device
from tests.integration.loader.custom_batches import Clips
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


class FakeCuda:
    """Fake streams and events of ``torch.cuda`` that log their calls."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = "training"

    def Stream(self, device: torch.device) -> Any:
        return types.SimpleNamespace(
            record_event=lambda: f"all of {self.log[-1]}",
            wait_stream=lambda stream: self.log.append(f"side waits for {stream.name}"),
        )

    @contextlib.contextmanager
    def stream(self, side: Any) -> Iterator[None]:
        self.now = "side"
        yield
        self.now = "training"

    def current_stream(self, device: torch.device | None = None) -> Any:
        wait = lambda event: self.log.append(f"{device} waits for {event}")  # noqa: E731
        return types.SimpleNamespace(name=f"training on {device}", wait_event=wait)

    def finish(self, batch: int) -> dict[str, Any]:
        self.log.append(f"copy {batch} on {self.now}")
        return {"audio": torch.tensor(batch), "more": [Pair(torch.tensor(batch), 0)]}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for name in ("Stream", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    keep = lambda tensor, stream: fake.log.append(f"keep {int(tensor)}")  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "record_stream", keep)
    return fake


def test_cuda_next_batch_is_launched_on_side_stream(cuda):
    for batch in run_ahead(range(3), torch.device("cuda:1"), cuda.finish):
        cuda.log.append(f"train {int(batch['audio'])} on {cuda.now}")
    hand_over = "cuda:1 waits for all of copy {0} on side", "keep {0}", "keep {0}", "train {0} on training"
    first, second, third = ([line.format(k) for line in hand_over] for k in range(3))
    assert cuda.log == ["copy 0 on side", "copy 1 on side", *first, "copy 2 on side", *second, *third]


def test_cuda_with_no_batch_and_one_batch(cuda):
    assert list(run_ahead([], torch.device("cuda:0"), cuda.finish)) == []
    assert [int(batch["audio"]) for batch in run_ahead([7], torch.device("cuda:0"), cuda.finish)] == [7]


def test_cuda_memory_of_custom_types_is_reused_only_after_the_step(cuda):
    def finish(batch: int) -> Any:
        cuda.log.append(f"copy {batch}")
        return [Clips(torch.tensor(batch))]

    for _ in run_ahead(range(3), torch.device("cuda:1"), finish):
        cuda.log.append("train")
    hand_over = "cuda:1 waits for all of copy {0}", "keep {0}", "train"
    first, second, third = ([line.format(k) for line in hand_over] for k in range(3))
    waits = "side waits for training on cuda:1"
    hand_overs = [*first, waits, "copy 2", *second, *third]
    assert cuda.log == ["copy 0", waits, "copy 1", *hand_overs]


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
