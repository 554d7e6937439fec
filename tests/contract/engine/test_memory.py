"""What the device part needs besides the batch: a few times its size, and no more after many batches than after one."""

import functools
import gc
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from audioaug import Chain, build_device, ops
from audioaug.advise.settings import demo_chain
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.measure import peak_extra_bytes
from audioaug.verify.material import demo_arguments

CUDA = torch.cuda.is_available()
RATE, BATCH, SAMPLES = (16000, 128, 64000) if CUDA else (16000, 4, 32000)  # few FFTs are planned: none is small on CUDA
DEVICE = torch.device("cuda" if CUDA else "cpu")
pytestmark = [pytest.mark.cuda] if CUDA else []  # so that `-m cuda` runs it there
CHAINS = Path(__file__).parents[3] / "scripts" / "chains"

MOST = {"by loops": 7.0, "by kernels": 8.0, "by operations": 12.0}
"""How many times the size of the batch an op may need at the peak, its result included."""

MORE = {
    "by loops": {
        "AddShortNoises": 22.0,  # every short noise of a clip side by side
        "LogMel": 9.5,  # frames that overlap four times, and their spectra
        "PitchShift": 19.0,  # short-time spectra of a longer signal
        "Resample": 11.5,  # up to 2.75 times as many samples
        "RoomSimulator": 18.0,  # responses that are longer than these clips
        "TimeStretch": 14.0,  # as PitchShift
    },
    "by kernels": {
        "AirAbsorption": 13.5,  # as by operations
        "PitchShift": 31.0,
        "Resample": 12.0,
        "RoomSimulator": 60.0,  # ... and those in seven bands, with their spectra
        "Speed": 12.0,
        "TimeStretch": 24.0,
    },
    "by operations": {
        "AddShortNoises": 22.0,
        "AirAbsorption": 28.0,  # a short-time spectrum
        "Aliasing": 18.0,  # positions between samples, in float64
        "PitchShift": 54.0,  # ... also the spectra's phases and peaks
        "Resample": 47.0,
        "RoomSimulator": 25.0,
        "Speed": 24.0,  # as Resample, but no more than 1.11 times as many samples
        "TimeStretch": 46.0,
    },
}

MOST_OF_CHAINS = {
    "by loops": {"demo": 3.5, "speech": 6.0, "music": 19.0},
    "by kernels": {"demo": 7.0, "speech": 9.0, "music": 31.0},
    "by operations": {"demo": 7.0, "speech": 9.0, "music": 52.0},
}
CHAIN_NAMES = sorted(MOST_OF_CHAINS["by loops"])


def device_part(module, samples=SAMPLES, first=0):
    """Return the device's work on one batch of that many samples, prepared."""
    x = torch.randn(BATCH, 1, samples, generator=torch.Generator().manual_seed(samples)) * 0.1
    lengths = [samples, samples - first % 99, samples // 2, samples] * (BATCH // 4)
    prepared = module.prepare(module.chain.draw(np.arange(first, first + BATCH)), tuple(x.shape), lengths=lengths)
    prepared, x = prepared.pin_memory() if CUDA else prepared, x.to(DEVICE)
    return functools.partial(module.augment, x, prepared)


def way_here(either_way):
    return "by kernels" if CUDA else either_way  # which both ways are there


def times_the_batch(work):
    """Return the memory that work needs at the peak, over the size of its batch, warm."""
    work()
    return peak_extra_bytes(work, DEVICE) / (work.args[0].numel() * 4)


def module_of(name):
    return build_device(demo_chain(RATE) if name == "demo" else Chain.from_yaml(CHAINS / f"{name}.yaml"))


def always(name):
    return REGISTRY[name](**{**demo_arguments(REGISTRY[name]), "p": 1.0})


def kept_bytes():
    """Return the bytes of all tensors that are alive, each storage once."""
    gc.collect()
    if CUDA:
        return torch.cuda.memory_allocated()
    tensors = (thing for thing in gc.get_objects() if type(thing) is torch.Tensor)
    storages = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def run_batches(module, numbers):
    """Augment batches of any width, each of another one, with clips of unequal lengths in them."""
    for number in numbers:
        samples = 4000 + 7919 * (number + 1) % 12001
        device_part(module, samples, first=BATCH * number)()


# At the peak


@pytest.mark.parametrize("name", sorted(name for name in REGISTRY if not why_not_on_device(always(name))))
def test_an_op_needs_a_few_times_its_batch(name, either_way):
    way = way_here(either_way)
    most = MORE[way].get(name, MOST[way])
    assert times_the_batch(device_part(build_device(Chain([always(name)], RATE)))) <= most


@pytest.mark.parametrize("name", CHAIN_NAMES)
def test_a_chain_needs_a_few_times_its_batch_however_long_that_is(name, either_way, monkeypatch):
    monkeypatch.chdir(CHAINS.parents[1])
    module = module_of(name)
    short, long = (times_the_batch(device_part(module, samples)) for samples in (SAMPLES, 4 * SAMPLES))
    assert short <= MOST_OF_CHAINS[way_here(either_way)][name] and long <= 1.1 * short


# In the long run


@pytest.mark.parametrize("name", CHAIN_NAMES)
def test_nothing_is_kept_of_batches_that_are_done(name, monkeypatch):
    monkeypatch.chdir(CHAINS.parents[1])
    module = module_of(name)
    run_batches(module, range(10))
    before = kept_bytes()
    run_batches(module, range(10, 40))
    assert kept_bytes() - before < 4000 * 4  # less than one clip


def test_keeping_a_batch_is_detected(monkeypatch):
    module, kept = build_device(Chain([ops.Gain(p=1.0)], RATE)), []
    before = kept_bytes()
    monkeypatch.setattr(ops.Gain, "batched", lambda self, x_BCT, params, clips: kept.append(x_BCT * 1) or x_BCT * 1)
    run_batches(module, range(3))
    assert kept_bytes() - before >= 3 * BATCH * 4000 * 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CHAIN_NAMES)
def test_memory_is_flat_over_ten_thousand_batches(name, monkeypatch):
    monkeypatch.chdir(CHAINS.parents[1])
    module, process = module_of(name), psutil.Process()
    run_batches(module, range(500))
    peak = times_the_batch(device_part(module))
    kept, resident = kept_bytes(), process.memory_info().rss
    run_batches(module, range(500, 10_000))
    assert kept_bytes() - kept < 4000 * 4
    assert process.memory_info().rss - resident < 32 * 2**20
    assert times_the_batch(device_part(module)) == pytest.approx(peak, rel=0.01)
