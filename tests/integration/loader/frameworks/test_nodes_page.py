"""The job of docs/how-to/slurm.md trains with the program of docs/how-to/nodes.md, on two nodes and then on one.

``srun`` and ``scontrol`` are small scripts here, and both nodes are this machine; the rest is what the pages say.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.loader.frameworks.how_to import PAGES, assert_no_clip_twice, assert_same_clips, plain, speech
from tests.integration.loader.material import run_programs

LIMIT = 200
"""Seconds that a job may take; about 25 where nothing else runs."""

SRUN = """#!/bin/bash
[[ "$1 $2" == "--cpus-per-task=2 --kill-on-bad-exit=1" ]] || exit 2
shift 2
for ((node = 0; node < SLURM_NNODES; node++)); do "$@" & done
for job in $(jobs -p); do wait "$job" || exit 1; done
"""
SCONTROL = """#!/bin/bash
[[ "$*" == "show hostnames node[1-$SLURM_NNODES]" ]] || exit 2
for ((node = 0; node < SLURM_NNODES; node++)); do echo localhost; done
"""

pytestmark = pytest.mark.timeout(3 * LIMIT)


def submit(folder: Path, nodes: int) -> list[list[torch.Tensor]]:
    """Run the page's job with one process a node; return the batches that the model of each saw."""
    variables = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "SLURM_JOB_ID": str(os.getpid() + nodes),
        "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
        "SLURM_NNODES": str(nodes),
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_CPUS_PER_TASK": "2",
    }
    run_programs([["bash", "train.sbatch"]], LIMIT, folder, **variables)
    return [torch.load(folder / f"{nodes} {rank}.pt") for rank in range(nodes)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[torch.Tensor]]]:
    """Return what was seen in a job on two nodes, and in one on a single node that resumes from its last checkpoint."""
    folder = tmp_path_factory.mktemp("job")
    [script] = re.findall(r'```bash title="train.sbatch"\n(.*?)```', (PAGES / "slurm.md").read_text(), re.DOTALL)
    program = "from tests.integration.loader.frameworks.nodes_page_run import main\n\nmain()\n"
    for name, text in {"train.sbatch": script, "train.py": program, "srun": SRUN, "scontrol": SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    subprocess.run(["bash", "-n", "train.sbatch"], cwd=folder, check=True)
    return [submit(folder, nodes) for nodes in (2, 1)]


def test_nodes_together_match_a_single_process(jobs):
    first, second = jobs[0]
    assert [len(batch) for batch in first] == [4] * 10
    for epoch in range(2):
        steps = slice(5 * epoch, 5 * epoch + 5)
        assert_no_clip_twice(first[steps], second[steps])
        assert_same_clips(first[steps] + second[steps], plain(speech(), epoch))


def test_a_job_on_one_node_resumes_mid_epoch(jobs):
    (first, second), [rest] = jobs
    assert [len(batch) for batch in rest] == [4] * 4  # of the 40 clips, the checkpoint is after 24
    assert_same_clips(first[5:8] + second[5:8] + rest, plain(speech(), 1))
