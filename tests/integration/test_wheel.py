"""The wheel: built from this checkout and unpacked, it advises on a model file alone, in an empty folder.

It used to look for its demo audio in ``datasets`` beside the package, which is another library once both are installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audioaug.audio.demo import demo_folder
from audioaug.records import Report, read_record

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
COMMAND = """
import sys
from importlib.metadata import entry_points
[script] = entry_points(group="console_scripts", name="audioaug")
sys.exit(script.load()(sys.argv[1:]))
"""
MODEL = """
import torch

model = torch.nn.Sequential(torch.nn.AvgPool1d(16000), torch.nn.Flatten(), torch.nn.Linear(1, 12))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds, like site-packages, and Hugging Face's package beside it."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "audioaug", source / "audioaug", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD, source], cwd=source, capture_output=True, check=True)
    [wheel] = source.glob("*.whl")
    shutil.unpack_archive(wheel, site, "zip")
    (site / "datasets/demo/speech").mkdir(parents=True)
    return site


def test_the_wheel_has_all_data_files_and_their_licence(site: Path) -> None:
    files = [path for path in (ROOT / "audioaug").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(ROOT) for path in files} - {Path("audioaug/README.md")}
    assert len(wanted) > 250 and not [path for path in wanted if not (site / path).is_file()]
    assert len([*site.glob("audioaug-*.dist-info/licenses/**/*BSD-2-Clause*.txt")]) == 1


def test_the_installed_command_advises_on_a_model_alone(site: Path, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MODEL)
    arguments = ["advise", "--model", "m.py", "--budget", "2", "--workers", "0", "--json", "report.json"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    workload = read_record(tmp_path / "report.json", Report).workload
    assert workload.sources["dataset"] == "demo data" and workload.clips == 96
    assert Path(workload.dataset) == site / Path(demo_folder("speech")).relative_to(ROOT)
