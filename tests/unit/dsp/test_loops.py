"""Loops do what their torch definitions do in each op, are compiled once, and run in threads and processes."""

import multiprocessing

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug import Chain, build_device
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.dsp import loops
from audioaug.dsp.biquads.cascade import _filter_rows
from audioaug.dsp.noise import gaussian
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
