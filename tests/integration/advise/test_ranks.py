"""Two ranks on the CPU: they train in lockstep, one report is printed, and none of them is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from audioaug.measure.ranks import ENDING, GRACE
from audioaug.records import Plan, Report, read_record
from tests.integration.advise.test_progress import NO_SIGINT, wait_for_stage

pytestmark = pytest.mark.timeout(600)  # real runs: some seconds, minutes beside other load

ROOT = Path(__file__).parents[3]
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")
ADVISE = ("audioaug.advise", "--model", "mymodel.py", "--json", "report.json")
BRIEF = ("--budget", "2", "--workers", "0,1", "--fresh")
ORPHANS = 6.0
"""Seconds in which a worker notices that its process was killed."""

DATA = """
import os
from audioaug import ops

dataset = [(torch.randn(1, 4000), index % 12) for index in range(32)]
augment = [ops.Gain(p=1.0), ops.Reverse(p=0.5)]
"""
COUNTED = """
steps = 0

def train_step(model, batch, optimizer):
    global steps
    steps += 1
    with open(f"steps {os.environ['RANK']}", "w") as file:
        file.write(str(steps))
    MORE
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALL_REDUCED = """
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Tiny())
"""
SCRIPT = """
import os

import torch

from audioaug import ops, recommend

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten(), torch.nn.Linear(1, 4))
    dataset = [(torch.randn(1, 4000), index % 4) for index in range(32)]
    report = recommend(
        model, [ops.Gain(p=1.0)], dataset, sample_rate=16000, batch_size=4, budget=2, workers=[0], progress=False
    )
    report.save(f"report {os.environ['RANK']}.json")
    torch.distributed.destroy_process_group()
"""


def start(*command: str) -> "subprocess.Popen[str]":
    """Start a Python module in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def run(*command: str) -> tuple[int, str, str]:
    """Run a Python module; return its exit code and what it printed."""
    process = start(*command)
    out, err = process.communicate(timeout=500)
    return process.returncode, out, err


def steps_of_ranks(here: Path) -> list[int]:
    return [int((here / f"steps {rank}").read_text()) for rank in range(2)]


def test_two_ranks_make_the_same_steps_and_get_one_plan(model, here) -> None:
    model(DATA + COUNTED.replace("MORE", ""))
    code, out, err = run(*ADVISE, "--ranks", "2", *BRIEF, "--plan", "plan.json")
    assert code == 0, err
    report = read_record(here / "report.json", Report)
    assert report.complete and report.host.local_ranks == 2
    assert report.host.usable_cores == len(psutil.Process().cpu_affinity()) / 2
    assert Plan.load(here / "plan.json").num_workers == 2 * report.best.num_workers
    first, second = steps_of_ranks(here)
    assert first == second > 20
    assert out.startswith(report.verdict[:60]) and "Measured with 2 ranks that train at the same time." in out
    assert err.count("ceiling and current configuration, ") == 1  # only one rank prints


@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["ranks", "torchrun"])
def test_ranks_that_exchange_gradients(launcher, model, here) -> None:
    model(DATA + ALL_REDUCED)
    count = () if launcher else ("--ranks", "2")
    command = ("-m", *ADVISE) if launcher else ADVISE
    code, out, err = run(*launcher, *command, *count, *BRIEF)
    assert code == 0, err
    report = read_record(here / "report.json", Report)
    assert report.complete and report.host.local_ranks == 2
    assert out.count("Measured with 2 ranks") == 1
    assert "ranks_without_ddp" not in {notice.id for notice in report.notices}


def test_a_script_of_torchrun_gets_the_same_report_in_every_rank(here) -> None:
    (here / "script.py").write_text(SCRIPT)
    code, _, err = run(*TORCHRUN, "script.py")
    assert code == 0, err
    first, second = (read_record(here / f"report {rank}.json", Report) for rank in range(2))
    assert first == second and first.complete and first.host.local_ranks == 2


@pytest.mark.parametrize("more", ["", ALL_REDUCED], ids=["apart", "all-reduced"])
def test_the_run_ends_if_a_rank_dies(more, model, here) -> None:
    died = "if steps == 40 and os.environ['RANK'] == '1':\n        open('died', 'w').close()\n        os._exit(3)"
    model(DATA + more + COUNTED.replace("MORE", died))
    code, out, err = run(*ADVISE, "--ranks", "2", *BRIEF)
    assert time.time() - (here / "died").stat().st_mtime < GRACE + ENDING + ORPHANS
    assert (code, out) == (1, "")
    (error,) = [line for line in err.splitlines() if not line.endswith(" ...") and not line.startswith("note: ")]
    assert error.startswith("error: Rank 1 ended unexpectedly (exit code 3).")


def test_an_error_of_one_rank_is_one_sentence(model) -> None:
    model(DATA + "if os.environ['RANK'] == '1':\n    raise ValueError('no such speaker')\n")
    code, out, err = run(*ADVISE, "--ranks", "2", *BRIEF)
    assert (code, out) == (2, "")
    assert err.startswith("error: Rank 1: mymodel.py cannot be imported: ValueError: no such speaker")
    assert len(err.splitlines()) == 1


@NO_SIGINT
def test_interrupt_leaves_no_rank(model, here) -> None:
    model(DATA + ALL_REDUCED)
    process = start(*ADVISE, "--ranks", "2", "--budget", "40", "--workers", "0,1", "--fresh")
    printed = wait_for_stage(process, "the loader alone")
    processes = psutil.Process(process.pid).children(recursive=True)
    assert len(processes) >= 1
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=ENDING + GRACE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in printed + err and err.splitlines()[-1].startswith("interrupted: partial results")
    _, alive = psutil.wait_procs(processes, timeout=ORPHANS)
    assert not alive
    assert read_record(here / "report.json", Report).ceiling is not None
