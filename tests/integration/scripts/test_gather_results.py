"""One file with all that was checked on a machine; a step that failed leaves a hole, not an error."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def gather(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/gather_results.py", str(folder), "--device", "cpu"]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200)


def test_existing_results_are_gathered_and_missing_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "steps.txt").write_text("verify: passed, 12 s\nbench: failed (1), 3 s\n")
    (tmp_path / "verify.json").write_text('{"verdicts": [1, 2]}')
    (tmp_path / "bench.json").write_text('{"rows": [')  # its step was ended meanwhile
    done = gather(tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["steps"] == {"verify": "passed, 12 s", "bench": "failed (1), 3 s"}
    assert result["verify"] == {"verdicts": [1, 2]} and result["bench"] is None and result["advisor_cold"] is None
    assert result["card"] is None and result["driver"] is None and "torch" in result["versions"]
    assert result["date"] and result["host"]["cpu"]


def test_a_folder_without_results_is_a_sentence(tmp_path: Path) -> None:
    done = gather(tmp_path)
    assert done.returncode == 1 or done.returncode == 2
    assert f"error: There are no results in {tmp_path}." in done.stderr and "Traceback" not in done.stderr
