"""Kernels are compiled before a proof launches them: all of them, each once, for the types they are launched with."""

import threading
from dataclasses import replace
from functools import partial

import pytest
import torch

from audioaug import Chain, ops
from audioaug.dsp import dispatch, precompile, windows
from audioaug.engine import proof
from audioaug.engine.device import run_once
from tests.unit.dsp.test_kernels import EVERY_KERNEL, launched_by

RATE, GPU, X = 16000, torch.device("cuda"), torch.ones(2, 1, 8)


@pytest.fixture
def compiled(monkeypatch):
    """What would be compiled: kernels, types of arguments, and constants."""
    found = []
    monkeypatch.setattr(precompile, "_compile", lambda device, *launch: found.append(variant(*launch)))
    monkeypatch.setattr(precompile, "_threads", lambda: 1)
    return found


def variant(kernel, arguments, constants):
    return kernel, tuple(getattr(each, "dtype", type(each)) for each in arguments), *sorted(constants.items())


def run(op, channels=1):
    return run_once(Chain([replace(op, p=1.0)], RATE), proof._small_batch((proof.EXAMPLES, channels, proof.SAMPLES)))


def silence(samples=100):
    return windows.silence_past_ends(torch.ones(2, 1, samples), torch.tensor([50, 100]))


def test_all_that_a_proof_launches_is_compiled_once(compiled):
    launched, calls = set(), [partial(run, op, channels) for op in EVERY_KERNEL for channels in (1, 2)]
    precompile.precompile(calls, GPU)
    with launched_by(lambda kernel, grid, *arguments, **constants: launched.add(variant(kernel, arguments, constants))):
        for call in calls:
            call()
    assert {*compiled} == launched and len(compiled) == len(launched) > len(EVERY_KERNEL)


def test_each_type_and_constant_is_compiled(compiled):
    kernel = object()
    launches = [(1, {}), (1, {}), (2, {}), (2.0, {}), (1, {"BLOCK": 1}), (1, {"BLOCK": 2})]
    calls = [partial(dispatch.launch, kernel, (1,), X, number, **constants) for number, constants in launches]
    precompile.precompile(calls, GPU)
    fused = {"enable_fp_fusion": True}
    assert [(kinds[1], dict(constants)) for _, kinds, *constants in compiled] == [
        (int, fused),
        (float, fused),
        (int, {"BLOCK": 1, **fused}),
        (int, {"BLOCK": 2, **fused}),
    ]


def test_what_fails_is_skipped(compiled):
    precompile.precompile([lambda: 1 / 0, silence], GPU)
    assert len(compiled) == 1 and not silence()[0, :, 50:].any()


def test_a_kernel_that_cannot_be_compiled_is_left_to_its_launch(monkeypatch):
    tried = []

    def compile_it(device, kernel, *_):
        tried.append(kernel)
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(precompile, "_compile", compile_it)
    precompile.precompile([silence, partial(run, ops.Shift())], GPU)
    assert len(tried) > 1


def test_a_kernel_and_its_launcher_are_compiled_for_the_device(monkeypatch):
    devices, calls = [], []

    class Kernel:
        def warmup(self, *arguments, grid, **constants):
            calls.append((arguments, constants))
            return self

        @property
        def run(self):
            calls.append("launcher")

    monkeypatch.setattr(torch.cuda, "device", lambda device: devices.append(device) or pytest.MonkeyPatch.context())
    precompile._compile(GPU, Kernel(), (X, 2), {"BLOCK": 4})
    assert devices == [GPU] and calls == [((X, 2), {"BLOCK": 4}), "launcher"]


def test_other_threads_compute_meanwhile(compiled):
    found = []

    def call():
        thread = threading.Thread(target=lambda: found.append(silence()))
        thread.start()
        thread.join()
        silence()

    precompile.precompile([call], GPU)
    assert len(compiled) == 1 and not found[0][0, :, 50:].any()


def test_threads_that_collect_launches_at_the_same_time_leave_nothing_behind(compiled):
    inside, done = threading.Event(), threading.Event()

    def other():
        with dispatch.launched_by(lambda *_, **__: None):
            inside.set()
            done.wait()

    thread = threading.Thread(target=other)
    with dispatch.launched_by(lambda *_, **__: None):
        thread.start()
        inside.wait()
    done.set()  # it began later and ends later: what it found, and puts back, is not what holds here
    thread.join()
    assert not silence()[0, :, 50:].any()
