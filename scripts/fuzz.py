"""Fuzz all that audioaug reads, guided by coverage, and record how it ended: `make fuzz`.

    python scripts/fuzz.py                                        every target for a few minutes, an hour in all
    python scripts/fuzz.py chain audio --minutes 2                these, for two minutes in all
    python scripts/fuzz.py --json datasets/profiles/fuzz.json     what the documentation shows

atheris, which brings libFuzzer, is installed into a folder of its own, since it has no wheels for some Pythons. What is
found is kept in build/fuzz/TARGET: `python -m tests.fuzz.run TARGET FILE` shows it again.
"""

import datetime
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from compact_records import write_compact

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
ATHERIS = "atheris==3.0.0"
MOST_SECONDS, MOST_MIB, MOST_BYTES = 20, 4096, 65536
"""That one input may take, and its length."""


@dataclass(frozen=True)
class Ended:
    """How a target's run ended: inputs tried, code reached (libFuzzer's counters), and the file of a fault, if any."""

    target: str
    seconds: float
    inputs: int
    reached: int
    found: str = ""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--minutes", default=60.0, type=click.FloatRange(min=0.1), help="For all of them together.")
@click.option("--jobs", default=os.cpu_count() or 1, type=click.IntRange(1), help="Targets at the same time.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Record how it ended.")
def main(names: tuple[str, ...], minutes: float, jobs: int, path: Path | None) -> None:
    """Fuzz the named targets, or all."""
    from tests.fuzz.targets import TARGETS

    if unknown := set(names) - set(TARGETS):
        raise click.ClickException(f"There is no target {', '.join(sorted(unknown))}. Known: {', '.join(TARGETS)}.")
    chosen, folder = list(names or TARGETS), ROOT / "build/fuzz"
    install(folder / "atheris")
    seconds = 60 * minutes * min(jobs, len(chosen)) / len(chosen)
    ended = list[Ended]()
    for some in (chosen[first : first + jobs] for first in range(0, len(chosen), jobs)):
        ended += fuzzed(some, seconds, folder)
    if path is not None:
        date = datetime.date.today().isoformat()
        write_compact(
            {"date": date, "python": sys.version.split()[0], "targets": [asdict(each) for each in ended]}, path
        )
    sys.exit(any(each.found for each in ended))


def install(folder: Path) -> None:
    """Install atheris there, unless it is there."""
    if not (folder / "atheris").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), ATHERIS]
        subprocess.run(pip, check=True)


def fuzzed(names: Iterable[str], seconds: float, folder: Path) -> list[Ended]:
    """Run these targets at the same time, and say how each ended."""
    running = {name: start(name, seconds, folder) for name in names}
    return [finished(name, seconds, *each) for name, each in running.items()]


def start(name: str, seconds: float, folder: Path) -> "tuple[subprocess.Popen[bytes], Path]":
    """Start a target; what it prints goes to a file."""
    from tests.fuzz.targets import seeds

    own = folder / name
    corpus = own / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = {"max_total_time": int(seconds), "timeout": MOST_SECONDS, "rss_limit_mb": MOST_MIB, "max_len": MOST_BYTES}
    command = [sys.executable, "-m", "tests.fuzz.run", name, str(corpus), f"-artifact_prefix={own}/"]
    paths = os.pathsep.join([str(folder / "atheris"), str(ROOT)])
    with open(own / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, *(f"-{option}={value}" for option, value in options.items())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return process, own


def finished(name: str, seconds: float, process: "subprocess.Popen[bytes]", own: Path) -> Ended:
    """Wait for a target and read what it printed."""
    code = process.wait(timeout=2 * seconds + 300)
    text = (own / "log").read_text(encoding="utf-8", errors="replace")
    tried = re.findall(r"^#(\d+)", text, re.M)
    reached = re.findall(r"cov: (\d+)", text)
    kept = sorted(own.glob("crash-*")) + sorted(own.glob("timeout-*")) + sorted(own.glob("oom-*"))
    found = (kept[-1].name if kept else "no file") if code else ""
    ended = Ended(name, seconds, int(tried[-1]) if tried else 0, int(reached[-1]) if reached else 0, found)
    outcome = f"a fault: build/fuzz/{name}/{found}, see build/fuzz/{name}/log" if found else "nothing found"
    click.echo(f"fuzz: {name}: {ended.inputs:,} inputs, {ended.reached} places reached: {outcome}")
    return ended


if __name__ == "__main__":
    main()
