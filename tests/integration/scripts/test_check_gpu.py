"""The check of a GPU, rehearsed on the CPU: its steps, and a run that has no time left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for `python3`
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "DEVICE": "cpu", **variables}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("step", ["smoke", "epochs", "syncs", "capture"])
def test_a_step_passes_on_the_cpu_and_writes_its_result(step: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = run(sys.executable, "scripts/check_gpu_steps.py", step, "--device", "cpu", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == json.loads(done.stdout.splitlines()[-1])


def test_steps_for_which_no_time_is_left_are_named_and_results_are_kept(tmp_path: Path) -> None:
    done = run("bash", "scripts/check_gpu.sh", str(tmp_path), LIMIT="0")
    assert done.returncode == 1 and "memory: skipped (no time left), 0 s" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["steps"]["bench"] == "skipped (no time left), 0 s" and result["memory"] is None
    assert (tmp_path / "logs.tar.gz").exists()
