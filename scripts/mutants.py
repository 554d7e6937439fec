"""Plant small faults in the package, one at a time, and count those that its tests see: `make mutants`.

A fault is an entry of a list in tests/mutants/: the file, one piece of its text, the text that replaces it, and the
tests that should fail. All these tests must pass without a fault first. It is an error if fewer than 95 % are seen.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import click
import yaml

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tests/mutants"
ENOUGH = 0.95
PATIENCE = 900
"""Seconds for the tests of one fault; one that makes them hang is seen."""


@dataclass(frozen=True)
class Fault:
    """One edit of one file. ``old`` occurs there once; ``tests``: paths that pytest takes."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Faults to try in parallel.")
def main(names: tuple[str, ...], jobs: int) -> None:
    """Try all faults, or only those in files whose paths contain one of NAMES."""
    faults = [each for each in read_faults() if not names or any(name in each.file for name in names)]
    if not faults:
        raise click.ClickException(f"No fault is in a file whose path contains {' or '.join(names)}.")
    with tempfile.TemporaryDirectory(prefix="audioaug-mutants-") as folder:
        copies = [copy_checkout(Path(folder) / str(number)) for number in range(jobs)]
        wanted = sorted({path for fault in faults for path in fault.tests})
        click.echo(f"mutants: {len(wanted)} tests and files of tests without a fault")
        if said := failing_tests(copies[0], wanted, "-n", str(jobs)):
            raise click.ClickException(f"These tests fail without a fault:\n{said}")
        seen = try_all(faults, copies)
    click.echo(f"mutants: {sum(seen)} of {len(seen)} faults seen")
    click.echo("".join(f"  not seen: {fault}\n" for fault, was_seen in zip(faults, seen) if not was_seen), nl=False)
    sys.exit(sum(seen) < ENOUGH * len(seen))


def read_faults() -> list[Fault]:
    """Read all lists; an entry that does not fit its file is an error."""
    entries = [entry for path in sorted(LISTS.glob("*.yaml")) for entry in yaml.safe_load(path.read_text("utf-8"))]
    faults = [Fault(each["file"], each["old"], each["new"], tuple(each["tests"].split())) for each in entries]
    for fault in faults:
        if (ROOT / fault.file).read_text("utf-8").count(fault.old) != 1:
            raise click.ClickException(f"This text must occur once in its file:\n{fault}")
    return faults


def copy_checkout(folder: Path) -> Path:
    """Copy all files that belong to the checkout."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def try_all(faults: list[Fault], copies: list[Path]) -> list[bool]:
    """Return which faults the tests see, each tried in a copy that no other fault is in."""
    free = SimpleQueue[Path]()
    for copy in copies:
        free.put(copy)

    def seen(fault: Fault) -> bool:
        copy, start = free.get(), time.monotonic()
        path = copy / fault.file
        text = path.read_text("utf-8")
        path.write_text(text.replace(fault.old, fault.new), "utf-8")
        try:
            found = failing_tests(copy, fault.tests, "-x")
        finally:
            path.write_text(text, "utf-8")
            free.put(copy)
        click.echo(f"{'seen' if found else 'NOT SEEN'}, {time.monotonic() - start:.0f} s: {fault}")
        return bool(found)

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(seen, faults))


def failing_tests(copy: Path, tests: tuple[str, ...] | list[str], *options: str) -> str:
    """Run these tests in the copy and return the end of what pytest prints; empty if they pass."""
    # Without bytecode: Python tells a module from its last version by its size and the second in which it was written.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'scripts'}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    running = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = running.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # pytest and the workers that it has started
        return f"still running after {PATIENCE} s"
    if running.returncode > 2:  # 1: tests failed; 2: the fault does not even import
        raise click.ClickException(f"pytest cannot run {' '.join(tests)}:\n{said[-3000:]}")
    return said[-3000:] if running.returncode else ""


if __name__ == "__main__":
    main()
