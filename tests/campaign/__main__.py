"""The fault campaign: ``python -m tests.campaign --minutes 60 --seed 0 --jobs 2``, or ``make campaign``.

Each fault follows from the seed and its number, so that ``--only 1234`` repeats one. The exit code is 1 if a verdict
was violated.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from typing import IO, Any

import click
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import fault_tables

from tests.campaign.faults import KINDS, Kind, draw
from tests.campaign.kinds import load

SLACK = 120.0
"""Seconds after a fault's limit at which the process that watches it is itself regarded as hung."""


class Victim:
    """A process that makes faults happen, started again if it ends."""

    def __init__(self, seed: int, kinds: Sequence[Kind], peer: bool) -> None:
        self._arguments = json.dumps([seed, peer, *(kind.name for kind in kinds)])
        self._start()

    def _start(self) -> None:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "tests.campaign.victims", self._arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self._process.stdin and self._process.stdout
        self._in: IO[str] = self._process.stdin
        self._out: IO[str] = self._process.stdout
        self._out.readline()

    def run(self, number: int, limit: float) -> dict[str, Any] | None:
        """Make a fault happen; return its record, or ``None`` if the process ended or hung."""
        timer = threading.Timer(limit, self._process.kill)
        timer.start()
        try:
            print(number, file=self._in, flush=True)
            line = self._out.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if line.endswith("\n"):
            found: dict[str, Any] = json.loads(line)
            return found
        self._process.wait()
        self._start()
        return None

    def close(self) -> None:
        """End the process."""
        self._in.close()
        self._process.wait(60)
        self._out.close()


def campaign(
    seed: int, kinds: Sequence[Kind], numbers: Iterator[int], jobs: int, seconds: float, peer: bool = False
) -> Iterator[dict[str, Any]]:
    """Make faults happen, ``jobs`` at a time, until the time is over, and yield the record of each."""
    lock, done, running = threading.Condition(), list[dict[str, Any]](), jobs

    def work() -> None:
        nonlocal running
        victim = Victim(seed, kinds, peer)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            fault = draw(seed, number, kinds)
            found = victim.run(number, 2 * KINDS[fault.kind].limit + SLACK)
            if found is None:
                seen = [{"verdict": "hang", "seen": "the process that watches the fault has ended"}]
                found = {"number": number, "kind": fault.kind, "target": fault.target, "values": dict(fault.values)}
                found |= {"ended": "", "seconds": 0.0, "violations": seen}
            with lock:
                done.append(found)
                lock.notify()
        victim.close()
        with lock:
            running -= 1
            lock.notify()

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    while True:
        with lock:
            lock.wait_for(lambda: done or not running)
            if not done:
                return
            ready, done[:] = list(done), []
        yield from ready


def chosen_kinds(parts: Sequence[str], peer: bool) -> list[Kind]:
    """Return the kinds whose names have one of these parts; all without any."""
    load()
    return [
        each
        for name, each in KINDS.items()
        if (not parts or any(part in name for part in parts)) and (each.peer or not peer)
    ]


def run_and_log(
    seed: int, kinds: Sequence[Kind], numbers: Iterator[int], jobs: int, minutes: float, peer: bool, log: Path | None
) -> dict[str, Any]:
    """Run a campaign, log each fault, show each violation, and return its record."""
    results, begin = list[dict[str, Any]](), time.monotonic()
    with open(log or os.devnull, "w", encoding="utf-8") as lines:
        for result in campaign(seed, kinds, numbers, jobs, minutes * 60, peer):
            results.append(result)
            print(json.dumps(result), file=lines, flush=True)
            for violation in result["violations"] if not peer else ():
                which = f"{result['number']} {result['kind']}, {result['target']}"
                print(f"{which}: {violation['verdict']}: {violation['seen']}", file=sys.stderr)
    about = {"seed": seed, "jobs": jobs, "torch": torch.__version__, "date": date.today().isoformat()}
    return fault_tables.summary(results, {**about, "minutes": round((time.monotonic() - begin) / 60, 2)})


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Faults that run at the same time.")
@click.option("--only", type=int, multiple=True, help="Repeat the fault of this number.")
@click.option("--kind", "parts", multiple=True, help="Only kinds with this in their names: their numbers differ.")
@click.option("--log", type=click.Path(path_type=Path), help="Write a JSON line for each fault.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the table.")
@click.option("--record", type=click.Path(path_type=Path), help="Write the record that docs/faults.md shows.")
@click.option("--peer", is_flag=True, help="Afterwards, for a tenth as long, give torch's DataLoader the same faults.")
def main(
    minutes: float,
    seed: int,
    jobs: int,
    only: tuple[int, ...],
    parts: tuple[str, ...],
    log: Path | None,
    markdown: Path | None,
    record: Path | None,
    peer: bool,
) -> None:
    """Make faults happen, and judge how they end."""
    numbers: Iterator[int] = iter(only) if only else count()
    found = run_and_log(seed, chosen_kinds(parts, False), numbers, jobs, minutes, False, log)
    if peer:
        found["peer"] = run_and_log(seed, chosen_kinds(parts, True), count(), jobs, minutes / 10, True, None)
    text = fault_tables.table(found) + (
        f"\ntorch's DataLoader alone:\n\n{fault_tables.table(found['peer'])}" if peer else ""
    )
    print(text)
    if markdown:
        markdown.write_text(text, encoding="utf-8")
    if record:
        record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(each["violations"] for each in found["kinds"].values()))


if __name__ == "__main__":
    main()
