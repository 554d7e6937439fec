"""The README is executed: its training script with a plan that the advisor wrote, its chains; its table is current."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from audioaug.core import REGISTRY
from scripts import update_readme

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


pytestmark = pytest.mark.timeout(1200)  # programs: some seconds, minutes only where others use the cores too


OF_THE_CHECKOUT = pytest.mark.skipif(not (ROOT / "audioaug").is_dir(), reason="needs the checkout, not the wheel")


@pytest.fixture
def folder(tmp_path):
    """A user's folder: audio, the README's model file, and the package without the checkout's scripts."""
    for name in ("datasets/demo/speech", "datasets/demo/noise", "audioaug"):
        if (ROOT / name).is_dir():  # the package is installed where it is not here
            (tmp_path / Path(name).name).symlink_to(ROOT / name)
    [model] = [block for block in PYTHON_BLOCKS if "def build_model" in block]
    (tmp_path / "my_model.py").write_text(model)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_training_script_trains_with_the_plan_that_the_advice_command_writes(folder):
    [command] = [line for line in COMMANDS if line.startswith("audioaug advise")]
    run(folder, "-m", *command.split(), "--budget", "6")
    assert (folder / "plan.json").exists() and (folder / "out.json").exists()
    [script] = [block for block in PYTHON_BLOCKS if "plan.json" in block]
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", run(folder, "-c", script).stdout)]
    assert len(losses) == 3 and losses[-1] < losses[0] * 1.2
    assert len(script.strip().splitlines()) <= 25


@pytest.mark.filterwarnings("ignore")
def test_the_other_python_blocks_run(folder):
    others = [block for block in PYTHON_BLOCKS if "plan.json" not in block]
    assert len(others) == 2
    for block in others:
        run(folder, "-W", "ignore", "-c", block)


@OF_THE_CHECKOUT
def test_generated_tables_are_current():
    for readme, content in update_readme.generated():
        current = update_readme.renewed(readme, content) == readme.read_text(encoding="utf-8")
        assert current, f"{readme} is out of date: run python scripts/update_readme.py"


@OF_THE_CHECKOUT
def test_explanations_on_the_page_are_those_of_the_documentation():
    expected = update_readme.explanations(update_readme.TROUBLESHOOTING.read_text(encoding="utf-8"))
    current = update_readme.EXPLANATIONS.read_text(encoding="utf-8") == expected
    assert current, "run python scripts/update_readme.py"


def test_explanations_are_paragraphs_without_markup():
    page = "# Page\n\n## One\n\n### `a_b`\n\nSet `x`,\nor [read](y.md).\n\nDo it.\n\n## Errors\n\nNo entry.\n"
    assert json.loads(update_readme.explanations(page)) == {"a_b": ["Set x, or read.", "Do it."]}


@OF_THE_CHECKOUT
def test_stale_rows_are_replaced(tmp_path):
    copy = tmp_path / "README.md"
    copy.write_text(re.sub(r"^\| exact .*\n", "", TEXT, flags=re.MULTILINE), encoding="utf-8")
    [(_, content)] = [pair for pair in update_readme.generated() if pair[0] == update_readme.README]
    assert copy.read_text(encoding="utf-8") != update_readme.renewed(copy, content) == TEXT


def test_contracts_cover_every_transform_and_name_failures():
    verdict = {"engine": "batched", "contract": "exact", "unit": "of peak"}
    failed = {**verdict, "op": "Gain", "error": 0.5, "status": "failed"}
    table = update_readme.contracts([failed, {**verdict, "op": "Clip", "error": 0.0, "status": "passed"}])
    assert "| exact | 2, failed: Gain | equal sample for sample | 0.5 of peak (Gain) |" in table
    counts = re.findall(r"^\| [a-z ]+ \| (\d+) \|", TEXT.partition("<!-- table")[2], re.MULTILINE)
    verdicts = json.loads(update_readme.VERIFIED.read_text(encoding="utf-8"))["verdicts"]
    assert not [verdict for verdict in verdicts if verdict["status"] == "failed"]
    verified = {verdict["op"] for verdict in verdicts}
    assert verified <= set(REGISTRY) and len(verified) == sum(
        map(int, counts)
    )  # a new op is counted once it is verified


@OF_THE_CHECKOUT
def test_every_linked_file_exists():
    links = re.findall(r"\]\((?!http)([^)]+)\)", TEXT)
    assert links and all((ROOT / link).exists() for link in links)


@OF_THE_CHECKOUT
def test_file_map_has_the_first_line_of_every_docstring(tmp_path):
    for name, says in {"core/op.py": "Op: one ``augmentation``. Short.", "dsp/new/deep.py": "Deep:\nx. More."}.items():
        (tmp_path / "audioaug" / name).parent.mkdir(parents=True)
        (tmp_path / "audioaug" / name).write_text(f'"""{says}"""')
    found = update_readme.file_map(tmp_path)
    assert "## audioaug/core\n" in found and "| `op.py` | Op: one `augmentation`. Short |" in found
    assert "## audioaug/dsp/new\n" in found and "| `deep.py` | Deep: x |" in found
    names = [path.name for path in (ROOT / "audioaug").rglob("*.py") if path.name != "__init__.py"]
    whole = update_readme.file_map()
    assert names and all(f"| `{name}` | " in whole for name in names)
