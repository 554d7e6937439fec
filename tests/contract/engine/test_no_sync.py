"""Once a batch is prepared, the host never waits for the device: no op reads a value, no shape depends on one.

With a GPU, CUDA itself raises at each wait. Without one, all calls are watched for those that would wait.
"""

import functools
import itertools
import operator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from audioaug import Chain, build_device, ops
from audioaug.advise.settings import demo_chain
from audioaug.core import REGISTRY, Feature, why_not_on_device
from audioaug.measure import trace
from audioaug.verify.material import variants

RATE, SAMPLES = 16000, 12000
EXAMPLES = np.arange(4, 8)  # two of which an op with p = 0.5 applies to
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
pytestmark = [pytest.mark.cuda] if CUDA else []  # so that `-m cuda` runs it there
LENGTHS = {"all as long": None, "of their own lengths": [12000, 9000, 12000, 700]}
CHAINS = Path(__file__).parents[3] / "scripts" / "chains"


@functools.cache
def fake_copies_work():
    """Return whether torch copies fake tensors to a GPU that is not there: 2.4 asks for its driver."""
    try:
        with FakeTensorMode():
            torch.empty(2).to("cuda")
    except RuntimeError:
        return False
    return True


# All work of a GPU, with more to see, is watched there.
IN_TEST_NO_COPIES = pytest.mark.skipif(
    not CUDA and fake_copies_work(), reason="without a GPU, test_no_copies.py sees this and more"
)


def device_part(chain, lengths=None):
    """Return the part of the work that runs on the device, warm: banks are copied and FFT plans made the first time."""
    module = build_device(chain)
    x = torch.randn(len(EXAMPLES), 1, SAMPLES, generator=torch.Generator().manual_seed(1)) * 0.1
    prepared = module.prepare(chain.draw(EXAMPLES), tuple(x.shape), lengths=lengths)
    assert prepared.steps, "nothing is applied to these examples"
    prepared, x = prepared.pin_memory() if CUDA else prepared, x.to(DEVICE)
    work = functools.partial(module.augment, x, prepared)
    work()
    return work


def waits(work):
    """Return what the host waits for in ``work``; on CUDA also let it raise there, with a traceback."""
    if CUDA:
        try:
            torch.cuda.set_sync_debug_mode("error")
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return trace(work, DEVICE).waits


def ops_of(name):
    """Return all variants of an op that run on the device, always applied and half of the time."""
    declared = [op for op in variants(REGISTRY[name]) if not why_not_on_device(op)]
    if not declared:
        pytest.skip(f"{name} has no device build")
    always = issubclass(REGISTRY[name], Feature)
    return [replace(op, p=p) for op, p in itertools.product(declared, (1.0,) if always else (1.0, 0.5))]


@IN_TEST_NO_COPIES
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_no_op_waits_for_the_device(name, lengths):
    for op in ops_of(name):
        assert waits(device_part(Chain([op], RATE), lengths)) == (), op


@IN_TEST_NO_COPIES
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_demo_chain_does_not_wait_for_the_device(lengths):
    assert waits(device_part(demo_chain(RATE), lengths)) == ()


@IN_TEST_NO_COPIES
@pytest.mark.parametrize("path", sorted(CHAINS.glob("*.yaml")), ids=lambda path: path.stem)
def test_benchmark_chains_do_not_wait_for_the_device(path, monkeypatch):
    monkeypatch.chdir(CHAINS.parents[1])
    assert waits(device_part(Chain.from_yaml(path))) == ()


# What must be seen


PLANTED = {
    "item": lambda x: x * x.amax().item(),
    "a value in an if": lambda x: -x if x.mean() > 0 else x,
    "is_nonzero": lambda x: x * float(torch.is_nonzero(x.count_nonzero())),
    "nonzero": lambda x: x.index_fill(2, x[0, 0].nonzero()[:3, 0], 0.0),
    "where without values": lambda x: x.index_fill(2, torch.where(x[0, 0] > 0)[0], 0.0),
    "a mask as an index": lambda x: x * x[x > 0].amax(),
    "a mask as a place": lambda x: x.clone().index_put_((x > 0,), x.new_ones(int((x > 0).sum()))),
    "masked_select": lambda x: x * x.masked_select(x > 0).amax(),
    "a value as a bound": lambda x: x[..., : (x[0, 0] != 2).sum()],
    "a value in range": lambda x: sum([x for _ in range((x[0, 0, :3] != 2).sum())]),
    "unique": lambda x: x * x.unique().amax(),
    "repeat_interleave": lambda x: x + torch.repeat_interleave(torch.ones(2, dtype=torch.long, device=x.device)).sum(),
    "tolist": lambda x: x * max(x[0, 0].tolist()),
    "numpy": lambda x: x * float(np.max(x.cpu().numpy())),
    "to the host": lambda x: x * x.amax().to("cpu"),
    "a tensor of a number": lambda x: x * torch.tensor(0.5, device=x.device),
    "a tensor of Python's numbers": lambda x: x * torch.tensor([0.5], device=x.device),
    "a tensor of numpy's numbers": lambda x: x * torch.from_numpy(np.ones(1, np.float32)).to(x.device),
    "a list as an index": lambda x: x + x[[0, 1]].amax(),
    "a number in a single place": lambda x: operator.setitem(y := x.clone(), (0, 0, 0), 1.0) or y,
    "an array as an index": lambda x: x + x[np.array([0, 1])].amax(),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_op_that_synchronises_is_detected(planted, monkeypatch):
    work = device_part(Chain([ops.Gain(p=1.0)], RATE))
    assert waits(work) == ()
    monkeypatch.setattr(ops.Gain, "batched", lambda self, x_BCT, params, clips: planted(x_BCT))
    if CUDA:
        with pytest.raises(RuntimeError, match="synchroniz"):
            waits(work)
    else:
        assert waits(work)


def test_op_without_sync_is_not_reported():
    def harmless(x):
        x = x.clone()
        x[x > 0] = 0.5  # masked_fill
        x[:, 0, 3] = 0.25
        x = x.to(x.device)[1:3, None, 0]
        x = torch.where(x < 0, -x, x)[:, :, torch.arange(9, device=x.device)]
        return torch.repeat_interleave(x, 2, dim=0) + len(x) * x.shape[-1]

    assert waits(functools.partial(harmless, torch.randn(4, 1, 16, device=DEVICE))) == ()


def test_kernels_are_counted_and_views_are_not():
    x = torch.randn(4, 16, device=DEVICE)
    assert trace(lambda: x.view(16, 4)[1:].t(), DEVICE).kernels == 0
    assert trace(lambda: (x + 1).sin() * x, DEVICE).kernels == 3
