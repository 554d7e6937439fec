"""Which implementation of a primitive runs, and rows in chunks."""

import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from audioaug.dsp import dispatch
from audioaug.dsp.dispatch import CACHED, backend, implementation_for, map_chunks, primitive
from audioaug.errors import UsageError
from audioaug.measure import trace
from tests.unit.dsp.both_ways import not_installed


@primitive
def named(x, more=0):
    """Return which implementation runs."""
    return "torch"


@named.loop(when=lambda x, more=0: more > 1)
def _by_loop_of_many(x, more=0):
    return "loop of many"


@named.loop(when=lambda x, more=0: more > 0)
def _by_loop(x, more=0):
    return "loop"


@named.kernel()
def _by_kernel(x, more=0):
    return "kernel"


X = torch.zeros(2, 1, 3)


def test_the_first_implementation_whose_condition_holds_runs():
    assert [named(X, more) for more in (0, 1, 2)] == ["torch", "loop", "loop of many"]
    assert named(X, more=2) == "loop of many" and named.definition(X, 2) == "torch"


def test_the_type_of_device_decides(monkeypatch):
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    monkeypatch.setattr(dispatch, "kernels_are_usable", lambda: True)
    assert named(X) == "kernel"
    monkeypatch.setattr(dispatch, "kernels_are_usable", lambda: False)
    assert named(X) == "torch"
    assert named(torch.empty(2, device="meta"), 1) == "torch"


def test_gradients_and_tracers_need_torch_operations():
    assert named(X.clone().requires_grad_(), 1) == "torch"
    with torch.no_grad():
        assert named(X.clone().requires_grad_(), 1) == "loop"
    found = []
    trace(lambda: found.append(named(X, 1)), torch.device("cpu"))
    assert found == ["torch"]


def test_torch_compile_needs_torch_operations():
    @primitive
    def changed(x):
        return x + 1

    @changed.loop()
    def _changed_by_loop(x):
        return x + 2

    compiled = torch.compile(lambda x: 2 * changed(x), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), 2 * (X + 1)) and torch.equal(changed(X), X + 2)


def test_without_numba_the_definition_runs():
    assert implementation_for(X) == "loop"
    with not_installed("numba"):
        assert implementation_for(X) == "torch" and named(X, 1) == "torch"
    assert implementation_for(X) == "loop"


def test_the_backend_torch_leaves_the_definitions_in_all_threads():
    found = []
    with backend("torch"):
        thread = threading.Thread(target=lambda: found.append(named(X, 1)))
        thread.start()
        thread.join()
        with backend("auto"):
            found.append(named(X, 1))
        found.append(named(X, 1))
    assert found == ["torch", "loop", "torch"] and named(X, 1) == "loop"


def test_a_backend_ends_with_an_exception_and_an_unknown_one_is_an_error():
    with pytest.raises(ZeroDivisionError), backend("torch"):
        1 / 0  # noqa: B018
    with pytest.raises(UsageError, match=r"'tensorflow', which is not a backend\. Known: auto, torch\."):
        with backend("tensorflow"):
            pass
    assert named(X, 1) == "loop"


CHILD = """
import torch
from audioaug.dsp.dispatch import implementation_for
print(implementation_for(torch.zeros(1)))
"""


def test_the_environment_chooses_the_backend(monkeypatch):
    found = {}
    for name in ("auto", "torch", "numba"):
        monkeypatch.setenv("AUDIOAUG_BACKEND", name)
        ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=200)
        found[name] = ran.stdout.strip() or ran.stderr.strip().splitlines()[-1]
    wrong = "audioaug.errors.UsageError: AUDIOAUG_BACKEND is 'numba', which is not a backend. Known: auto, torch."
    assert found == {"auto": "loop", "torch": "torch", "numba": wrong}


def test_definitions_run_where_compilers_are_told_not_to_compile(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    child = f"{CHILD}\nfrom audioaug.dsp import dispatch\nprint(dispatch.triton_compiles())"
    ran = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=200, check=True)
    assert ran.stdout == "torch\nFalse\n"


# Rows in chunks


ROWS = 7


def chunk_sizes(samples, x=None):
    """Return how many rows each chunk has."""
    x, seen = torch.arange(float(ROWS)) if x is None else x, []

    def doubled(some):
        seen.append(len(range(ROWS)[some]))
        return 2 * x[some]

    assert map_chunks(doubled, x, samples).shape == x.shape
    return seen


@pytest.mark.parametrize(
    ("samples", "sizes"), [(0, [7]), (1, [7]), (CACHED // 3, [3, 3, 1]), (CACHED, [1] * 7), (2 * CACHED, [1] * 7)]
)
def test_chunks_are_all_rows(samples, sizes):
    x = torch.arange(float(ROWS))
    assert map_chunks(lambda some: 2 * x[some], x, samples).equal(2 * x)
    assert chunk_sizes(samples) == sizes


@pytest.mark.parametrize(
    ("samples", "sizes"), [(CACHED // 5, [4, 3]), (CACHED // 3, [2, 2, 2, 1]), (CACHED, [2, 2, 2, 1])]
)
def test_each_thread_gets_as_many_rows_of_a_chunk(samples, sizes, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert chunk_sizes(samples) == sizes


def test_all_rows_are_one_chunk_for_tracers_and_other_devices():
    try:
        with FakeTensorMode():
            2 * torch.empty(2, device="cuda")[:1]
    except RuntimeError:
        pytest.skip(f"without a GPU, torch {torch.__version__} has no fake tensors on one")
    with FakeTensorMode():
        assert chunk_sizes(2 * CACHED, torch.empty(ROWS, device="cuda")) == [ROWS]
    traced = []
    trace(lambda: traced.extend(chunk_sizes(2 * CACHED)), torch.device("cpu"))
    assert traced == [ROWS]
