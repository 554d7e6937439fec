"""Loops do what their torch definitions do in each op, are compiled once, and run in threads and processes."""

import multiprocessing
import threading

import numpy as np
import pytest
import torch
from llvmlite import ir
from numba.core.errors import TypingError
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug import Chain, build_device, internals
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.dsp import loops
from audioaug.dsp.biquads.cascade import LANES, SECTION_VALUES, TILE, _filter, _filter_rows
from audioaug.dsp.noise import gaussian
from audioaug.dsp.resample import _read_at_steps, _table_of_taps
from audioaug.verify.material import variants
from tests.unit.dsp.both_ways import LENGTHS, largest_difference

RATE = 16000


# Each op


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_op_does_the_same_without_loops(name, lengths):
    for op in variants(REGISTRY[name]):
        if not why_not_on_device(op):
            assert largest_difference(op, lengths) <= 2e-5, op


def test_gradients_and_tracers_find_operations(monkeypatch):
    ran = []
    monkeypatch.setattr(loops, "run", lambda loop, *_: ran.append(loop))
    monkeypatch.setattr("audioaug.engine.device.prove", lambda *_: None)  # nothing is computed
    module = build_device(Chain([REGISTRY["LowPassFilter"](p=1.0)], RATE))
    prepared = module.prepare(module.chain.draw(range(2)), (2, 1, 4000))
    x = torch.randn(2, 1, 4000)
    module.augment(x.clone().requires_grad_(), prepared)[0].sum().backward()
    make_fx(lambda x: module.augment(x, prepared)[0])(x)
    assert not ran
    module.augment(x, prepared)
    assert ran == [_filter_rows]


# Vectors


class _Context:
    get_dummy_value = staticmethod(lambda: None)


@pytest.mark.parametrize("features", [{}, {"avx512f": True}, {"avx512f": True, "avx512vbmi2": True}], ids=len)
@pytest.mark.parametrize("has_attributes", [True, False])
def test_vectors_are_wide_where_that_slows_nothing_down(features, has_attributes, monkeypatch):
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: features)
    if not has_attributes:
        monkeypatch.setattr("audioaug.internals.WIDE_VECTORS", "what llvmlite writes another way")
    internals._vectors_can_be_wide.cache_clear()
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), ()), "function")
    try:
        loops._prefer_wide_vectors(_Context, ir.IRBuilder(function.append_basic_block()), None, ())
    finally:
        internals._vectors_can_be_wide.cache_clear()
    assert ("prefer-vector-width" in str(function)) == (has_attributes and len(features) == 2)


def test_a_processor_that_llvm_does_not_know_gets_its_usual_vectors(monkeypatch):
    def refuse():
        raise RuntimeError("no features here")

    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", refuse)
    loops._prefer_wide_vectors(_Context, None, None, ())


def test_a_loop_with_wide_vectors_is_a_plain_function_too():
    results = []
    for run in (_filter.function, _filter):
        tile, own = np.linspace(-1.0, 1.0, TILE * LANES), np.linspace(0.1, 0.5, SECTION_VALUES * LANES)
        run(tile, own)
        results.append(tile)
    np.testing.assert_allclose(*results, rtol=1e-9)


def test_weighted_taps_are_what_the_plain_function_returns():
    random, table_SP = np.random.default_rng(1), _table_of_taps().numpy()
    fine_N, step = random.normal(size=500).astype(np.float32), int(0.7123 * 2**36)
    found_K, wanted_K = np.empty((2, 300), np.float32)
    _read_at_steps(fine_N, 0, step, table_SP, found_K)
    _read_at_steps.function(fine_N, 0, step, table_SP, wanted_K)
    np.testing.assert_allclose(found_K, wanted_K, atol=2e-6)


@pytest.mark.parametrize("unsuited", [lambda table_SP: table_SP.astype(np.float64), np.asfortranarray])
def test_weighted_taps_refuse_what_they_would_misread(unsuited):
    table_SP = unsuited(_table_of_taps().numpy())
    with pytest.raises(TypingError):
        _read_at_steps(np.ones(500, np.float32), 0, 2**36, table_SP, np.empty(300, np.float32))


def test_a_thread_waits_until_another_one_has_registered_all(monkeypatch):
    entered, may_go_on, registered = threading.Event(), threading.Event(), []

    def register(numba, *declared):
        entered.set()
        may_go_on.wait(60)
        registered.append(declared)

    monkeypatch.setattr(loops, "_register", register)
    monkeypatch.setattr(loops, "_pending", [("one",), ("another",)])
    seen = []
    first = threading.Thread(target=loops._numba)
    second = threading.Thread(target=lambda: seen.append((loops._numba(), len(registered))))
    first.start()
    entered.wait(60)
    second.start()
    second.join(0.1)
    assert not seen
    may_go_on.set()
    first.join()
    second.join()
    assert seen[0][1] == 2 and registered == [("another",), ("one",)]


def test_what_could_not_be_registered_is_tried_again(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loops, "_register", interrupted)
    monkeypatch.setattr(loops, "_pending", [("one",)])
    with pytest.raises(KeyboardInterrupt):
        loops._numba()
    assert loops._pending == [("one",)]


# Threads and processes


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("team", ["torch's own", "others"])
def test_every_row_is_done_once(team, monkeypatch):
    if team == "others":
        monkeypatch.setattr(loops, "_team", lambda: None)
    done = []
    loops.run(lambda first, last: done.append((first, last)), 10)
    assert sorted(row for first, last in done for row in range(first, last)) == list(range(10))
    assert len(done) == torch.get_num_threads()


@pytest.mark.usefixtures("threads")
def test_errors_in_a_thread_are_raised():
    def fails(first: int, last: int) -> None:
        if last == 10:
            raise ValueError("the last row")

    with pytest.raises(ValueError, match="the last row"):
        loops.run(fails, 10)


def _noise_of_a_child(queue):
    torch.set_num_threads(1)  # as a DataLoader's worker does
    queue.put(gaussian(torch.arange(4), 1, 5000).numpy())


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_child_of_a_process_that_ran_loops_runs_them_too(start):
    torch.set_num_threads(2)
    mine = gaussian(torch.arange(4), 1, 5000).numpy()
    torch.set_num_threads(1)
    context = multiprocessing.get_context(start)
    queue = context.SimpleQueue()
    child = context.Process(target=_noise_of_a_child, args=(queue,))
    child.start()
    assert np.array_equal(queue.get(), mine)
    child.join()
