"""The host and the device exchange nothing in a prepared batch but its packed numbers, which is seen without a GPU.

Torch's fake tensors say that they are on one. They have no values, so what needs one raises, and what is copied between
the host and the device is seen. What their operators would compute is in ``test_cuda`` and in ``tests/unit/dsp``.
"""

import contextlib
import functools
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from audioaug import Chain, build_device, ops
from audioaug.advise.settings import demo_chain
from audioaug.audio import bank
from audioaug.audio.bank import open_bank
from audioaug.core import REGISTRY
from audioaug.dsp import dispatch
from audioaug.engine import rows
from audioaug.engine.prepare import Prepared
from audioaug.errors import AudioaugWarning
from audioaug.measure import trace
from tests.contract.engine.test_no_sync import (
    CHAINS,
    EXAMPLES,
    LENGTHS,
    PLANTED,
    RATE,
    SAMPLES,
    fake_copies_work,
    ops_of,
)

COPIES = {"_to_copy", "copy_"}
"""Operators that copy also a single number; to all others the host's is an argument like Python's."""


@pytest.fixture(params=["by kernels", "by operations"], autouse=True)
def on_fake_cuda(request, monkeypatch):
    """Let fake tensors pass for those on a GPU, where kernels run or do not; return the kernels that were launched."""
    if not fake_copies_work():
        pytest.skip(f"without a GPU, torch {torch.__version__} cannot copy a fake tensor to one")
    launched = []
    if request.param == "by kernels":
        if not dispatch.kernels_are_usable():
            pytest.skip("Triton is missing or older than kernels need")
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)  # so that operations are watched
        monkeypatch.setattr(dispatch, "launch", lambda jitted, *given, **more: launched.append(jitted))
    else:
        monkeypatch.setitem(dispatch.FASTEST, "cuda", "torch")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(rows, "is_overwritable", lambda y, x: _storage(y) != _storage(x))  # they have no addresses
    open_bank.cache_clear()
    yield launched
    open_bank.cache_clear()  # banks hold copies that are fake


def _storage(tensor):
    return tensor.untyped_storage()._cdata


class Copies(TorchDispatchMode):
    """Sees what goes from the host to the device or back, except for the packed numbers."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.seen, self.copied = numbers, [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        between = {each.device.type for each in tensors if each.ndim or name in COPIES}
        if len(between) > 1 and args[0] is self.numbers and kwargs.get("non_blocking"):
            self.copied += 1
        elif len(between) > 1:
            self.seen.append(name)
        return result


def waits(chain, lengths=None):
    """Return what the host waits for in a prepared batch of a chain."""
    module = build_device(chain)
    shape = len(EXAMPLES), 1, SAMPLES
    prepared = module.prepare(chain.draw(EXAMPLES), shape, lengths=lengths)
    assert prepared.steps, "nothing is applied to these examples"
    with FakeTensorMode(allow_non_fake_inputs=True):
        work = functools.partial(module.augment, torch.empty(shape, device="cuda"), prepared)
        if _seen(work, prepared.numbers.pack()):  # banks are copied the first time
            return _seen(work, prepared.numbers.pack())
    return []


def _seen(work, numbers):
    with Copies(numbers) as copies:
        return [*trace(work, torch.device("cpu")).waits, *copies.seen]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_no_op_exchanges_anything_with_the_device(name, lengths):
    for op in ops_of(name):
        assert waits(Chain([op], RATE), lengths) == [], op


@pytest.mark.parametrize("name", ["AddBackgroundNoise", "AddShortNoises", "ApplyImpulseResponse"])
def test_excerpts_of_a_large_bank_wait_for_nothing(name, monkeypatch):
    synchronized = []
    monkeypatch.setattr(bank, "MOST_BYTES", 1000)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: synchronized.append(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AudioaugWarning)  # that the bank is large
        for op in ops_of(name):
            assert waits(Chain([op], RATE)) == [] and not synchronized, op


@pytest.mark.parametrize("engine", ["batched", "torch_compile"])
def test_numbers_are_copied_once(engine):
    """Also by an engine that keeps graphs, while it has none for such a batch."""
    module = build_device(Chain([ops.Gain(p=0.5)], RATE), engine=engine)
    prepared = module.prepare(module.chain.draw(EXAMPLES), (len(EXAMPLES), 1, SAMPLES))
    with FakeTensorMode(allow_non_fake_inputs=True), Copies(prepared.numbers.pack()) as copies:
        module.augment(torch.empty(len(EXAMPLES), 1, SAMPLES, device="cuda"), prepared)
    assert copies.copied == 1 and not copies.seen


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_demo_chain_does_not_wait_for_the_device(lengths, on_fake_cuda, request):
    assert waits(demo_chain(RATE), lengths) == []
    assert bool(on_fake_cuda) == ("by kernels" in request.node.name)


@pytest.mark.parametrize("path", sorted(CHAINS.glob("*.yaml")), ids=lambda path: path.stem)
def test_benchmark_chains_do_not_wait_for_the_device(path, monkeypatch):
    monkeypatch.chdir(CHAINS.parents[1])
    assert waits(Chain.from_yaml(path)) == []


def test_a_modules_own_draws_are_copied_from_pinned_memory(monkeypatch):
    pinned = []
    monkeypatch.setattr(Prepared, "pin_memory", lambda prepared: pinned.append(prepared) or prepared)
    module = build_device(Chain([ops.Gain(p=1.0)], RATE))
    with FakeTensorMode(allow_non_fake_inputs=True):
        module(torch.empty(4, 1, SAMPLES, device="cuda"))
    assert len(pinned) == 1
    module(torch.zeros(4, 1, SAMPLES))
    assert len(pinned) == 1


# What must be seen


COPIED = {
    "the host's numbers as an index": lambda x: x[torch.arange(2)].amax() * x,
    "numbers made on the host": lambda x: x * torch.arange(1, 2).to(x.device),
    "numbers put into a tensor": lambda x: x.clone().copy_(torch.ones(x.shape)),
    "a batch on the host": lambda x: x.to(torch.device("cpu"), non_blocking=True).to(x.device),
}
"""What nothing is seen of where all is on the host."""


@pytest.mark.parametrize("name", sorted({*PLANTED, *COPIED} - {"numpy"}))  # which no fake tensor becomes
def test_op_that_synchronises_is_detected(name, monkeypatch):
    planted = {**PLANTED, **COPIED}[name]
    monkeypatch.setattr(ops.Gain, "batched", lambda self, x_BCT, params, clips: planted(x_BCT))
    with contextlib.suppress(DataDependentOutputException, DynamicOutputShapeException):  # which is seen, too
        assert waits(Chain([ops.Gain(p=1.0)], RATE))


def test_a_number_of_the_host_is_an_argument(monkeypatch):
    half = torch.tensor(0.5)
    monkeypatch.setattr(ops.Gain, "batched", lambda self, x_BCT, params, clips: x_BCT * half)
    assert waits(Chain([ops.Gain(p=1.0)], RATE)) == []
