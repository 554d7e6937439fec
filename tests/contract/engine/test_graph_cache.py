"""Graphs do what the ops do, batch after batch; there are few of them; what cannot be captured runs op by op.

Where there is no GPU, torch's tracer takes the place of CUDA graphs: it too repeats operators only, with all that
Python had decided when they were recorded.
"""

import contextlib
import copy
import logging
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from audioaug import Chain, Loader, Plan, build_device, ops, split
from audioaug.advise.settings import demo_chain
from audioaug.core import REGISTRY, Feature, why_not_on_device
from audioaug.dsp import dispatch
from audioaug.engine import device as device_build
from audioaug.engine import graph_backends
from audioaug.engine.graph_backends import CudaGraphs, Outside, traced
from audioaug.engine.graph_cache import CAPTURED_AT
from audioaug.measure import trace
from audioaug.verify.material import demo_arguments

RATE, SAMPLES = 16000, 12000
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
pytestmark = [pytest.mark.cuda] if CUDA else []  # so that `-m cuda` runs it there
CHAINS = Path(__file__).parents[3] / "scripts" / "chains"
HALF = [ops.Gain(p=0.5), ops.Reverse(p=0.5)]


class Tracer:
    """Torch's tracer as a recorder."""

    most = 16

    def takes(self, x_BCT):
        return True

    def __call__(self, work, *tensors):
        return traced(work, *tensors)


class Failing(Tracer):
    """Fails, as a compiler may."""

    def __call__(self, work, *tensors):
        raise RuntimeError("no compiler")


@pytest.fixture(autouse=True)
def recorder(monkeypatch, as_on_a_gpu):
    if not CUDA:
        monkeypatch.setitem(device_build.GRAPH_BACKENDS, "cuda_graph", Tracer)
    monkeypatch.chdir(CHAINS.parents[1])


def wave(number, batch=8, samples=SAMPLES):
    return torch.randn(batch, 1, samples, generator=torch.Generator().manual_seed(number)).to(DEVICE) * 0.1


def prepared_batch(module, number, batch=8, lengths=None):
    draws = module.chain.draw(np.arange(number * batch, (number + 1) * batch))
    prepared = module.prepare(draws, (batch, 1, SAMPLES), lengths=lengths)
    return prepared.pin_memory() if CUDA else prepared


def differences(chain, batches, batch=8, lengths=None, engine="cuda_graph"):
    """Return by how much recorded results differ from those of the ops, as shares of the peak, and the module."""
    recorded, ours = build_device(chain, engine=engine), build_device(chain)
    found = []
    for number in range(batches):
        x, prepared = wave(number, batch), prepared_batch(recorded, number, batch, lengths)
        (y, length_B), (expected, expected_B) = recorded.augment(x, prepared), ours.augment(x, prepared)
        assert y.shape == expected.shape and y.dtype == expected.dtype and torch.equal(length_B, expected_B)
        found.append(float((y - expected).abs().max() / expected.abs().max().clamp(min=1e-9)))
    return found, recorded


# It does the same


@pytest.mark.parametrize("lengths", [None, [12000, 9000, 12000, 700]], ids=["all as long", "of their own lengths"])
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_captured_op_matches_uncaptured(name, lengths, monkeypatch):
    monkeypatch.setattr("audioaug.engine.graph_cache.CAPTURED_AT", 1)  # so that more batches meet what others recorded
    if issubclass(REGISTRY[name], Feature):
        pytest.skip("what changes lengths is not captured")
    op = REGISTRY[name](**{**demo_arguments(REGISTRY[name]), "p": 0.5})
    if why_not_on_device(op):
        pytest.skip(f"{name} has no device build")
    found, module = differences(Chain([op], RATE), 12, batch=4, lengths=lengths)
    assert max(found) <= (1e-5 if CUDA else 0.0)
    assert module._graphs or any(prepared_batch(module, number, 4).changes_length for number in range(12))


@pytest.mark.parametrize("name", ["demo", "speech", "music", "light"])
def test_captured_chain_matches_uncaptured(name):
    chain = demo_chain(RATE) if name == "demo" else Chain.from_yaml(CHAINS / f"{name}.yaml")
    found, module = differences(chain, 40, batch=8)
    assert max(found) <= (1e-5 if CUDA else 0.0)
    assert module._graphs


def test_captured_audio_does_not_depend_on_autograd_mode():
    chain, clips = Chain(HALF, RATE), [wave(number, 1)[0].cpu() for number in range(40)]
    plans = [Plan(device_engine=engine) for engine in ("batched", "cuda_graph")]
    ours, recorded = (list(Loader(clips, chain, plan, batch_size=4, device=DEVICE)) for plan in plans)
    assert all(torch.equal(a, b) for a, b in zip(ours, recorded, strict=True)) and len(ours) == 10


def test_layout_is_compiled_once_with_same_result():
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        noises = ops.AddGaussianNoise(p=1.0), ops.AddColorNoise(p=1.0)
        found, module = differences(Chain([*HALF, *noises], RATE), 8, engine="torch_compile")
    assert max(found) <= 1e-6
    if torch.__version__.startswith("2.4."):
        pytest.skip("torch 2.4 compiles noise wrongly, which was found: it ran without")
    assert len(module._graphs) == 1
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.mark.parametrize("factor", [0.9, float("nan")])
def test_wrongly_compiled_work_falls_back(factor, monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", lambda work, **options: lambda *given: factor * work(*given))
    found, module = differences(Chain(HALF, RATE), 8, engine="torch_compile")
    assert max(found) == 0.0 and not len(module._graphs)
    [said] = [record.getMessage() for record in caplog.records]
    assert "torch.compile gives a result that is off by" in said


def test_kernels_do_not_depend_on_which_rows_apply():
    """The same layout with other rows, so that what was recorded has to look at the numbers."""
    _, module = differences(Chain(HALF, RATE), 12)
    batches = [prepared_batch(module, number) for number in range(12)]
    layouts = {prepared.layout for prepared in batches}
    rows = {str([step.rows and each.numbers.on(DEVICE)(step.rows) for step in each.steps]) for each in batches}
    assert len(layouts) < 5 < len(rows)


# There is little of it


def test_layouts_of_the_demo_chain_are_few():
    chain = demo_chain(RATE)
    graphs, ours = (build_device(chain, engine=engine) for engine in ("cuda_graph", "batched"))
    count = {
        name: {prepared_batch(each, n, 32).layout for n in range(100)}
        for name, each in (("graphs", graphs), ("ours", ours))
    }
    assert len(count["ours"]) == 100 and len(count["graphs"]) <= 16


def test_captured_and_counted_layouts_are_bounded(monkeypatch):
    monkeypatch.setattr(CudaGraphs if CUDA else Tracer, "most", 2)
    monkeypatch.setattr("audioaug.engine.graph_cache.WATCHED", 3)
    module = build_device(Chain([ops.Gain(p=1.0)], RATE), engine="cuda_graph")
    for samples in range(100, 110):
        for _ in range(CAPTURED_AT):
            module(wave(0, samples=samples))
    assert len(module._graphs) <= 2 and len(module._graphs._seen) <= 3


def test_layout_is_captured_when_it_returns():
    module = build_device(Chain([ops.Gain(p=1.0)], RATE), engine="cuda_graph")
    counts = [len(module._graphs) for _ in range(CAPTURED_AT) if module(wave(0)) is not None]
    assert counts == [0, 0, 1]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_batch_that_is_not_finite_is_not_captured_but_the_next_one_is(bad):
    module = build_device(Chain([ops.Gain(p=1.0)], RATE), engine="cuda_graph")
    broken = wave(0)
    broken[1, 0, 5] = bad
    for x in (*[wave(0)] * (CAPTURED_AT - 1), broken):
        module(x)
    assert not len(module._graphs)
    module(wave(0))
    assert len(module._graphs) == 1


def test_batches_of_another_rate_or_dtype_share_no_graph():
    chain = Chain([ops.Gain(p=1.0)], RATE)
    module, draws = build_device(chain, engine="cuda_graph"), chain.draw(range(8))
    here, elsewhere = (module.prepare(draws, (8, 1, SAMPLES), rate) for rate in (RATE, 8000))
    for _ in range(CAPTURED_AT):
        module.augment(wave(0), here)
    assert module.has_graph(wave(0), here)
    assert not module.has_graph(wave(0), elsewhere) and not module.has_graph(wave(0).double(), here)


# What cannot be recorded


def test_gradients_are_those_of_the_ops():
    recorded, ours = (build_device(Chain(HALF, RATE), engine=engine) for engine in ("cuda_graph", "batched"))
    for number in range(5):
        prepared, gradients = prepared_batch(recorded, number), []
        for module in (recorded, ours):
            x = wave(number).requires_grad_()
            module.augment(x, prepared_batch(module, number))[0].square().sum().backward()
            gradients.append(x.grad)
        assert any(step.examples < step.rows[2] - step.rows[1] for step in prepared.steps if step.rows)
        assert torch.allclose(*gradients, atol=1e-6)
    assert not recorded._graphs


@pytest.mark.parametrize("op", [ops.Padding(p=1.0), ops.Trim(p=1.0)], ids=lambda op: op.name)
def test_ops_that_change_lengths_are_not_captured(op):
    found, module = differences(Chain([op, ops.Gain(p=1.0)], RATE), 5)
    assert max(found) == 0.0 or CUDA
    assert module._graphs is not None


def test_failed_capture_warns_once_and_ops_still_run(monkeypatch, caplog):
    monkeypatch.setitem(device_build.GRAPH_BACKENDS, "cuda_graph", Failing)
    with caplog.at_level(logging.WARNING, "audioaug"):
        found, module = differences(Chain([ops.Gain(p=1.0)], RATE), 8)
    assert max(found) == 0.0 and not module._graphs
    assert [record.getMessage() for record in caplog.records] == [
        "The device part cannot be captured as a graph and runs without: RuntimeError: no compiler"
    ]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copied_module_starts_without_graphs(copied):
    _, module = differences(Chain(HALF, RATE), 8)
    other = copied(module)
    assert module._graphs and not other._graphs
    assert torch.equal(
        other.augment(wave(1), prepared_batch(other, 1))[0], module.augment(wave(1), prepared_batch(module, 1))[0]
    )


def test_inference_mode_comes_and_goes():
    module = build_device(Chain([ops.Gain(p=1.0)], RATE), engine="cuda_graph")
    for number in range(8):
        with torch.inference_mode(number % 2 == 0):
            module(wave(number))
    assert module._graphs


def test_replaying_a_graph_does_not_synchronise():
    _, module = differences(Chain(HALF, RATE), 8)
    x, prepared = wave(1), prepared_batch(module, 1)
    assert module.has_graph(x, prepared)
    if CUDA:
        try:
            torch.cuda.set_sync_debug_mode("error")
            module.augment(x, prepared)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert trace(lambda: module.augment(x, prepared), DEVICE).waits == ()


def test_tensors_read_by_a_graph_are_kept():
    bank, made = torch.ones(9), []
    with Outside() as outside:
        made.append(bank[2:] * 2)
        made[0].add_(1)
    assert [tensor.data_ptr() for tensor in outside.tensors] == [bank[2:].data_ptr()] or outside.tensors[0] is bank
    assert len(outside.tensors) == 1


def test_tensors_that_only_kernels_read_are_kept(capturing, monkeypatch):
    bank, launched = torch.ones(9), []
    for module in (dispatch, graph_backends):
        monkeypatch.setattr(module, "launch_by_triton", lambda *launch, **constants: launched.append(constants))

    def work(x_BCT, numbers):
        dispatch.launch("a kernel", (1,), x_BCT * 2, bank, BLOCK=4)
        return x_BCT

    replay = CudaGraphs()(work, torch.ones(1, 1, 4), torch.zeros(2))
    assert any(tensor is bank for tensor in replay.reads) and launched == [{"BLOCK": 4, "enable_fp_fusion": True}] * 2


def test_cuda_graphs_are_for_cuda_only():
    assert not CudaGraphs().takes(torch.zeros(1))


def test_graphs_stop_with_one_warning_when_fft_plans_may_be_dropped(monkeypatch, caplog):
    graphs, plans = CudaGraphs(), SimpleNamespace(size=4095, max_size=4096)
    monkeypatch.setattr(torch.backends.cuda, "cufft_plan_cache", [plans])
    with FakeTensorMode():
        x = torch.empty(1, device="cuda")
    assert graphs.takes(x)
    plans.size = 4096
    with caplog.at_level(logging.WARNING, "audioaug"):
        assert not graphs.takes(x) and not graphs.takes(x)
    plans.max_size = 9999  # those that graphs use may be gone by now
    assert not graphs.takes(x)
    [record] = caplog.records
    assert "on cuda:0 run without CUDA graphs from now on, as torch keeps 4096 FFT plans" in record.getMessage()


class FakeGraph:
    """A CUDA graph without a GPU: ``steps`` lists what happens, ``fails`` names the one that raises."""

    steps: list
    replays = staticmethod(lambda: None)
    fails = ""

    def capture_begin(self, pool, capture_error_mode):
        self._do("begin")

    def capture_end(self):
        self._do("end")

    def replay(self):
        self.replays()

    def _do(self, name):
        self.steps.append(name)
        if name == self.fails:
            raise RuntimeError(f"{name} fails")


class FakeStream:
    def wait_stream(self, stream):
        FakeGraph.steps.append("wait")

    def wait_event(self, event):
        pass

    def record_event(self):
        return "done"


@pytest.fixture
def capturing(monkeypatch):
    """Let CudaGraphs capture without a GPU; return what is entered and left for it."""
    steps = []

    @contextlib.contextmanager
    def entered(name, *given):
        steps.append((name, *given))
        try:
            yield
        finally:
            steps.append(f"not {name}")

    side = FakeStream()
    monkeypatch.setattr(FakeGraph, "steps", steps, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: entered("device", device))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered("stream", stream))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: FakeStream())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(graph_backends, "_stream_of", lambda device: side)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *_: steps.append("close"), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: steps.append("release"), raising=False)
    return steps


ENTERED = [("device", torch.device("cpu")), "wait", "stream", "begin"]
LEFT = ["not stream", "not device"]


def names(steps):
    return [step[0] if isinstance(step, tuple) and step[0] == "stream" else step for step in steps]


@pytest.mark.parametrize(("fails", "does"), [("", ["end"]), ("begin", ["end"]), ("end", ["end", "end"])])
def test_a_failed_capture_leaves_nothing_behind(capturing, monkeypatch, fails, does):
    monkeypatch.setattr(FakeGraph, "fails", fails)
    raised = ZeroDivisionError if not fails else RuntimeError
    work = (lambda *_: 1 // 0) if not fails else (lambda x, numbers: -x)
    with pytest.raises(raised):
        CudaGraphs()(work, torch.ones(2, 1, 9), torch.ones(3))
    assert names(capturing) == [*ENTERED, *does, "close", "release", *LEFT]


def test_a_pool_that_torch_has_closed_is_not_released_again(capturing, monkeypatch):
    def end(*_):
        raise RuntimeError("not currently recording")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end)
    with pytest.raises(ZeroDivisionError):
        CudaGraphs()(lambda *_: 1 // 0, torch.ones(2, 1, 9), torch.ones(3))
    assert "release" not in capturing


@pytest.mark.usefixtures("capturing")
def test_a_graph_that_replays_something_else_is_refused(monkeypatch):
    graphs, x, numbers = CudaGraphs(), torch.ones(2, 1, 9), torch.ones(3)
    monkeypatch.setattr(FakeGraph, "replays", lambda self: [each.neg_() for each in graphs._batches.values()])
    assert torch.equal(graphs(lambda x, numbers: -x, x, numbers)(x, numbers), -x)
    with pytest.raises(RuntimeError, match="The replay of a CUDA graph gives a result that is off by 3"):
        graphs(lambda x, numbers: 2 * x, x, numbers)


@pytest.mark.usefixtures("capturing")
def test_graphs_of_batches_with_same_strides_share_memory(monkeypatch):
    graphs, numbers, contiguous = CudaGraphs(), torch.ones(3), torch.ones(2, 3, 9)
    monkeypatch.setattr(graph_backends, "check_equal", lambda *_: None)
    batches = contiguous, contiguous.clone(), torch.ones(9, 3, 2).transpose(0, 2)
    for each in batches:
        graphs(lambda x, numbers: -x, each, numbers)
    assert [place[1] for place in graphs._batches] == [contiguous.stride(), batches[2].stride()]


def test_plan_can_select_the_graph_engine():
    _, module = split(Chain(HALF, RATE), Plan(device_engine="cuda_graph"))
    assert "engine='cuda_graph'" in repr(module)
