"""Kernels for NVIDIA GPUs do what their torch definitions do, and compile for real cards.

Where there is no GPU, Triton interprets them, on the CPU. (On a GPU, ``test_cuda.py`` compares every op.)
"""

import importlib
import pkgutil
import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug import Chain, build_device, dsp, ops
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.dsp import dispatch
from audioaug.dsp.biquads import NUMBERS, cascade
from audioaug.dsp.dispatch import implementation_for
from audioaug.dsp.noise import gaussian, with_gaussian
from audioaug.dsp.resample import FRACTION_BITS, _taps_as_polynomials
from audioaug.verify.material import variants
from tests.unit.dsp.both_ways import LENGTHS, by_torch, largest_difference, not_installed

triton = pytest.importorskip("triton")
if not dispatch.kernels_are_usable():
    pytest.skip(f"Triton {triton.__version__} is older than kernels need", allow_module_level=True)
ASTSource = importlib.import_module("triton.compiler").ASTSource
GPUTarget = importlib.import_module("triton.backends.compiler").GPUTarget
BACKEND = importlib.import_module("triton.compiler").make_backend(GPUTarget("cuda", 90, 32))
create_function_from_signature = importlib.import_module("triton.runtime.jit").create_function_from_signature

RATE = 16000
FOUND = [each.name for each in pkgutil.walk_packages(dsp.__path__, "audioaug.dsp.")]
MODULES = [name for name in FOUND if name.endswith(".kernel")]
WITH_KERNELS = {
    *("AddColorNoise", "AddGaussianNoise", "AddGaussianSNR", "PitchShift", "Resample", "Shift", "TimeMask"),
    *("BandPassFilter", "BandStopFilter", "HighPassFilter", "LowPassFilter"),
    *("HighShelfFilter", "LowShelfFilter", "PeakingFilter", "SevenBandParametricEQ"),
}


def reloaded():
    for name in MODULES:
        importlib.reload(importlib.import_module(name))


@pytest.fixture
def interpreted(monkeypatch):
    """Run kernels on the CPU, interpreted; return those that were launched."""
    launched, launch = [], dispatch.launch
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    monkeypatch.setattr(dispatch, "launch", lambda *given, **more: (launched.append(given[0]), launch(*given, **more)))
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        reloaded()
    yield launched
    reloaded()


# They do the same


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(WITH_KERNELS))
def test_an_op_does_the_same_with_kernels(name, lengths, interpreted):
    for op in variants(REGISTRY[name]):
        assert largest_difference(op, lengths) <= 2e-5, op
    assert interpreted


@pytest.mark.parametrize("name", sorted({*REGISTRY} - WITH_KERNELS))
def test_no_other_op_has_a_kernel(name, interpreted):
    for op in variants(REGISTRY[name]):
        if not why_not_on_device(op):
            largest_difference(op, None)
    assert not interpreted


@pytest.mark.parametrize("samples", [1, 2, 1023, 1024, 1025, 5000])
def test_noise_of_any_length_is_the_same(samples, interpreted):
    key = torch.tensor([0, 1, 2**52 - 1, 12345678901])
    assert (gaussian(key, 3, samples) - by_torch(lambda: gaussian(key, 3, samples))).abs().max() < 1e-5
    x, gain = torch.randn(4, 3, samples), torch.tensor([0.0, 1.0, 0.5, -2.0])
    wanted = by_torch(lambda: with_gaussian(x, key, gain))
    assert (with_gaussian(x, key, gain) - wanted).abs().max() < 2e-5
    assert with_gaussian(x, key, gain, out=x) is x and (x - wanted).abs().max() < 2e-5
    assert len(interpreted) == 3


def test_strided_samples_give_the_same_result(interpreted):
    key, gain, x = torch.tensor([1, 2]), torch.ones(2), torch.randn(2, 1, 200)
    assert torch.equal(with_gaussian(x[..., ::2], key, gain), with_gaussian(x[..., ::2].contiguous(), key, gain))


def test_a_planted_fault_is_seen(interpreted):
    key = torch.tensor([3])
    wanted = by_torch(lambda: gaussian(key, 1, 4000))
    assert (gaussian(key + 1, 1, 4000) - wanted).abs().max() > 1


# Where they do not run


def test_spectra_that_do_not_lie_together_are_multiplied_in_place_too(interpreted):
    spectrum_RCKF = torch.randn(2, 3, 1, 9, dtype=torch.complex64)
    scattered = spectrum_RCKF.transpose(0, 1).contiguous().transpose(0, 1)
    numbers_RSK = torch.rand(2, 1, NUMBERS) + 0.5
    axis = cascade._axis(16, 0, scattered.device)
    expected = cascade._multiply(spectrum_RCKF.clone(), numbers_RSK, [0], axis)
    assert interpreted and not scattered.is_contiguous()
    cascade._multiply(scattered, numbers_RSK, [0], axis)
    torch.testing.assert_close(scattered, expected)


def test_gradients_and_tracers_find_operations(interpreted):
    module = build_device(Chain([REGISTRY["LowPassFilter"](p=1.0)], RATE))
    prepared, x = module.prepare(module.chain.draw(range(2)), (2, 1, 4000)), torch.randn(2, 1, 4000)
    module.augment(x.clone().requires_grad_(), prepared)[0].sum().backward()
    make_fx(lambda x: module.augment(x, prepared)[0])(x)
    assert not interpreted
    module.augment(x, prepared)
    assert interpreted


def test_on_a_cpu_loops_run_and_without_triton_operations(monkeypatch):
    assert implementation_for(torch.zeros(1)) == "loop"
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    assert implementation_for(torch.zeros(1)) == "kernel"
    with not_installed("triton"):
        assert implementation_for(torch.zeros(1)) == "torch"
    assert implementation_for(torch.zeros(1)) == "kernel"


# They compile


class Variants:
    """Counts what kernels would be compiled for, as Triton's binder tells them apart; nothing is launched."""

    def __init__(self) -> None:
        self.found, self._binders = {}, {}

    def launch(self, kernel, grid, *arguments, **constants):
        if kernel not in self._binders:
            self._binders[kernel] = create_function_from_signature(kernel.signature, kernel.params, BACKEND)
        _, key, _ = self._binders[kernel](*arguments, **constants)
        self.found.setdefault(kernel.fn.__name__, set()).add(str(key))


EVERY_KERNEL = [
    *(ops.AddGaussianNoise(), ops.AddColorNoise(), ops.LowPassFilter(), ops.PeakingFilter(), ops.HighShelfFilter()),
    *(ops.SevenBandParametricEQ(), ops.TimeMask(fade_duration=0.01), ops.Shift(), ops.PitchShift(), ops.Resample()),
]


@pytest.mark.parametrize("batches", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_they_are_compiled_at_most_twice_whatever_the_batches(monkeypatch, batches):
    variants, draw = Variants(), random.Random(0)
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    monkeypatch.setattr(dispatch, "launch", variants.launch)
    monkeypatch.setattr("audioaug.engine.device.prove", lambda *_: None)  # nothing is computed
    chain = Chain(EVERY_KERNEL, RATE)
    module = build_device(chain)
    for number in range(batches):
        rows, channels, samples = draw.choice([1, 3, 16]), draw.choice([1, 2]), draw.randint(2000, 9000)
        lengths = None if number % 2 else [draw.randint(1000, samples) for _ in range(rows)]
        draws = chain.draw(range(number * 16, number * 16 + rows), epoch=0)
        prepared = module.prepare(draws, (rows, channels, samples), RATE, lengths)
        module.augment(torch.zeros(rows, channels, samples), prepared)
    assert variants.found.keys() == {function for _, function, _ in LAUNCHED}
    assert max(map(len, variants.found.values())) <= 2


FLOATS, WHOLE, NUMBER, REAL = "*fp32", "*i64", "i32", "fp32"
POINTERS = {
    **dict.fromkeys(("spectrum_ptr", "numbers_ptr", "axis_ptr", "x_ptr", "y_ptr", "gain_ptr", "fine_ptr"), FLOATS),
    **dict.fromkeys(("key_ptr", "start_ptr", "count_ptr", "fade_ptr", "stitch_ptr", "step_ptr", "length_ptr"), WHOLE),
    "bend_by": REAL,
}
LAUNCHED = [
    *(("biquads", "_multiply", {"CUT": cut, "NUMBERS": NUMBERS}) for cut in (False, True)),
    *(("noise", "_make", {"ADDS": adds}) for adds in (False, True)),
    *(("fades", function, {}) for function in ("_silence", "_fade")),
    ("resample", "_interpolate", {"FACTORS": tuple(map(tuple, _taps_as_polynomials())), "BITS": FRACTION_BITS}),
]


@pytest.mark.parametrize("capability", [75, 80, 90, 100])
@pytest.mark.parametrize(("name", "function", "flags"), LAUNCHED, ids=str)
def test_they_compile_for_real_cards(name, function, flags, capability):
    module = importlib.import_module(f"audioaug.dsp.{name}.kernel")
    jitted, constants = getattr(module, function), {"BLOCK": module.BLOCK, **flags}
    signature = {each: POINTERS.get(each, "constexpr" if each in constants else NUMBER) for each in jitted.arg_names}
    source = ASTSource(fn=jitted, signature=signature, constexprs=constants)
    assert triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
