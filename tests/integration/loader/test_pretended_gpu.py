"""Loader, prefetch, Monitor and advisor on a pretended GPU: the same audio as on the CPU, whatever it does first."""

import importlib
import typing
from collections.abc import Callable

import pytest
import torch

from audioaug import Chain, Loader, Monitor, Plan, build_device, ops, prefetch, recommend
from audioaug.dsp import dispatch
from audioaug.loader.prefetch import run_ahead
from audioaug.records import Report
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
        return [batch["audio"].clone() for batch in prefetch(rows, device, module, key="index")]

    with dispatch.backend("torch"):
        wanted = augmented("cpu")
        with pretended_gpu(order) as gpu:
            found = augmented("cuda:0")
            assert [wait for wait in gpu.waits if "host" not in wait] == []
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("what", ["evaluation", "features of workers"])
def test_prefetch_of_what_stays_as_it_is_does_not_wait(what):
    chain, waves = Chain([ops.Gain(), ops.LogMel(n_fft=512, n_mels=8)], RATE), [torch.ones(4, 1, 800) for _ in range(3)]
    if what == "evaluation":
        batches, module = waves, build_device(Chain([ops.Gain()], RATE), seed=0).eval()
    else:
        batches, module = [wave.unflatten(-1, (8, -1)) for wave in waves], build_device(chain, start=2, seed=0)
    with dispatch.backend("torch"), pretended_gpu("late") as gpu:
        found = list(prefetch(batches, "cuda:0", module))
        assert gpu.waits == []
        assert all(torch.equal(one.cpu(), other) for one, other in zip(found, batches, strict=True))


def test_a_monitor_reads_its_events_without_waiting():
    with pretended_gpu("late") as gpu, dispatch.backend("torch"):
        loader = Loader(DATA, CHAIN, Plan(cut=0, num_workers=0, pin_memory=False), batch_size=4, device="cuda:0")
        with Monitor(loader, device="cuda:0") as monitor:
            for x_BCT, _ in monitor:
                x_BCT.square().mean()
        assert not [wait for wait in gpu.waits if "host" not in wait]


class Filter(torch.nn.Module):
    """A model of few operations, since each takes the pretended GPU long."""

    def __init__(self) -> None:
        super().__init__()
        self.taps = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        return x_BCT[:, 0].unfold(-1, 64, 64) @ self.taps


def step(model: Filter, batch: typing.Any, optimizer: object) -> torch.Tensor:
    """Learn to predict the next sample, by a gradient of our own: torch's own backward pass needs a real GPU."""
    with torch.no_grad():
        frames_BNK = batch[0][:, 0].unfold(-1, 64, 64)
        error_BN = (frames_BNK @ model.taps)[:, :-1] - frames_BNK[:, 1:, 0]
        model.taps.sub_((frames_BNK[:, :-1] * error_BN[..., None]).mean((0, 1)), alpha=0.1)
        return error_BN.square().mean()


def advised(order: Order, step: Callable[..., torch.Tensor]) -> tuple[Report, PretendedGpu]:
    with pretended_gpu(order) as gpu, dispatch.backend("torch"):
        settings = {"batch_size": 4, "workers": [0, 1], "budget": 2, "device": "cuda:0", "progress": False}
        return recommend(Filter, CHAIN, DATA * 10, train_step=step, **settings), gpu


@pytest.mark.parametrize("order", ["late", "side streams early"])
def test_the_advisor_measures_on_it(order):
    report, gpu = advised(order, step)
    assert report.host.device == "cuda:0" and report.best is not None
    assert {"worker", "device", "model", "transfer"} <= {stage.where for stage in report.stages}
    assert report.signals.step_waits == () and not work_left(gpu)


def work_left(gpu: PretendedGpu) -> int:
    return sum(len(stream.queue) for stream in gpu.streams)


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


def test_a_step_that_waits_is_seen_by_the_advisor():
    def waiting(model: Filter, batch: typing.Any, optimizer: object) -> torch.Tensor:
        loss = step(model, batch, optimizer)
        loss.item()
        return loss

    report, _ = advised("late", waiting)
    assert report.signals.step_waits == ("_local_scalar_dense",)


def test_a_clock_that_does_not_wait_for_the_gpu(monkeypatch):
    monkeypatch.setattr("audioaug.measure.clock.CudaClock.synchronize", lambda self: None)
    _, gpu = advised("late", step)
    assert work_left(gpu)


def test_the_host_cannot_read_memory_of_the_device():
    with pretended_gpu("late"):
        x = torch.ones(3, device="cuda:0")
        assert x.device.type == "cuda"
        with pytest.raises(RuntimeError):
            x.numpy()
