"""The random numbers of the process belong to the training run: nothing here may move them on."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from audioaug.core import Chain, Feature, why_not_in_worker, why_not_on_device
from audioaug.engine import build_cpu, build_device
from audioaug.engine.torch_audiomentations import has_counterpart, why_unavailable
from tests.helpers.op_examples import OPS, example

RATE = 16000


def state():
    python, numpy, tensor = random.getstate(), np.random.get_state(), torch.get_rng_state()
    return python, [part.tolist() if isinstance(part, np.ndarray) else part for part in numpy], tensor.tolist()


@pytest.fixture
def untouched():
    before = state()
    yield
    assert state() == before


def test_the_fixture_would_see_any_of_them():
    for step in (random.random, np.random.rand, lambda: torch.rand(1)):
        before = state()
        step()
        assert state() != before


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_declaring_drawing_and_both_builds(kind, untouched, speech, batch):
    chain = Chain([example(kind, p=1.0)], RATE)
    chain.draw(range(100))
    if not chain.why_not_cut(1):
        build_cpu(chain)(speech[0])
        build_cpu(chain)(speech[0])
    if not chain.why_not_cut(0):
        build_device(chain)(batch)


@pytest.mark.parametrize(
    "kind", [kind for kind in OPS if has_counterpart(example(kind))], ids=lambda kind: kind.__name__
)
def test_the_torch_audiomentations_engine(kind, untouched, batch):
    if why_unavailable():
        pytest.skip(why_unavailable())
    chain = Chain([example(kind, p=1.0)], RATE)
    result = build_device(chain, engine="torch-audiomentations")(batch)
    assert result.shape == batch.shape and result.isfinite().all()


def test_the_random_state_does_not_change_the_result_either(speech, batch):
    every = [example(kind, p=1.0) for kind in OPS if not issubclass(kind, Feature)]
    chain = Chain([op for op in every if not (why_not_on_device(op) or why_not_in_worker(op))], RATE)
    first = build_cpu(chain, seed=0)(speech[0]), build_device(chain, seed=0)(batch)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(99)
        np.random.seed(99)
        torch.manual_seed(99)
        assert np.array_equal(build_cpu(chain, seed=0)(speech[0]), first[0])
        assert torch.equal(build_device(chain, seed=0)(batch), first[1])
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


FIRST_USES = {
    "a reference that imports librosa": """
from audioaug import Chain, build_cpu, ops
build_cpu(Chain([ops.Trim(p=1.0)], 16000))(np.linspace(-0.5, 0.5, 16000, dtype=np.float32))
""",
    "the monitor's view": """
from audioaug.loader.monitor_outputs import View
View(None).close()
""",
    "the advisor's bars": """
import io, os
os.environ["TERM"] = "xterm"
sys.stderr = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})()
from audioaug.advise.progress import Progress
assert Progress()._bars is not None
""",
    "features": """
from audioaug import Chain, build_device, ops
import torch
build_device(Chain([ops.LogMel()], 16000))(torch.zeros(1, 9))
""",
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_what_is_imported_on_first_use_does_not_draw(use):
    """Rich draws from Python's generator when it is imported, and parts of librosa import it."""
    check = "import random, sys\nimport numpy as np\nbefore = random.getstate(), np.random.get_state()[1].tolist()\n"
    check += FIRST_USES[use] + "assert (random.getstate(), np.random.get_state()[1].tolist()) == before\n"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
