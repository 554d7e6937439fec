"""The demo audio, for all tests; a cache folder of theirs; and one thread for torch, since on busy cores its threads
wait for each other."""

import atexit
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from audioaug import ops  # noqa: F401  (fills the registry)
from audioaug.dsp import dispatch

torch.set_num_threads(1)
# From Python 3.14 on, the default cannot send what a test defines. Tests of start methods name theirs, and scripts that
# tests run have Python's default.
multiprocessing.set_start_method("fork")
# How long an example takes is the machine's: none is too slow.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker of pytest-xdist inherits the folder
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="audioaug-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def demo() -> Path:
    """The folder of the demo audio: speech, noise, rooms; 16 kHz mono."""
    return Path(__file__).parents[1] / "datasets" / "demo"


@pytest.fixture(autouse=True)
def nothing_stays_switched_off(monkeypatch) -> None:
    """Let what a test switches off be off for that test only."""
    monkeypatch.setattr(dispatch, "_off", set())


@pytest.fixture
def as_on_a_gpu(monkeypatch) -> None:
    """Run torch operations on a CPU, as on a GPU, where else loops run. (A GPU keeps its kernels.)"""
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "torch")


@pytest.fixture(params=["by loops", "by operations"])
def either_way(request) -> str:
    """Run the test with loops, as on a CPU, and without, as on a GPU; tell which."""
    if request.param == "by operations":
        request.getfixturevalue("as_on_a_gpu")
    return request.param
