"""What tests of loops and of kernels share."""

import importlib
import pkgutil

import pytest
import torch

from audioaug import dsp
from audioaug.dsp import dispatch


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def threads(request):
    """Give torch that many threads for a while."""
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


def _reload_kernels():
    names = [module.name for module in pkgutil.walk_packages(dsp.__path__, "audioaug.dsp.")]
    for name in 2 * [name for name in names if name.endswith(".kernel")]:  # again for what one takes from a later one
        importlib.reload(importlib.import_module(name))


def _with_bool_mask(access, place):
    """Let Triton 3.9 interpret masks that depend on one number, too: it makes integers of these, and refuses them."""

    def run(builder, *given):
        given[place].data = given[place].data.astype(bool)
        return access(builder, *given)

    return run


@pytest.fixture
def interpreted(monkeypatch):
    """Run kernels on the CPU, interpreted; return the names of those that were launched."""
    launched, launch = [], dispatch.launch

    def run(kernel, *given, **more):
        launched.append(kernel.__name__)
        launch(kernel, *given, **more)

    monkeypatch.setitem(dispatch.FASTEST, "cpu", "kernel")
    monkeypatch.setattr(dispatch, "launch", run)
    monkeypatch.setattr("audioaug.engine.device.prove", lambda *_: None)  # which would run all of them once more
    builder = importlib.import_module("triton.runtime.interpreter").InterpreterBuilder
    for name, place in (("create_masked_load", 1), ("create_masked_store", 2)):
        monkeypatch.setattr(builder, name, _with_bool_mask(getattr(builder, name), place))
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        _reload_kernels()
    yield launched
    _reload_kernels()
