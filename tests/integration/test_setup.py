"""The set-up: one version everywhere, the torch pair pinned, the Makefile as documented, no home folder."""

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import audioaug

ROOT = Path(__file__).parents[2]
TARGETS = {
    "help",
    "setup",
    "check",
    "test",
    "test-all",
    "demo",
    "bench",
    "verify",
    "records",
    "test-matrix",
    "test-slow",
    "mutants",
    "campaign",
    "notebooks",
    "docs",
    "docs-version",
    "release-check",
    "fuzz",
    "clean",
}
HOMES = re.compile(r"(?<![\w.~$}/-])/(home|Users|root|work)/[\w.-]+/")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pins() -> list[Requirement]:
    return [Requirement(line) for line in read("constraints.txt").splitlines() if line and not line.startswith("#")]


def home_folders(text: str) -> list[str]:
    return [found.group() for found in HOMES.finditer(text)]


def test_one_version_everywhere() -> None:
    assert re.findall(r'^version = "(.+)"$', read("pyproject.toml"), re.M) == [audioaug.__version__]
    assert re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.M)[0] in ("Unreleased", audioaug.__version__)


def test_no_folder_of_tests_is_left_out(request: pytest.FixtureRequest) -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    left_out = request.config.getini("norecursedirs")
    assert len(folders) > 10
    assert [each for each in sorted(folders) if any(fnmatch(each.name, pattern) for pattern in left_out)] == []


def test_torch_and_torchaudio_are_pinned_as_the_pair_that_works() -> None:
    pair = [str(pin) for pin in pins() if pin.name in ("torch", "torchaudio")]
    assert pair == ["torch==2.11.0", "torchaudio==2.11.0"]


def test_every_constraint_is_an_exact_version() -> None:
    assert [str(pin) for pin in pins() if not re.fullmatch(r"==[^*,]+", str(pin.specifier))] == []


def test_make_help_lists_the_documented_targets() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^make (\S+)", shown, re.M)) == TARGETS


def test_verify_writes_nothing_and_records_does() -> None:
    def recipe(target: str) -> str:
        command = ["make", "-n", "-o", ".venv/.setup-done", target]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "audioaug.verify" in recipe("verify") and not re.search("--json|scripts/|profiles", recipe("verify"))
    assert "--json datasets/profiles/verify_cpu.json" in recipe("records") and "update_readme" in recipe("records")


def test_a_home_folder_is_found_where_there_is_one() -> None:
    assert home_folders(f"cd {'/home'}/ann/audioaug") == [f"{'/home'}/ann/"]
    assert home_folders("docs/home/index/ and ~/work/x/ and https://a.b/home/c/") == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_no_file_names_a_home_folder() -> None:
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).splitlines()
    texts = {name: (ROOT / name).read_bytes().decode("latin-1") for name in listed if (ROOT / name).is_file()}
    found = {name: home_folders(text) for name, text in texts.items() if "\0" not in text}
    assert {name: folders for name, folders in found.items() if folders} == {}
