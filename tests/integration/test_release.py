"""What a release consists of: files that agree with each other, a check that can fail, and CI that others can run."""

import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest
import release_check
import yaml

import audioaug

ROOT = Path(__file__).parents[2]


def test_all_files_name_the_same_version() -> None:
    assert release_check.one_version() == audioaug.__version__


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("CITATION.cff", "version: ", "version: 9", "The versions differ"),
        ("CHANGELOG.md", f"## [{audioaug.__version__}] - ", "## [Unreleased] ", "has no heading"),
    ],
)
def test_a_forgotten_version_is_seen(
    name: str, old: str, new: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = release_check.read
    monkeypatch.setattr(
        release_check, "read", lambda file: read(file).replace(old, new) if file == name else read(file)
    )
    with pytest.raises(click.ClickException, match=sentence):
        release_check.one_version()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("release")
    return [release_check.built(folder / number) for number in ("one", "two")]


def test_two_builds_are_equal_and_hold_the_package(files: list[dict[str, Path]]) -> None:
    release_check.compare(*files)
    release_check.check_contents(files[0], audioaug.__version__)
    twine = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files[0].values())]
    assert "PASSED" in subprocess.run(twine, capture_output=True, text=True, check=True).stdout


def test_a_file_too_many_and_builds_that_differ_are_seen(files: list[dict[str, Path]], tmp_path: Path) -> None:
    planted = {kind: tmp_path / path.name for kind, path in files[0].items()}
    for kind, path in planted.items():
        path.write_bytes(files[0][kind].read_bytes())
    with zipfile.ZipFile(planted["wheel"], "a") as wheel:
        wheel.writestr("tests/test_nothing.py", "")
    with pytest.raises(click.ClickException, match=r"should not hold \['tests/test_nothing.py'\]"):
        release_check.check_contents(planted, audioaug.__version__)
    with pytest.raises(click.ClickException, match="Two builds of the wheel differ"):
        release_check.compare(files[0], planted)


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    [job] = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if ".ci/run" in step.get("run", "")] == [
        'sudo -E env "PATH=$PATH" .ci/run'
    ]


def test_issue_forms_can_be_read_and_ask_for_something() -> None:
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"] and form["description"] and all(field["attributes"]["label"] for field in form["body"])
