"""What a GPU would have to do for SpecAugment, counted without one: few launches, one copy, and no wait of the host."""

import contextlib
import functools

import pytest
import torch
from count_gpu_work import Watch, pretended_gpu
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from audioaug import SpecAugment
from audioaug.features import spec_augment
from audioaug.features.spec_augment import PreparedMasks
from audioaug.measure import trace
from tests.contract.engine.test_no_copies import COPIED, Copies
from tests.contract.engine.test_no_sync import PLANTED, fake_copies_work

needs_fake_copies = pytest.mark.skipif(not fake_copies_work(), reason="this torch cannot copy a fake tensor to a GPU")
SHAPE = 128, 80, 400
MOST_LAUNCHES, MOST_WITH_WARP = 6, 25
MODULES = {
    "a number": SpecAugment(),
    "the mean": SpecAugment(mask_value="mean"),
    "many masks": SpecAugment(time_masks=20, time_masks_per_frame=0.04, frequency_masks=4, mask_value="mean"),
    "a warp": SpecAugment.librispeech_double(mask_value="mean"),
}
EVERY_MODULE = pytest.mark.parametrize("name", MODULES)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)


def prepared_for(module, shape=SHAPE):
    return module.prepare(module.policy.draw(range(shape[0])), shape, lengths=range(shape[0]))


def launches(module, dtype=torch.float32):
    """Return how often each kernel is launched for a batch."""
    watch, prepared = Watch(), prepared_for(module)
    with pretended_gpu(watch.launch):
        x = torch.empty(SHAPE, device="cuda", dtype=dtype)
        with watch:
            assert module.augment(x, prepared).shape == x.shape
    return watch.names


def waits(module, dtype=torch.float32):
    """Return what the host waits for, or exchanges with the device besides the packed numbers."""
    prepared = prepared_for(module)
    with pretended_gpu(lambda *_, **__: None):
        work = functools.partial(module.augment, torch.empty(SHAPE, device="cuda", dtype=dtype), prepared)
        with Copies(prepared.numbers) as copies:
            return [*trace(work, torch.device("cpu")).waits, *copies.seen]


@needs_fake_copies
@EVERY_MODULE
@DTYPES
def test_few_kernels_are_launched(name, dtype):
    found = launches(MODULES[name], dtype)
    assert 3 <= sum(found.values()) <= (MOST_LAUNCHES if name != "a warp" else MOST_WITH_WARP), found
    assert found["_to_copy"] == 1 or name == "a warp"


@needs_fake_copies
@EVERY_MODULE
@DTYPES
def test_the_host_waits_for_nothing(name, dtype):
    assert waits(MODULES[name], dtype) == []


@needs_fake_copies
@pytest.mark.parametrize("name", sorted({*PLANTED, *COPIED} - {"numpy"}))
def test_a_wait_is_detected(name, monkeypatch):
    planted = {**PLANTED, **COPIED}[name]
    monkeypatch.setattr(spec_augment, "_mean", lambda x, *_: planted(x.new_ones(4, 1, 16))[:1, :1, :1])
    with contextlib.suppress(DataDependentOutputException, DynamicOutputShapeException):  # which is seen, too
        assert waits(MODULES["the mean"])


@EVERY_MODULE
def test_no_wait_is_seen_where_all_is_on_the_host(name):
    x, prepared = torch.ones(SHAPE), prepared_for(MODULES[name])
    assert trace(lambda: MODULES[name].augment(x, prepared), torch.device("cpu")).waits == ()


@EVERY_MODULE
def test_layout_follows_from_shape_and_policy_alone(name):
    """So a CUDA graph of ``augment`` fits every batch of a shape, once its numbers are copied in."""
    module = MODULES[name]
    one, other = (module.prepare(module.policy.draw(range(k, k + 4)), (4, 80, 40), [k, 9, 40, 0]) for k in (1, 7))
    assert one.layout == other.layout and one.numbers.shape == other.numbers.shape
    x, kept = torch.rand(4, 80, 40) + 1, one.numbers.clone()
    expected = module.augment(x, other)
    one.numbers.copy_(other.numbers)
    assert torch.equal(module.augment(x, one), expected) and not torch.equal(kept, other.numbers)


@needs_fake_copies
def test_numbers_are_copied_from_pinned_memory(monkeypatch):
    pinned = []
    monkeypatch.setattr(PreparedMasks, "pin_memory", lambda prepared: pinned.append(prepared) or prepared)
    module = SpecAugment()
    with pretended_gpu(lambda *_, **__: None):
        module(torch.empty(SHAPE, device="cuda"), key=range(SHAPE[0]))
    assert len(pinned) == 1 and pinned[0].numbers.nbytes == SHAPE[0] * (SHAPE[1] + SHAPE[2])
    module(torch.zeros(SHAPE))
    assert len(pinned) == 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@EVERY_MODULE
@DTYPES
def test_a_gpu_masks_as_the_cpu_does_and_is_not_waited_for(name, dtype):
    module, x = MODULES[name], (torch.rand(SHAPE) + 1).to(dtype)
    on_gpu, lengths = x.cuda(), list(range(273, 401))
    module(on_gpu, lengths=lengths, key=range(128))
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = module(on_gpu, lengths=lengths, key=range(128), epoch=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = module(x, lengths=lengths, key=range(128), epoch=1)
    assert torch.allclose(y.cpu(), expected, rtol=2 * torch.finfo(dtype).eps)
    if name == "a number":
        assert torch.equal(y.cpu(), expected)
