"""From the dataset to the training step on a pretended GPU: the same audio as on the CPU, whatever it does first."""

import importlib
import typing

import pytest
import torch

from audioaug import Chain, Loader, Monitor, Plan, build_device, ops, prefetch
from audioaug.dsp import dispatch
from audioaug.loader.prefetch import run_ahead
from tests.helpers.pretended_gpu import Order, PretendedGpu, pretended_gpu

RATE, ORDERS = 16000, typing.get_args(Order)
CHAIN = Chain([ops.Gain(p=0.5), ops.LowPassFilter(p=1.0), ops.AddGaussianSNR(p=0.7), ops.Shift(p=1.0)], RATE)
DATA = [(torch.randn(1, 4000, generator=torch.Generator().manual_seed(row)) * 0.1, row) for row in range(24)]


def loaded(device: str, plan: Plan) -> list[torch.Tensor]:
    """Train on two epochs; return the audio as the steps found it, read once all work was given."""
    loader, found = Loader(DATA, CHAIN, plan, batch_size=4, device=device), []
    model = torch.nn.Conv1d(1, 2, 64, 16).to(device)
    for epoch in range(2):
        loader.set_epoch(epoch)
        for x_BCT, _ in loader:
            with torch.no_grad():  # a gradient would keep the batch
                found.append((x_BCT.clone(), model(x_BCT).square().mean()))
    return [torch.cat([x_BCT.cpu().flatten(), loss.cpu()[None]]) for x_BCT, loss in found]


@pytest.fixture
def expected():
    with dispatch.backend("torch"):
        torch.manual_seed(0)
        return loaded("cpu", Plan(cut=0, num_workers=0))


def on_gpu(order: Order, plan: Plan) -> tuple[list[torch.Tensor], PretendedGpu]:
    with pretended_gpu(order) as gpu, dispatch.backend("torch"):
        torch.manual_seed(0)
        return loaded("cuda:0", plan), gpu


@pytest.mark.parametrize("cut", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_loader_gives_what_it_gives_on_the_cpu(order, cut, expected):
    found, _ = on_gpu(order, Plan(cut=cut, num_workers=0, pin_memory=False))
    assert len(found) == len(expected) == 12
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_prefetch_gives_what_it_gives_on_the_cpu(order):
    module = build_device(CHAIN, seed=0)
    batches = [torch.stack([wave for wave, _ in DATA[row : row + 4]]) for row in range(0, 24, 4)]

    def augmented(device: str) -> list[torch.Tensor]:
        rows = ({"audio": x_BCT, "index": torch.arange(4) + 4 * k} for k, x_BCT in enumerate(batches))
        return [batch["audio"].clone() for batch in prefetch(rows, device, module, index="index")]

    with dispatch.backend("torch"):
        wanted = augmented("cpu")
        with pretended_gpu(order) as gpu:
            found = augmented("cuda:0")
            assert [wait for wait in gpu.waits if "host" not in wait] == []
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=0, atol=1e-5)


def test_a_monitor_reads_its_events_without_waiting():
    with pretended_gpu("late") as gpu, dispatch.backend("torch"):
        loader = Loader(DATA, CHAIN, Plan(cut=0, num_workers=0, pin_memory=False), batch_size=4, device="cuda:0")
        with Monitor(loader, device="cuda:0") as monitor:
            for x_BCT, _ in monitor:
                x_BCT.square().mean()
        assert not [wait for wait in gpu.waits if "host" not in wait]


# What must be seen


def differs(order: Order) -> bool:
    with dispatch.backend("torch"):
        torch.manual_seed(0)
        wanted = loaded("cpu", Plan(cut=0, num_workers=0))
    found, _ = on_gpu(order, Plan(cut=0, num_workers=0, pin_memory=False))
    return any(not torch.allclose(one, other, atol=1e-5) for one, other in zip(found, wanted, strict=True))


def test_a_step_that_does_not_wait_for_its_batch(monkeypatch):
    module = importlib.import_module("audioaug.loader.prefetch")
    monkeypatch.setattr(module, "_hand_over", lambda batch, done, device: batch)
    assert differs("late")


def test_memory_that_is_used_again_too_early(monkeypatch):
    honest = run_ahead

    def without_waiting(batches, device, finish):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda.Stream, "wait_stream", lambda self, stream: None)
            yield from honest(batches, device, finish)

    monkeypatch.setattr("audioaug.loader.loader.run_ahead", without_waiting)
    assert differs("side streams early")


def test_numbers_that_the_host_writes_over_before_they_are_copied():
    with pretended_gpu("late"):
        numbers = torch.arange(4.0).pin_memory()
        on_device = numbers.to("cuda:0", non_blocking=True)
        numbers.zero_()
        assert on_device.cpu().tolist() == [0.0] * 4
        pageable = torch.arange(4.0)
        on_device = pageable.to("cuda:0", non_blocking=True)
        pageable.zero_()
        assert on_device.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_hidden_synchronisation_is_counted(monkeypatch):
    honest = ops.Shift.batched
    monkeypatch.setattr(
        ops.Shift, "batched", lambda self, x, params, batch: honest(self, x, params, batch) * x.amax().item()
    )
    _, gpu = on_gpu("late", Plan(cut=0, num_workers=0, pin_memory=False))
    assert "_local_scalar_dense" in gpu.waits


def test_the_host_cannot_read_memory_of_the_device():
    with pretended_gpu("late"):
        x = torch.ones(3, device="cuda:0")
        assert x.device.type == "cuda"
        with pytest.raises(RuntimeError):
            x.numpy()
