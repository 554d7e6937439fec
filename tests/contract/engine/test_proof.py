"""Loops and kernels prove themselves before use; what is wrong is switched off with a warning, and torch runs."""

import json
import re
import threading
import warnings

import numpy as np
import pytest
import torch

from audioaug import Chain, build_device, ops
from audioaug.doctor import _run_loop, main
from audioaug.dsp import dispatch, noise, windows
from audioaug.dsp.biquads import cascade
from audioaug.engine import proof
from audioaug.engine.device import run_once
from audioaug.errors import AudioaugWarning
from audioaug.ops.lambda_ import on_device
from audioaug.writing import cache_file
from tests.unit.dsp.both_ways import by_torch, not_installed

RATE = 16000
CHAIN = Chain([ops.Gain(p=1.0), ops.AddGaussianNoise(p=1.0), ops.LowPassFilter(p=0.5)], RATE)
CPU = torch.device("cpu")
NOISE, SHAPE = noise.with_gaussian, (2, 1, 12000)


@pytest.fixture(autouse=True)
def as_on_a_new_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(proof, "_passed", set())
    monkeypatch.setattr(dispatch, "_off", set())


@pytest.fixture
def checked(monkeypatch):
    """The ops that are checked, each time that one is."""
    seen, check = [], proof.check
    monkeypatch.setattr(proof, "check", lambda chain, *more: (seen.append(chain.ops[0].name), check(chain, *more))[1])
    return seen


def augment(chain=CHAIN):
    return build_device(chain)(torch.ones(3, 1, 4000) * 0.1, key=[1, 2, 3])


def replace_loop(monkeypatch, primitive, function):
    """Let a primitive have this loop."""
    monkeypatch.setitem(primitive._declared, "loop", [(function, None)])


def wrong(x_RCT, *_, **__):
    return x_RCT * 1.01


def raising(*_, **__):
    raise RuntimeError("cannot be compiled.\nDetails follow.")


def hollow(x_RCT, *_, **__):
    return x_RCT[..., :-1]


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        (wrong, r"differs by [\d.]+ of the peak"),
        (lambda x_RCT, *_, **__: x_RCT * torch.nan, "differs by nan of the peak"),
        (raising, r"raises RuntimeError \(cannot be compiled\)"),
        (hollow, "gives 11999 samples instead of 12000"),
    ],
    ids=["wrong", "nan", "raises", "shorter"],
)
def test_an_implementation_that_is_wrong_is_switched_off_with_one_warning(monkeypatch, loop, reason):
    expected = by_torch(augment)
    replace_loop(monkeypatch, NOISE, loop)
    with pytest.warns(AudioaugWarning) as caught:
        found = augment()
    assert torch.equal(found, expected) or torch.allclose(found, expected, atol=1e-6)
    [warning] = caught
    assert str(warning.message).startswith("dsp.noise.with_gaussian is switched off on cpu: ")
    assert re.search(reason, str(warning.message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        augment()
        augment(Chain([ops.AddGaussianNoise(p=1.0)], RATE))


def test_only_what_is_wrong_is_switched_off(monkeypatch):
    replace_loop(monkeypatch, noise.gaussian, wrong_noise)
    found = proof.check(Chain([ops.AddColorNoise(p=1.0)], RATE), SHAPE, CPU, run_once)
    assert [name for name, _ in found.wrong] == ["dsp.noise.gaussian"] and dispatch._off == {(noise.gaussian, "loop")}
    assert set(found.used) > {"dsp.noise.gaussian"}


def test_loops_stay_on_when_kernels_are_switched_off(monkeypatch):
    def launch(*_, **__):
        raise RuntimeError("Failed to find C compiler.")

    pytest.importorskip("triton")
    x_BCT = torch.ones(2, 1, 4000)
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setitem(dispatch.FASTEST, "cpu", "kernel")
        on_a_gpu.setattr(dispatch, "launch", launch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AudioaugWarning)  # one for each kernel
            augment()
    assert NOISE in dispatch.switched_off("kernel") and not dispatch.switched_off("loop")
    with dispatch.used() as used:
        build_device(CHAIN)(x_BCT, key=[1, 2])
    assert (NOISE, "loop") in used


def test_memory_that_runs_out_switches_nothing_off(monkeypatch, checked):
    def too_large(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    replace_loop(monkeypatch, NOISE, too_large)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        augment()
    assert "AddGaussianNoise" in checked and not dispatch._off


def test_threads_prove_one_after_the_other(monkeypatch):
    entered, overlapped, check = threading.Event(), [], proof.check
    other = threading.Thread(target=lambda: proof.prove([ops.LowPassFilter()], RATE, CPU, 1, run_once))

    def slow_check(chain, *more):
        if chain.ops[0].name == "LowPassFilter":
            entered.set()
        else:
            other.start()
            overlapped.append(entered.wait(0.2))  # as it is while the torch definitions run, for all threads
        return check(chain, *more)

    monkeypatch.setattr(proof, "check", slow_check)
    proof.prove([ops.Gain()], RATE, CPU, 1, run_once)
    other.join()
    assert overlapped == [False] and entered.is_set() and len(proof._passed) == 2


def test_torchs_default_device_changes_nothing():
    torch.set_default_device("meta")  # as "cuda" does, it keeps what has no device of its own off the CPU
    try:
        module = build_device(Chain([ops.Gain(p=1.0), ops.AddGaussianNoise(p=1.0)], RATE))
        y_BCT = module(torch.full((2, 1, 4000), 0.1, device="cpu"), key=[1, 2], lengths=[4000, 3000])
    finally:
        torch.set_default_device(None)
    assert y_BCT.device == CPU and y_BCT[0].all() and not y_BCT[1, :, 3000:].any()


def wrong_noise(key_R, channels, samples):
    return torch.zeros(len(key_R), channels, samples)


@pytest.mark.parametrize("op", [ops.Gain(p=1.0), ops.Lambda(transform=on_device(lambda x, rate: x)(lambda x, rate: x))])
def test_what_runs_only_where_clips_are_padded_is_proven_too(monkeypatch, op):
    replace_loop(monkeypatch, windows.silence_past_ends, raising)
    x_BCT, module = torch.ones(2, 1, 4000) * 0.1, build_device(Chain([op], RATE))
    with pytest.warns(AudioaugWarning, match=r"silence_past_ends is switched off on cpu: its compiled form raises"):
        y_BCT = module(x_BCT, key=[1, 2], lengths=[4000, 3000])
    assert not y_BCT[1, :, 3000:].any() and y_BCT[:, :, :3000].all()


def test_what_has_passed_is_not_run_again_in_this_process_or_another(monkeypatch, checked):
    augment()
    assert sorted(checked) == ["AddGaussianNoise", "Gain", "Identity", "LowPassFilter"]
    augment()
    monkeypatch.setattr(proof, "_passed", set())  # another process
    augment()
    assert len(checked) == 4
    augment(Chain([ops.HighPassFilter(), ops.Gain()], RATE))
    assert checked[4:] == ["HighPassFilter"]


@pytest.mark.parametrize("part", ["_version", "_sources"])
def test_with_other_versions_all_is_run_again(monkeypatch, checked, part):
    augment()
    monkeypatch.setattr(proof, "_passed", set())
    monkeypatch.setattr(proof, part, lambda *_: "other")
    augment()
    assert len(checked) == 8
    assert len(json.loads(cache_file("proofs.json").read_text())) == 1


def test_what_has_failed_is_tried_again_by_another_process(monkeypatch, checked):
    replace_loop(monkeypatch, NOISE, raising)
    with pytest.warns(AudioaugWarning):
        augment()
    monkeypatch.setattr(proof, "_passed", set())
    monkeypatch.setattr(dispatch, "_off", set())
    with pytest.warns(AudioaugWarning):
        augment()
    assert checked.count("AddGaussianNoise") == 2


def test_what_passed_only_because_another_was_switched_off_is_not_kept(monkeypatch, checked):
    replace_loop(monkeypatch, NOISE, wrong)
    with pytest.warns(AudioaugWarning):
        augment()
    augment(Chain([ops.AddGaussianSNR(p=1.0)], RATE))  # by torch operations
    monkeypatch.setattr(proof, "_passed", set())
    monkeypatch.setattr(dispatch, "_off", set())
    with pytest.warns(AudioaugWarning, match="dsp.noise.with_gaussian is switched off"):
        augment(Chain([ops.AddGaussianSNR(p=1.0)], RATE))


@pytest.mark.parametrize("missing", ["", "gcc is missing"])
def test_without_a_c_compiler_kernels_are_run_by_each_process(monkeypatch, missing):
    checked = []
    monkeypatch.setattr(proof, "check", lambda chain, *_: checked.append(chain) or proof.Proof())
    monkeypatch.setattr(proof, "precompile", lambda calls, device: None)
    monkeypatch.setattr(proof, "missing_for_c", lambda: missing)
    for kind in ("loop", "kernel"):
        monkeypatch.setitem(dispatch.FASTEST, "cpu", kind)
        for _ in range(2):
            monkeypatch.setattr(proof, "_passed", set())
            proof.prove([ops.Gain()], RATE, CPU, 1, run_once)
    assert len(checked) == (3 if missing else 2)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": [[]]}'])
def test_a_damaged_file_is_ignored(checked, content):
    cache_file("proofs.json").parent.mkdir(parents=True)
    cache_file("proofs.json").write_text(content)
    augment()
    assert len(checked) == 4


def test_without_a_home_folder_nothing_is_kept(monkeypatch, checked):
    monkeypatch.setattr(proof, "cache_file", lambda name: None)
    augment()
    assert len(checked) == 4


def test_nothing_is_tried_where_only_torch_operations_run(checked):
    by_torch(augment)
    with not_installed("numba"):
        augment()
    assert not checked
    augment()
    assert checked


def test_an_op_that_fails_on_its_own_is_left_to_fail_where_it_is_used(monkeypatch):
    monkeypatch.setattr(ops.Gain, "batched", raising)
    found = proof.check(Chain([ops.Gain(p=1.0)], RATE), SHAPE, CPU, run_once)
    assert not found.ran and not found.wrong


def test_the_code_of_users_is_not_called(checked):
    called = []
    augment(
        Chain([ops.Lambda(transform=on_device(lambda x, rate: called.append(1) or x)(lambda x, rate: x), p=1.0)], RATE)
    )
    assert checked == ["Identity"] and len(called) == 1


def test_stereo_is_tried_on_its_own(checked):
    module = build_device(CHAIN)
    for channels in (1, 2, 3, 1):
        module(torch.ones(3, channels, 4000) * 0.1)
    assert len(checked) == 2 * 4


def test_another_sample_rate_is_tried_on_its_own(checked):
    module = build_device(CHAIN)
    for rate in (RATE, 2 * RATE, RATE):
        module(torch.ones(3, 1, 4000) * 0.1, sample_rate=rate)
    assert len(checked) == 2 * 4


def test_draws_do_not_depend_on_what_was_proven():
    first = build_device(CHAIN)
    first(torch.ones(3, 1, 4000) * 0.1)
    assert build_device(CHAIN).stream.number == first.stream.number + 1


def test_random_state_is_not_touched():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    augment()
    assert torch.equal(torch.get_rng_state(), before[0]) and np.array_equal(np.random.get_state()[1], before[1])


@pytest.mark.parametrize("error", [RuntimeError("Failed to find C compiler."), RuntimeError("Triton Error [CUDA]: x")])
def test_kernels_that_cannot_be_launched_are_switched_off(monkeypatch, error):
    def launch(*_, **__):
        raise error

    pytest.importorskip("triton")
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    monkeypatch.setattr(dispatch, "launch", launch)
    with pytest.warns(AudioaugWarning, match=r"is switched off on cpu: its compiled form raises RuntimeError"):
        found = augment()
    assert torch.allclose(found, by_torch(augment), atol=1e-6)


def test_kernels_of_unproven_ops_are_compiled_first(monkeypatch):
    compiled, gain, noise = [], ops.Gain(), ops.AddGaussianNoise()

    def prove(*of):
        proof.prove(of, RATE, CPU, 1, lambda chain, x_BCT: x_BCT)

    monkeypatch.setattr(proof, "precompile", lambda calls, device: compiled.append((len([*calls]), device)))
    prove(gain)
    assert not compiled
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    prove(gain)
    prove(gain, noise)
    prove(gain, noise)
    assert compiled == [(1, CPU), (1, CPU)]


def test_the_self_test_prints_all_and_fails_if_one_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(
        "audioaug.verify.self_test._all_ops", lambda: [ops.AddGaussianNoise(), ops.Gain(), ops.Reverse()]
    )
    with pytest.raises(SystemExit) as ended:
        main(["--self-test"])
    assert ended.value.code == 0 and "3 of 3 compiled implementations work on cpu." in capsys.readouterr().out
    replace_loop(monkeypatch, NOISE, wrong)
    with pytest.raises(SystemExit) as ended:
        main(["--self-test"])
    out = capsys.readouterr().out
    assert ended.value.code == 1 and "dsp.noise.with_gaussian" in out and "FAILED: it differs by" in out
    assert "3 of 4 compiled implementations work on cpu." in out


def test_doctor_reports_a_wrong_loop_though_torch_would_run_in_its_place(monkeypatch):
    assert "they agree" in _run_loop()
    replace_loop(monkeypatch, cascade.run, wrong)
    with pytest.raises(AssertionError, match=r"dsp\.biquads\.cascade\.run differs by"):
        _run_loop()


# Devices on which torch itself lacks operations


def test_ops_that_a_device_cannot_run_are_found_and_named(monkeypatch):
    monkeypatch.setattr(proof, "TRUSTED", {"cuda"})  # so the CPU is one of those
    calls = []

    def run(chain, x_BCT):
        calls.append(chain.ops[0].name)
        if chain.ops[0].name == "Limiter" and calls.count("Limiter") == 2:  # there
            raise NotImplementedError("aten::kthvalue is not implemented for it\nand so on")
        return x_BCT * (1.01 if calls.count("Shift") == 2 else 1.0)

    every = [ops.Gain(), ops.Limiter(), ops.Shift()]
    with pytest.warns(AudioaugWarning) as told:
        found = proof.unsupported(every, 16000, torch.device("cpu"), 1, run)
    assert found == {
        "Limiter": "raises NotImplementedError (aten::kthvalue is not implemented for it)",
        "Shift": "differs by 0.01 of the peak",
    }
    assert str(told[0].message) == f"Limiter runs on the CPU: on cpu it {found['Limiter']}."


def test_what_a_device_cannot_run_runs_on_the_cpu_instead(monkeypatch):
    chain = Chain([ops.Gain(p=1.0), ops.AddGaussianNoise(p=0.5), ops.LowPassFilter(p=1.0)], 16000)
    x, index = torch.randn(4, 1, 8000) * 0.1, range(4)
    expected = build_device(chain, seed=0)(x, key=index)
    monkeypatch.setattr("audioaug.engine.device.TRUSTED", {"cuda"})
    monkeypatch.setattr("audioaug.engine.device.unsupported", lambda *_: {"AddGaussianNoise": "raises"})
    moved = []
    to_cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda each: moved.append(each.shape) or to_cpu(each))
    assert torch.equal(build_device(chain, seed=0)(x, key=index), expected)
    assert x.shape in moved  # from a device that is the CPU, too
