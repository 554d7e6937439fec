"""The README is executed: its training script with a plan that the advisor wrote, its chains; its table is current."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from audioaug.core import REGISTRY
from scripts import update_readme

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


pytestmark = pytest.mark.timeout(1200)  # programs: some seconds, minutes only where others use the cores too


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_training_script_trains_with_the_plan_that_the_advice_command_writes(tmp_path):
    [command] = [line for line in COMMANDS if "audioaug.advise" in line]
    plan, report = tmp_path / "plan.json", tmp_path / "out.json"
    words = command.replace("plan.json", str(plan)).replace("out.json", str(report)).split()
    run(sys.executable, *words[1:], "--budget", "6")
    assert plan.exists() and report.exists()
    [script] = [block for block in PYTHON_BLOCKS if "plan.json" in block]
    done = run(sys.executable, "-c", script.replace("plan.json", str(plan)))
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 3 and losses[-1] < losses[0] * 1.2
    assert len(script.strip().splitlines()) <= 25


@pytest.mark.filterwarnings("ignore")
def test_the_other_python_blocks_run(tmp_path):
    others = [block for block in PYTHON_BLOCKS if "plan.json" not in block]
    assert others
    for block in others:
        run(sys.executable, "-W", "ignore", "-c", block.replace("chain.yaml", str(tmp_path / "chain.yaml")))


def test_the_table_is_the_recorded_result(tmp_path, monkeypatch):
    copy = tmp_path / "README.md"
    copy.write_text(re.sub(r"^\| \w+ \| .*passed.*\n", "", TEXT, flags=re.MULTILINE), encoding="utf-8")
    monkeypatch.setattr(update_readme, "README", copy)
    update_readme.main([str(ROOT / "datasets/profiles/verify_cpu.json")], standalone_mode=False)
    assert copy.read_text(encoding="utf-8") == TEXT


def test_the_table_has_every_transform_and_no_failure():
    rows = re.findall(r"^\| (\w+) \| (.+?) \|", TEXT.partition("<!-- table")[2], re.MULTILINE)
    listed = {name: words for name, words in rows if name != "transform"}
    assert set(listed) == set(REGISTRY)
    assert all(words.endswith("passed") or words.startswith("no: ") for words in listed.values())


def test_every_linked_file_exists():
    links = re.findall(r"\]\((?!http)([^)]+)\)", TEXT)
    assert links and all((ROOT / link).exists() for link in links)


def test_the_package_readme_lists_every_file():
    listed = (ROOT / "audioaug/README.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "audioaug").rglob("*.py")):
        name = path.relative_to(ROOT / "audioaug").as_posix()
        room = name.split("/")[0]
        covered = name in listed or f"`{room}/*.py`" in listed or path.name in listed or f"`{path.stem}`" in listed
        assert covered or path.name == "__init__.py", f"audioaug/README.md does not list {name}"
