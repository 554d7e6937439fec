"""Build what a release uploads, twice, and try it in empty environments: `make release-check`.

The sdist and the wheel are built from the last commit, in two folders. They must be equal byte for byte, hold what they
should, and pass twine. Then the wheel is installed, with all that it depends on, into an empty environment for each
supported Python that this machine has. What passed all of it is left in dist/.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import click
from test_matrix import python_here

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")
IMPORTS = 7
"""How often the import is timed."""

TRIED = """
import json, time
began = time.perf_counter()
import torch
with_torch = time.perf_counter()
import audioaug
from audioaug import Chain, ops
done = time.perf_counter()
chain = Chain([ops.Gain(p=1.0), ops.Reverse(p=1.0)], 16000)
wave = torch.rand(2, 1, 16000)
assert audioaug.build_device(chain)(wave).shape == wave.shape
assert audioaug.build_cpu(chain)(wave[0].numpy()).shape == (1, 16000)
print(json.dumps([audioaug.__version__, with_torch - began, done - with_torch]))
"""


@dataclass(frozen=True)
class Installed:
    """What an empty environment holds after installing the wheel. ``import_seconds``: audioaug's own part, torch's."""

    python: str
    import_seconds: tuple[float, float]
    bytes: dict[str, int]

    def __str__(self) -> str:
        largest = sorted(self.bytes, key=self.bytes.__getitem__, reverse=True)[:4]
        sizes = ", ".join(f"{name} {self.bytes[name] / 1e6:,.0f} MB" for name in largest)
        ours, torch = self.import_seconds
        return (
            f"Python {self.python}: works; importing audioaug takes {1e3 * ours:.0f} ms after torch's {torch:.1f} s; "
            f"{sum(self.bytes.values()) / 1e6:,.0f} MB in all ({sizes})"
        )


@click.command()
@click.option("--pythons", default=",".join(SUPPORTED), help="Versions of Python to try, if they are here.")
@click.option("--requirements", default="", help="Also install these first, such as a CPU build of torch.")
def main(pythons: str, requirements: str) -> None:
    """Build the release, compare, check and try it."""
    version = one_version()
    with tempfile.TemporaryDirectory(prefix="audioaug-release-") as name:
        folder = Path(name)
        first, second = (built(folder / number) for number in ("one", "two"))
        compare(first, second)
        check_contents(first, version)
        run(sys.executable, "-m", "twine", "check", "--strict", *map(str, first.values()))
        say("twine: passed")
        here = {each: found for each in pythons.split(",") if (found := python_here(each))}
        for each, python in here.items():
            say(str(tried(python, first["wheel"], folder / each, requirements.split())))
        if missing := [each for each in pythons.split(",") if each not in here]:
            say(f"not tried, since this machine does not have it: Python {', '.join(missing)}")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        (ROOT / "dist").mkdir()
        for path in first.values():
            shutil.copy2(path, ROOT / "dist")
            say(f"dist/{path.name}: {path.stat().st_size / 1e6:.1f} MB, sha256 {sha256(path)}")


def one_version() -> str:
    """Return the version that all files agree on; stop if they do not, or if the changelog does not name it."""
    found = {
        "pyproject.toml": re.search(r'^version = "(.+)"$', read("pyproject.toml"), re.M),
        "audioaug/__init__.py": re.search(r'^__version__ = "(.+)"$', read("audioaug/__init__.py"), re.M),
        "CITATION.cff": re.search(r"^version: (.+)$", read("CITATION.cff"), re.M),
    }
    versions = {name: each[1] if each else "none" for name, each in found.items()}
    if len(set(versions.values())) > 1:
        stop(f"The versions differ: {versions}.")
    version = versions["pyproject.toml"]
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.M):
        stop(f"CHANGELOG.md has no heading `## [{version}] - DATE`.")
    say(f"version {version} in all files")
    return version


def built(folder: Path) -> dict[str, Path]:
    """Build the sdist of the last commit, and the wheel from the sdist, in a new folder."""
    source, out = folder / "source", folder / "out"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "--touch"], cwd=source, input=archive, check=True)  # files as new as they can be
    when = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": when.stdout.strip()}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source), env=environment)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def compare(first: dict[str, Path], second: dict[str, Path]) -> None:
    """Stop unless both builds are the same, byte for byte."""
    for kind, path in first.items():
        if sha256(path) != sha256(second[kind]):
            stop(f"Two builds of the {kind} differ: {path.name}.")
    say("two builds are equal, byte for byte")


def check_contents(files: dict[str, Path], version: str) -> None:
    """Stop unless the wheel and the sdist hold the files of the package, and nothing else."""
    listed = subprocess.run(["git", "ls-files", "audioaug"], cwd=ROOT, check=True, capture_output=True, text=True)
    package = set(listed.stdout.splitlines()) - {"audioaug/README.md"}
    with zipfile.ZipFile(files["wheel"]) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
        about = {name.partition("/")[2] for name in wheel.namelist() if ".dist-info/" in name}
    with tarfile.open(files["sdist"]) as sdist:
        packed = {name.removeprefix(f"audioaug-{version}/") for name in sdist.getnames()}
    beside = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore", "audioaug/README.md"}
    for what, wanted, there in (
        ("wheel", package, found),
        ("wheel's dist-info", {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}, about - licences(about)),
        ("sdist", package | beside, packed),
    ):
        if wanted != there:
            stop(f"The {what} lacks {sorted(wanted - there)} and should not hold {sorted(there - wanted)}.")
    if len(licences(about)) != 2 or "audioaug/py.typed" not in found:
        stop(f"The wheel lacks a licence or py.typed: {sorted(licences(about))}.")
    say(f"contents: {len(package)} files in the wheel, typed, with {len(licences(about))} licences")


def licences(names: set[str]) -> set[str]:
    """Return those in the folder of licences."""
    return {name for name in names if name.startswith("licenses/")}


def tried(python: str, wheel: Path, folder: Path, requirements: list[str]) -> Installed:
    """Install the wheel into an empty environment, use it there, and return what that takes."""
    run(python, "-m", "venv", str(folder))
    own = str(folder / "bin/python")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run(own, "-m", "pip", "install", "--quiet", *requirements, str(wheel), env=environment)
    command = [own, "-W", "error::SyntaxWarning", "-c", TRIED]
    times = list[tuple[float, float]]()
    for _ in range(IMPORTS):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            stop(f"The wheel does not work with {python}:\n{done.stderr}")
        _, torch, ours = json.loads(done.stdout)
        times.append((ours, torch))
    run(str(folder / "bin/audioaug"), "--version", env=environment)
    [packages] = folder.glob("lib/python*/site-packages")
    name = subprocess.run([own, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    return Installed(name, sorted(times)[len(times) // 2], {each.name: size(each) for each in packages.iterdir()})


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in [path, *path.rglob("*")] if each.is_file() and not each.is_symlink())


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(name: str) -> str:
    """Return the text of a file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


def run(*command: str, env: dict[str, str] | None = None) -> None:
    """Run a command; stop with what it printed if it fails."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        stop(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def say(line: str) -> None:
    """Print a line about what was found."""
    click.echo(f"release: {line}")


def stop(reason: str) -> None:
    """End with a reason."""
    raise click.ClickException(reason)


if __name__ == "__main__":
    main()
