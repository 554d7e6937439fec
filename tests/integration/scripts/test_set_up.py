"""What `make demo` and `make setup` install: set_up.sh, with planted programs for Python, uv and nvidia-smi."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = (
    "awk",
    "bash",
    "cat",
    "chmod",
    "cp",
    "dirname",
    "echo",
    "env",
    "grep",
    "head",
    "mkdir",
    "sed",
    "timeout",
    "touch",
)
PYTHON = """
echo "python $*" >>calls
case "$*" in
    *"-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *"pip index versions torch"*"--extra-index-url=https://download.pytorch.org/whl/cpu"*) cat at_pytorch ;;
    *"pip index versions torch"*) cat at_pip ;;
esac
"""
TESTED = re.search(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]
NONE = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.14.1\n"
CPU = "torch (2.13.0)\nAvailable versions: 2.15.0, 2.13.0+cpu, 2.13.0, 2.12.1+cpu\n"
Installed = Callable[..., list[str]]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Set up an environment with planted programs; return the arguments of each install, in turn."""

    def program(name: str, text: str) -> None:
        (tmp_path / "bin" / name).write_text("#!/usr/bin/env bash" + text)
        (tmp_path / "bin" / name).chmod(0o755)

    def set_up(
        *arguments: str, gpu: bool = False, at_pip: str = NONE, at_pytorch: str = NONE, uv: str = ""
    ) -> list[str]:
        for name in ("bin", "scripts"):
            (tmp_path / name).mkdir()
        for tool in TOOLS:
            (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
        program("python3", PYTHON)
        program("nvidia-smi", f"\nexit {0 if gpu else 9}\n")
        if uv:
            program("uv", f'\necho "uv $*" >>calls\n{uv}\n')
        for name, text in (("at_pip", at_pip), ("at_pytorch", at_pytorch)):
            (tmp_path / name).write_text(text)
        shutil.copy(ROOT / "constraints.txt", tmp_path)
        script = shutil.copy(ROOT / "scripts/set_up.sh", tmp_path / "scripts")
        subprocess.run([script, *arguments], env={"PATH": str(tmp_path / "bin")}, cwd="/", check=True, timeout=60)
        assert (tmp_path / arguments[0] / ".setup-done").exists()
        calls = (tmp_path / "calls").read_text().splitlines()
        return [call.partition(" install ")[2] for call in calls if " install " in call]

    return set_up


def arguments(line: str) -> str:
    return re.sub(r"--(progress-bar off|python \S+) ", "", line)


def test_without_a_gpu_the_demo_takes_the_newest_cpu_build_of_pip(installed: Installed, tmp_path: Path) -> None:
    torch, rest = map(arguments, installed(".venv-demo", at_pip=CPU))
    assert torch.split() == ["--no-deps", "torch==2.13.0+cpu"]
    assert rest.split() == ["-c", ".venv-demo/constraints.txt", "-e", "."]
    pinned = (tmp_path / ".venv-demo/constraints.txt").read_text()
    assert "\ntorch" not in pinned and "\naudiomentations==" in pinned


def test_the_tested_version_is_preferred_and_pytorch_is_asked_last(installed: Installed) -> None:
    torch, _ = map(arguments, installed(".venv-demo", at_pytorch=f"{CPU.rstrip()}, {TESTED}+cpu, 2.4.0+cpu\n"))
    index = "--extra-index-url=https://download.pytorch.org/whl/cpu"
    assert torch.split() == ["--no-deps", f"torch=={TESTED}+cpu", index]


DEFAULT = ["-c", "constraints.txt", "-e", "."]


def test_demo_installs_the_tested_torch_without_a_cpu_build(installed: Installed) -> None:
    [only] = map(arguments, installed(".venv-demo"))
    assert only.split() == DEFAULT


def test_with_a_gpu_the_demo_takes_the_tested_torch(installed: Installed) -> None:
    [only] = map(arguments, installed(".venv-demo", gpu=True, at_pip=CPU))
    assert only.split() == DEFAULT


def test_the_environment_for_the_tests_always_has_the_tested_torch(installed: Installed) -> None:
    usual, daft, torchcodec = map(arguments, installed(".venv", "torch-audiomentations,dev", at_pip=CPU))
    assert daft.split() == ["--no-deps", "daft==0.7.26"]
    assert torchcodec.split()[-3:] == ["--target", ".venv/torchcodec", "torchcodec==0.11.1"]
    assert usual.split() == ["-c", "constraints.txt", "-e", ".[torch-audiomentations,dev]"]


@pytest.mark.parametrize(("end", "programs"), [("true", ["uv"]), ("exit 2", ["uv", "python"])])
def test_uv_installs_where_it_is_there_and_pip_where_it_fails(
    installed: Installed, tmp_path: Path, end: str, programs: list[str]
) -> None:
    found = installed(".venv-demo", gpu=True, uv=end)
    assert [arguments(line).split() for line in found] == [DEFAULT] * len(programs)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if " install " in line]
    assert [call.split()[0] for call in calls] == programs


@pytest.mark.parametrize(("there", "used"), [(False, ".venv-demo"), (True, ".venv")])
def test_demo_uses_its_own_environment_unless_the_full_one_exists(tmp_path: Path, there: bool, used: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/set_up.sh", tmp_path / "scripts")
    if there:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv/.setup-done").touch()
    environment = {name: value for name, value in os.environ.items() if name != "DEMO"}
    command = ["make", "-n", "demo"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"{used}/bin/audioaug advise --model scripts/models/keyword_cnn.py --quick" in said
    assert (f"scripts/set_up.sh {used}" in said) is not there
