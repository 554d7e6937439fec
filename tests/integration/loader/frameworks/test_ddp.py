"""Two processes train with what docs/how-to/ddp.md says: together they see the audio of one plain Loader."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.loader.frameworks.how_to import assert_no_clip_twice, assert_same_clips, plain, speech

ROOT = Path(__file__).parents[4]


pytestmark = pytest.mark.timeout(600)  # some seconds where nothing else runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Let torchrun start the page's program; return what each process saw."""
    out = tmp_path_factory.mktemp("ddp")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.integration.loader.frameworks.ddp_run", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stderr
    return [torch.load(out / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_processes_together_match_a_single_one(runs, epoch):
    first, second = (run["trained"][2 * epoch : 2 * epoch + 2] for run in runs)
    assert_no_clip_twice(first, second)
    assert_same_clips(first + second, plain(speech(), epoch))


def test_epochs_differ_and_models_agree(runs):
    for run in runs:
        assert [len(batch) for batch in run["trained"]] == [16, 4, 16, 4]
        assert_no_clip_twice(run["trained"][:2], run["trained"][2:])
        assert run["workers"] == 2
    assert all(map(torch.equal, runs[0]["weights"], runs[1]["weights"]))
