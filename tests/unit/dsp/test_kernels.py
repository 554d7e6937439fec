"""Kernels for NVIDIA GPUs do what their torch definitions do, and compile for real cards.

Where there is no GPU, Triton interprets them, on the CPU. (On a GPU, ``test_cuda.py`` compares every op.)
"""

import contextlib
import functools
import importlib
import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug import Chain, build_device, ops
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.dsp import dispatch
from audioaug.dsp.biquads import NUMBERS, cascade
from audioaug.dsp.dispatch import implementation_for
from audioaug.dsp.noise import gaussian, with_gaussian
from audioaug.dsp.windows import silence_past_ends
from audioaug.verify.material import folder_at, variants
from tests.unit.dsp.both_ways import LENGTHS, by_torch, largest_difference, not_installed

triton = pytest.importorskip("triton")
if not dispatch.kernels_are_usable():
    pytest.skip(f"Triton {triton.__version__} is older than kernels need", allow_module_level=True)
ASTSource = importlib.import_module("triton.compiler").ASTSource
GPUTarget = importlib.import_module("triton.backends.compiler").GPUTarget
BACKEND = importlib.import_module("triton.compiler").make_backend(GPUTarget("cuda", 90, 32))
create_function_from_signature = importlib.import_module("triton.runtime.jit").create_function_from_signature

RATE = 16000
SLOW_TO_INTERPRET = {"Limiter", "LoudnessNormalization"}  # thousands of steps: see test_kernel_arguments
SHORTER = {
    **dict.fromkeys(("PitchShift", "TimeStretch"), 2500),
    **{"AirAbsorption": 3000, "Resample": 3000, "Speed": 3000, "RoomSimulator": 4000},
}
"""Samples of clips for the ops with the most programs."""
WITH_KERNELS = SLOW_TO_INTERPRET | {
    *("AddColorNoise", "AddGaussianNoise", "AddGaussianSNR", "AdjustDuration", "AirAbsorption", "ApplyImpulseResponse"),
    *("AddBackgroundNoise", "AddShortNoises", "Aliasing", "BitCrush", "ClippingDistortion", "GainTransition"),
    *("G711", "Mix", "Normalize", "TanhDistortion"),
    *("BandPassFilter", "BandStopFilter", "HighPassFilter", "HighShelfFilter", "LowPassFilter", "LowShelfFilter"),
    *("Padding", "PeakingFilter", "PitchShift", "RepeatPart", "Resample", "RoomSimulator", "SevenBandParametricEQ"),
    *("Shift", "Speed", "SpliceOut", "TimeMask", "TimeStretch", "Trim"),
}


# They do the same


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(WITH_KERNELS - SLOW_TO_INTERPRET))
def test_an_op_does_the_same_with_kernels(name, lengths, interpreted):
    for op in variants(REGISTRY[name]):
        assert largest_difference(op, lengths, SHORTER.get(name, 12000)) <= 2e-5, op
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


@pytest.mark.parametrize(
    ("samples", "blocks", "block"), [(65535, 65535, 1024), (65536, 32768, 2048), (2**18, 2**15, 8192)]
)
def test_very_long_rows_are_launched_in_blocks_that_cuda_allows(samples, blocks, block):
    grids = []
    with dispatch.launched_by(lambda kernel, grid, *_, BLOCK, **options: grids.append((*grid, BLOCK))):
        x, number = torch.empty(2, 3, samples * 1024, device="meta"), torch.zeros(2, dtype=torch.int64)
        silence_past_ends(x, number)
    assert grids == [(6, blocks, block)]


def test_rows_in_larger_blocks_are_the_same(monkeypatch, interpreted):
    op = ops.Shift(fade_duration=0.01)
    monkeypatch.setattr(dispatch, "MOST_BLOCKS", 2)
    assert largest_difference(op, LENGTHS["of their own lengths"]) <= 2e-5
    assert interpreted


# Where they do not run


def test_spectra_that_do_not_lie_together_are_multiplied_in_place_too(interpreted):
    spectrum_RCKF = torch.randn(2, 3, 1, 9, dtype=torch.complex64)
    scattered = spectrum_RCKF.transpose(0, 1).contiguous().transpose(0, 1)
    numbers_RSK = torch.rand(2, 1, NUMBERS) + 0.5
    expected = cascade._multiply(spectrum_RCKF.clone(), numbers_RSK, [0], 16, torch.zeros(2), None)
    assert interpreted and not scattered.is_contiguous()
    cascade._multiply(scattered, numbers_RSK, [0], 16, torch.zeros(2), None)
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
        self.found.setdefault(name_of(kernel), set()).add(str(key))


EVERY_KERNEL = [
    *(ops.AddGaussianNoise(), ops.AddColorNoise(), ops.LowPassFilter(), ops.PeakingFilter(), ops.HighShelfFilter()),
    *(ops.SevenBandParametricEQ(), ops.TimeMask(fade_duration=0.01), ops.Shift(), ops.Shift(rollover=False)),
    *(ops.PitchShift(), ops.TimeStretch(), ops.Resample(), ops.AirAbsorption(), ops.Limiter(), ops.SpliceOut()),
    *(ops.Aliasing(), ops.ClippingDistortion(), ops.GainTransition(), ops.Normalize(), ops.LoudnessNormalization()),
    *(ops.BitCrush(), ops.G711(), ops.Padding(), ops.RepeatPart(min_part_duration=0.02, max_part_duration=0.03)),
    *(ops.RoomSimulator(use_ray_tracing=False, max_order=2), ops.TanhDistortion()),
]


def batches_of_many_shapes(number: int) -> None:
    """Run a chain with every kernel on that many batches; where kernels are launched is up to the test."""
    draw, noise = random.Random(0), folder_at("noise", RATE)
    for_mono = ops.AddShortNoises(sounds_path=noise), ops.AddBackgroundNoise(sounds_path=noise)
    in_rooms = ops.ApplyImpulseResponse(ir_path=folder_at("rooms", RATE))
    modules = [build_device(Chain([*EVERY_KERNEL, in_rooms, *more, ops.Trim()], RATE)) for more in (for_mono, ())]
    for place in range(number):
        rows, channels, samples = draw.choice([1, 3, 16]), draw.choice([1, 2]), draw.randint(6400, 9000)
        module = modules[channels - 1]
        lengths = None if place % 2 else [draw.randint(6400, samples) for _ in range(rows)]
        draws = module.chain.draw(range(place * 16, place * 16 + rows), epoch=0)
        module.augment(
            torch.zeros(rows, channels, samples), module.prepare(draws, (rows, channels, samples), RATE, lengths)
        )


@contextlib.contextmanager
def launched_by(launch):
    """Let kernels run on the CPU for a while, but by ``launch``, which computes nothing."""
    with pytest.MonkeyPatch.context() as patch, dispatch.launched_by(launch):
        patch.setattr("audioaug.engine.device.prove", lambda *_: None)
        yield


@pytest.mark.parametrize("batches", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_they_are_compiled_at_most_twice_whatever_the_batches(batches):
    variants = Variants()
    with launched_by(variants.launch):
        batches_of_many_shapes(batches)
    assert variants.found.keys() == set(KERNELS)
    assert max(map(len, variants.found.values())) <= 2


TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
    int: "i32",
    float: "fp32",
}
KERNELS = [
    *("aliasing._alias", "biquads._multiply", "companding._compand", "distortion._distort", "distortion._measure"),
    *("fades._fade", "fades._join", "fades._silence", "fft._cut", "fft._join", "fft._multiply", "levels._add_at"),
    *("levels._at_rank", "levels._change_gain", "levels._divide", "levels._peak", "levels._rms", "limiter._limit"),
    *("loudness._add_up", "loudness._find_gain", "noise._colour", "noise._make", "quantization._quantize"),
    *("resample._cut", "resample._interpolate", "resample._limit_band", "rooms._add", "sounds._add"),
    *("sounds._find_gains", "splices._fade", "splices._read", "stft._add_up", "stft._cut", "stretch._find_anchors"),
    *("stretch._find_attacks", "stretch._find_peaks", "stretch._find_power", "stretch._turn", "trimming._add_up"),
    *("trimming._find_span", "windows._join", "windows._pad", "windows._roll", "windows._silence"),
]


def name_of(kernel) -> str:
    """Return the primitive's module and the kernel's name."""
    return f"{kernel.fn.__module__.split('.')[-2]}.{kernel.fn.__name__}"


@functools.cache
def launches():
    """Return each kernel with the types and constants that it is launched with, by name; several if these differ."""
    found = {}

    def record(kernel, grid, *arguments, **constants):
        kinds = [TYPES[getattr(each, "dtype", type(each))] for each in arguments]
        signature = dict(zip(kernel.arg_names, kinds)) | dict.fromkeys(kernel.arg_names[len(kinds) :], "constexpr")
        own = {name: value for name, value in constants.items() if name in kernel.arg_names}
        options = {name: value for name, value in constants.items() if name not in own}
        found.setdefault(name_of(kernel), {})[repr((signature, own))] = kernel, signature, own, options

    with launched_by(record):
        batches_of_many_shapes(4)
    return found


@pytest.mark.parametrize("capability", [75, *(pytest.param(each, marks=pytest.mark.slow) for each in (80, 90)), 100])
@pytest.mark.parametrize("name", KERNELS)
def test_they_compile_for_real_cards(name, capability):
    for kernel, signature, constants, options in launches()[name].values():
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert compiled.asm["cubin"]


REDUCED = "0f3F22F983"
"""2 / pi, with which a cosine begins, whose own fused products are meant."""


@pytest.mark.parametrize("name", ["companding._compand", "stft._cut", "stretch._find_anchors"])
def test_what_rounds_products_is_compiled_without_fused_ones(name):
    [(kernel, signature, constants, options)] = launches()[name].values()
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = [
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options={**options, **more}).asm["ptx"]
        for more in ({}, {"enable_fp_fusion": True})
    ]
    assert ["fma" in ptx.partition(REDUCED)[0] for ptx in compiled] == [False, True]
