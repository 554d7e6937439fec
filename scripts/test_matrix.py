"""Test the built wheel in environments other than the checkout's: `make test-matrix`, or this with names of some.

Each environment is a folder .venv-NAME beside .venv: the wheel, what it depends on and the test tools, nothing else.
The tests run in a new folder outside the checkout, without `audioaug/`. A test that needs an optional package skips and
says so. The result goes to datasets/profiles/environments.json, from which the documentation makes its table.
"""

import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from compact_records import write_compact

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "datasets/profiles/environments.json"
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
OF_THE_CHECKOUT = ("setup", "docs", "notebooks", "wheel", "docstrings", "words", "release", "signatures", "mutants")
"""Tests of the checkout itself, which the folder of tests lacks: test_NAME.py, in any folder."""

SHORT = (
    "tests/integration/test_installed.py",
    "tests/unit/test_internals.py",
    "tests/unit/test_surface.py",
    "tests/integration/test_doctor.py",
    "tests/integration/reviews",
    "tests/contract/engine/test_graph_cache.py",
    "tests/integration/loader/test_buffers.py",
    "tests/integration/loader/test_loader.py",
    "tests/integration/loader/test_pickling.py",
    "tests/integration/loader/test_prefetch_function.py",
    "tests/integration/loader/test_failures_of_workers.py",
    "tests/contract/verify/test_main.py",
    "tests/contract/golden",
)
"""The short form: what depends on the versions of torch and Python most."""

VERSIONS_OF = ("python", "torch", "torchaudio", "audiomentations", "numba", "numpy")


@dataclass(frozen=True)
class Environment:
    """What to install beside the wheel, and the versions of Python to try, the first that this machine has."""

    pythons: tuple[str, ...]
    requirements: tuple[str, ...]
    pinned: bool = False


ENVIRONMENTS = {
    "pinned": Environment(
        ("3.12", "3.11"), ("torch==2.11.0", "torchaudio==2.11.0", "torch-audiomentations"), pinned=True
    ),
    "newest": Environment(("3.14", "3.13", "3.12", "3.11"), ("torch",)),
    "cpu": Environment(("3.11",), ("torch==2.13.0+cpu",)),
    "lowest": Environment(("3.10", "3.11"), ("torch==2.4.0",)),
}


@dataclass(frozen=True)
class Outcome:
    """What one environment gave. ``skipped``: how many tests for each reason."""

    name: str
    form: str
    date: str
    versions: dict[str, str]
    passed: int
    failed: int
    skipped: dict[str, int]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(ENVIRONMENTS)))
@click.option("--short", is_flag=True, help="Run only what depends on versions most.")
@click.option("--record/--no-record", default=True, help="Keep the result for the documentation.")
def main(names: tuple[str, ...], short: bool, record: bool) -> None:
    """Build the wheel and test it in the named environments, or in all."""
    outcomes = list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="audioaug-matrix-") as folder:
        wheel = build_wheel(Path(folder))
        for name in names or ENVIRONMENTS:
            outcomes.append(test(name, wheel, Path(folder) / name, short))
            if record:
                keep(outcomes[-1])
    click.echo("\n" + "\n".join(map(sentence, outcomes)))
    sys.exit(any(outcome.failed for outcome in outcomes))


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into the folder."""
    click.echo("matrix: building the wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [wheel] = folder.glob("*.whl")
    return wheel


def test(name: str, wheel: Path, folder: Path, short: bool) -> Outcome:
    """Install the wheel into its environment and run the tests in the folder."""
    python = install(name, wheel)
    copy_tests(folder)
    junit = folder / "junit.xml"
    command = [str(python), "-m", "pytest", "-q", "-n", "logical", "--dist", "worksteal", "-o", "cache_dir=.cache"]
    command += [f"--junitxml={junit}", *(SHORT if short else ())]
    click.echo(f"matrix: {name}: testing")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, cwd=folder, env=environment, check=False)
    return read(name, "short" if short else "full", versions(python), junit)


def install(name: str, wheel: Path) -> Path:
    """Make the environment where it is not there yet, install the wheel into it, and return its Python."""
    environment = ENVIRONMENTS[name]
    constraints = ["-c", str(ROOT / "constraints.txt")] if environment.pinned else []
    base, folder = find_python(environment.pythons), ROOT / f".venv-{name}"
    python, stamp = folder / "bin/python", folder / ".matrix-done"
    dependencies = (ROOT / "pyproject.toml").read_text().partition("[tool.")[0]
    wanted = hashlib.sha256(repr((environment, TOOLS, base, dependencies)).encode()).hexdigest()
    pip = [str(python), "-m", "pip", "install", "--quiet", "--progress-bar", "off", *constraints]
    if not stamp.exists() or stamp.read_text() != wanted:
        click.echo(f"matrix: {name}: installing {', '.join(environment.requirements)} with {base}")
        run(base, "-m", "venv", "--clear", str(folder))
        run(*pip, *environment.requirements, *TOOLS, str(wheel))
        stamp.write_text(wanted)
    run(*pip, "--no-deps", "--force-reinstall", str(wheel))
    return python


def find_python(versions: tuple[str, ...]) -> str:
    """Return the first of these versions of Python that this machine has; the one that runs this if it has none."""
    return next(filter(None, map(python_here, versions)), sys.executable)


def python_here(version: str) -> str:
    """Return a Python of that version: on the path, or where pyenv keeps them; an empty string if there is none."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python"))
    for candidate in (f"python{version}", *map(str, kept)):
        if shutil.which(candidate) and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return ""


def copy_tests(folder: Path) -> None:
    """Copy what tests read: all files of the checkout but the package and the tests of the checkout itself."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    left_out = {f"test_{name}.py" for name in OF_THE_CHECKOUT}
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file() and not name.startswith("audioaug/") and Path(name).name not in left_out:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def versions(python: Path) -> dict[str, str]:
    """Return the versions that matter in an environment; those of what it lacks are missing."""
    code = (
        "import json, platform; from importlib import metadata\n"
        "found = {each.name: each.version for each in metadata.distributions()}\n"
        "print(json.dumps({'python': platform.python_version(), **found}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return {name: found[name] for name in VERSIONS_OF if name in found}


def read(name: str, form: str, versions: dict[str, str], junit: Path) -> Outcome:
    """Return what pytest has written; one failure where it has written nothing."""
    cases = list(ElementTree.parse(junit).iter("testcase")) if junit.exists() else []
    skips = [case.find("skipped") for case in cases]
    reasons = Counter(skip.get("message", "") for skip in skips if skip is not None)
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    passed = len(cases) - failed - sum(reasons.values())
    date = datetime.date.today().isoformat()
    return Outcome(name, form, date, versions, passed, failed if cases else 1, dict(reasons.most_common()))


def keep(outcome: Outcome) -> None:
    """Write the outcome beside those of other environments."""
    found = {each["name"]: each for each in json.loads(RECORD.read_text())} if RECORD.exists() else {}
    found[outcome.name] = asdict(outcome)
    write_compact([found[name] for name in ENVIRONMENTS if name in found], RECORD)


def sentence(outcome: Outcome) -> str:
    """Return one line for a terminal."""
    what = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    skipped = sum(outcome.skipped.values())
    return f"{outcome.name}: {outcome.passed} passed, {outcome.failed} failed, {skipped} skipped ({what})"


def run(*command: str) -> None:
    """Run a command; stop with its error where it fails."""
    if subprocess.run(command, check=False).returncode:
        raise click.ClickException(f"This failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
