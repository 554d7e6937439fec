"""An op is one file: put into ``ops/`` of a copy of the package, every sweep takes it up, and sees an error in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/adding-a-transform.md"
SWEEPS = ("tests/unit/core", "tests/contract/engine", "tests/contract/ops", "tests/contract/verify")
README = "tests/integration/test_readme.py::test_contracts_cover_every_transform_and_name_failures"
FAULTS = {
    "half the depth": ("depth_B1 * (0.5 + 0.5 * wave_BT)", "depth_B1 * (0.25 + 0.25 * wave_BT)"),
    "one rate for all": ("(params[name][:, None] for", "(params[name][:1, None] for"),
}

pytestmark = [
    pytest.mark.skipif(not (ROOT / "audioaug").is_dir(), reason="needs the checkout, not the wheel"),
    pytest.mark.timeout(2400),  # the sweeps of one op, which start Python and import torch
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package and its tests, with the op of the documentation in a file of its own."""
    for name in ("audioaug", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for name in ("datasets", "scripts", "docs", "README.md", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    [text] = re.findall(r'```python title="tremolo\.py"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "audioaug/ops/tremolo.py").write_text(text, encoding="utf-8")
    return tmp_path


def run(checkout: Path, *arguments: str) -> tuple[int, str]:
    """Run Python there; return its exit status and the end of what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "scripts")])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr)[-3000:]


def sweep(checkout: Path, *arguments: str) -> tuple[int, str]:
    """Run all tests of that op; including those that cover all ops in one test."""
    options = ("-q", "-p", "no:cacheprovider", "-k", "Tremolo or only_transforms_that_exist or registry", *arguments)
    return run(checkout, "-m", "pytest", *options)


def test_every_sweep_takes_up_a_new_op(checkout: Path) -> None:
    status, said = sweep(checkout, *SWEEPS, README)
    assert status == 0, said
    found = re.search(r"(\d+) passed", said)
    assert found is not None and int(found[1]) > 30, said
    line = "print(*(line for line in docs_tables.transforms().splitlines() if 'Tremolo' in line))"
    status, table = run(checkout, "-c", f"import docs_tables; {line}")
    assert status == 0 and "[Tremolo][audioaug.ops.tremolo.Tremolo]" in table and "exact, 1e-05" in table, table


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_in_the_new_op_is_seen(fault: str, checkout: Path) -> None:
    path, (right, wrong) = checkout / "audioaug/ops/tremolo.py", FAULTS[fault]
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    status, said = sweep(checkout, "-x", "tests/contract/ops/test_equivalence.py", "tests/contract/verify")
    assert status == 1 and "failed" in said and "Tremolo" in said, said
