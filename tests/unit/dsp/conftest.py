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
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        _reload_kernels()
    yield launched
    _reload_kernels()
