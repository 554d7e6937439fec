"""Loops do what their twins of torch operations do: each op, sizes around a tile's, any number of threads."""

import functools
import multiprocessing
import re

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from audioaug import Chain, build_device
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.dsp import compiled, plans
from audioaug.dsp.convolution import convolve
from audioaug.dsp.loops.cascades import LANES, NUMBERS, TILE, _filter, filter_cascades
from audioaug.dsp.loops.turns import _find_power
from audioaug.dsp.noise import gaussian
from audioaug.dsp.windows import pieced, rolled
from audioaug.verify.material import variants
from tests.dsp.both_ways import LENGTHS, largest_difference, not_installed
from tests.dsp.test_biquads import ROWS, cookbook, expected, noise, sections

RATE = 16000
FILTERS = [("low_shelf", 42.0), ("peaking", 700.0), ("high_shelf", 7000.0)]


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def threads(request):
    """Give torch that many threads for a while."""
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


def without_loops(monkeypatch, work):
    """Return what work gives where no loop runs."""
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "ENABLED", False)
        return work()


# Each op


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_op_does_the_same_without_loops(name, lengths, monkeypatch):
    for op in variants(REGISTRY[name]):
        if not why_not_on_device(op):
            assert largest_difference(op, lengths, functools.partial(without_loops, monkeypatch)) <= 2e-5, op


def test_gradients_and_tracers_find_operations(monkeypatch):
    ran = []
    monkeypatch.setattr(compiled, "run", lambda loop, *_: ran.append(loop))
    module = build_device(Chain([REGISTRY["LowPassFilter"](p=1.0)], RATE))
    prepared = module.prepare(module.chain.draw(range(2)), (2, 1, 4000))
    x = torch.randn(2, 1, 4000)
    module.augment(x.clone().requires_grad_(), prepared)[0].sum().backward()
    make_fx(lambda x: module.augment(x, prepared)[0])(x)
    assert not ran
    module.augment(x, prepared)
    assert ran == [filter_cascades]


def test_without_numba_operations_run():
    assert compiled.fits(torch.zeros(1))
    with not_installed("numba"):
        assert not compiled.fits(torch.zeros(1))
    assert compiled.fits(torch.zeros(1))


# Filters


def filtered(x_RT, places):
    """Return rows filtered by ``FILTERS`` with the gains and qualities at these places of ``ROWS``."""
    numbers = np.stack([sections(kind, hz).numbers_RK()[places] for kind, hz in FILTERS], axis=1)
    return compiled.of_rows(filter_cascades, x_RT[:, None], torch.from_numpy(numbers).float())[:, 0]


@pytest.mark.parametrize("samples", [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE, 37 * TILE + 5])
@pytest.mark.parametrize("rows", [1, LANES - 1, LANES, LANES + 1, 3 * LANES + 2])
def test_rows_and_clips_of_any_number_and_length_equal_scipy(rows, samples):
    x_RT, places = noise(rows, 1, samples)[:, 0], np.arange(rows) % len(ROWS)
    result_RT = filtered(torch.from_numpy(x_RT).float(), places).numpy()
    for row, clip in enumerate(x_RT.astype(np.float32).astype(np.float64)):
        wanted = expected([cookbook(kind, hz, *ROWS[places[row]]) for kind, hz in FILTERS], clip)
        assert np.abs(result_RT[row] - wanted).max() < 2e-6 * max(np.abs(wanted).max(), np.abs(clip).max())


def test_a_filter_that_rings_for_minutes_loses_no_digits():
    each = sections("peaking", 1.0, [(18.0, 5.0)])
    x_RT = noise(1, 1, 400_000)[:, 0]
    numbers = torch.from_numpy(each.numbers_RK()).float()[:, None]
    result_RT = compiled.of_rows(filter_cascades, torch.from_numpy(x_RT).float()[:, None], numbers)[:, 0]
    wanted = expected([cookbook("peaking", 1.0, 18.0, 5.0)], x_RT[0])
    assert np.abs(result_RT[0].numpy() - wanted).max() < 2e-6 * np.abs(wanted).max()


def test_filters_come_to_rest_in_silence():
    numbers_NL = np.zeros((NUMBERS, LANES))
    numbers_NL[0], numbers_NL[3:5], numbers_NL[5:] = 1.0, [[-1.9], [0.95]], [[1e-199], [-1e-199]]
    for _ in range(20):
        _filter(np.zeros(TILE * LANES), numbers_NL.ravel(), 1)
    assert not numbers_NL[5:].any()


def test_a_row_that_is_not_a_number_spoils_no_other():
    x_RT = torch.randn(LANES, 200)
    x_RT[3, 50] = torch.nan
    result_RT = filtered(x_RT, np.zeros(LANES, dtype=int))
    assert result_RT[3].isnan().sum() == 150 and not result_RT[[0, 1, 2, *range(4, LANES)]].isnan().any()


def test_a_result_may_take_the_place_of_the_samples():
    x_RCT, numbers = torch.randn(len(ROWS), 1, 500), torch.from_numpy(sections("peaking", 700.0).numbers_RK()).float()
    wanted = compiled.of_rows(filter_cascades, x_RCT, numbers[:, None])
    assert compiled.of_rows(filter_cascades, x_RCT, numbers[:, None], out=x_RCT) is x_RCT
    assert torch.equal(x_RCT, wanted)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("taps", [1, 2, 15, 16, 17, 128])
@pytest.mark.parametrize("samples", [1, 2047, 2048, 5000])
def test_convolution_with_few_taps_is_the_same(samples, taps, monkeypatch):
    x_RCT, taps_R1L = torch.randn(5, 2, samples), torch.randn(5, 1, taps)
    found, wanted = convolve(x_RCT, taps_R1L), without_loops(monkeypatch, lambda: convolve(x_RCT, taps_R1L))
    assert found.shape == wanted.shape and (found - wanted).abs().max() < 5e-6 * taps


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("taps", [1, 2, 500, 4096, 9000])
@pytest.mark.parametrize("samples", [1, 1000, 50_000])
def test_convolution_by_spectra_is_the_same(samples, taps, monkeypatch):
    x_RCT, taps_NCL, which_R = torch.randn(5, 2, samples), torch.randn(3, 2, taps), torch.tensor([0, 2, 2, 1, 0])
    for start, samples_out in ((0, None), (0, samples), ((taps - 1) // 2, samples), (taps - 1, 1)):
        for few in (taps_NCL, taps_NCL[:, :1]):
            work = functools.partial(convolve, x_RCT, few, which_R, start, samples_out)
            found, wanted = work(), without_loops(monkeypatch, work)
            assert found.shape == wanted.shape and (found - wanted).abs().max() < 1e-5 * taps**0.5


def test_without_plans_of_ffts_operations_run(monkeypatch):
    x_RCT, taps_NCL, which_R = torch.randn(3, 1, 1000), torch.randn(2, 1, 300), torch.tensor([0, 1, 0])
    ran, wanted = [], convolve(x_RCT, taps_NCL, which_R)
    monkeypatch.setattr(plans, "library", lambda: None)
    monkeypatch.setattr(compiled, "run", lambda loop, *_: ran.append(loop))
    assert torch.allclose(convolve(x_RCT, taps_NCL, which_R), wanted, atol=1e-4) and not ran


def test_a_plan_is_made_once_and_one_that_cannot_be_is_an_error():
    assert plans.library() is None or plans.plan(512) == plans.plan(512)
    with pytest.raises(RuntimeError, match="FFT of -1 numbers"):
        plans.plan(-1)


# Noise and pieces


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("samples", [1, 2, 17, 20_000])
def test_noise_is_the_same(samples, monkeypatch):
    key_R = torch.tensor([0, 1, 2**52 - 1, 123_456_789, 5])
    found, wanted = gaussian(key_R, 2, samples), without_loops(monkeypatch, lambda: gaussian(key_R, 2, samples))
    assert found.shape == wanted.shape == (5, 2, samples)
    assert (found - wanted).abs().max() < 2e-6


@pytest.mark.usefixtures("threads")
def test_rows_are_put_together_of_the_same_pieces(monkeypatch):
    x_RCT = torch.randn(4, 2, 3000)
    begin_RK = torch.tensor([[0, 100, 100, 2900], [0, 0, 3000, 5000], [0, 1, 2, 3], [0, 600, 1200, 1800]])
    by_RK = torch.tensor([[0, 50, -50, 2900], [-4000, 4000, 0, 0], [10, -10, 0, 3], [-2900, 900, 0, -1]])
    for wanted in (None, 1000, 5000):
        found = pieced(x_RCT, begin_RK, by_RK, wanted)
        assert torch.equal(found, without_loops(monkeypatch, functools.partial(pieced, x_RCT, begin_RK, by_RK, wanted)))


def test_power_is_the_same_to_the_last_digit():
    """... for which of two neighbours is louder must not depend on the way."""
    here_CNF = torch.randn(2, 5, 700, dtype=torch.complex64)
    power_NF = np.empty((5, 700), np.float32)
    _find_power(here_CNF.numpy(), power_NF)
    assert np.array_equal(power_NF, (here_CNF.real.square() + here_CNF.imag.square()).sum(0))


def test_rows_are_rolled_the_same(monkeypatch):
    x_RCT, by_R, length_R = torch.randn(4, 2, 3000), torch.tensor([0, 1, 700, 2999]), torch.tensor([3000, 1, 700, 2999])
    found, wanted = rolled(x_RCT, by_R, length_R), without_loops(monkeypatch, lambda: rolled(x_RCT, by_R, length_R))
    for row, length in enumerate(length_R):
        assert torch.equal(found[row, :, :length], wanted[row, :, :length])


# Threads and processes


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("team", ["torch's own", "others"])
def test_every_row_is_done_once(team, monkeypatch):
    if team == "others":
        monkeypatch.setattr(compiled, "_team", lambda: None)
    done = []
    compiled.run(lambda first, last: done.append((first, last)), 10)
    assert sorted(row for first, last in done for row in range(first, last)) == list(range(10))
    assert len(done) == torch.get_num_threads()


@pytest.mark.usefixtures("threads")
def test_what_goes_wrong_in_a_thread_is_raised():
    def fails(first: int, last: int) -> None:
        if last == 10:
            raise ValueError("the last row")

    with pytest.raises(ValueError, match="the last row"):
        compiled.run(fails, 10)


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


@pytest.mark.skipif(plans.library() is None, reason="torch has no MKL here")
def test_the_fft_is_called_as_the_function_with_more_arguments_that_it_is_in_c() -> None:
    """Called as one of two arguments, it crashed Python with torch 2.4 (the MKL of 2.11 does not mind)."""
    numba = pytest.importorskip("numba")
    from audioaug.dsp.loops.transforms import to_spectrum

    @numba.njit
    def transform(plan, x):
        return to_spectrum(plan, x.ctypes.data)

    x = np.zeros(66, dtype=np.float32)
    x[0] = 1.0
    assert transform(plans.plan(64), x) == 0 and np.array_equal(x[:66:2], np.ones(33))
    [code] = transform.inspect_llvm().values()
    assert re.search(r"call i64 \(i64, i64, \.\.\.\)\s+@DftiComputeForward", code)
