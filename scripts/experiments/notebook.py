"""For the notebooks: a script's results, tables, claims, players. The heavy work is the scripts'."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from IPython.display import Markdown, display

from audioaug.records import read_record
from experiments.claims import Claim

Record = TypeVar("Record")

ROOT = Path(__file__).parents[2]
QUICK = os.environ.get("AUDIOAUG_NOTEBOOK", "full") == "small"
"""Whether to measure less, and less surely."""


def measured(script: str, kind: type[Record], *options: str) -> Record:
    """Run a script of ``scripts/`` in a process of its own and return the record that it writes.

    Raises:
        RuntimeError: the script failed; what it said last is in the message.
    """
    options = (*options, *(["--quick"] if QUICK else []))
    print(" ".join(["python", f"scripts/{script}.py", *options]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *options, "--json", str(path)]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{script}.py failed:\n{done.stderr[-2000:]}")
        return read_record(path, kind)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Show rows as a table."""
    lines = [header, ["---"] * len(header), *rows]
    display(Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)))


def claims_table(claims: Iterable[Claim]) -> None:
    """Show each claim beside what was measured."""
    rows = [[claim.id, claim.says, claim.found, claim.holds] for claim in claims]
    table(["", "the claim", "measured here", "holds here"], rows)
