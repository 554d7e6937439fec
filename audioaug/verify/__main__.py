"""``audioaug verify``: every op, through every build, compared by contract.

Progress goes to stderr, the table to stdout. Exit 0: every contract is kept; 1: one is not; 2: wrong usage.
"""

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audioaug import command
from audioaug.errors import DeviceError, first_line
from audioaug.records import SCHEMA_VERSION, DeviceEngine, write_record

if TYPE_CHECKING:
    from audioaug.verify.contracts import Verdict

ENGINES: tuple[DeviceEngine, ...] = ("batched", "torch-audiomentations")
COLUMNS = ("op", "engine", "contract", "worst error", "limit", "verdict", "remark")
TABLE_WIDTH = 140
COLOURS = {"passed": "green", "failed": "bold red"}


@dataclasses.dataclass(frozen=True)
class Verification:
    """Everything one run of this command found. An error or limit that is no number is ``None``."""

    device: str
    seconds: float
    complete: bool
    verdicts: "tuple[Verdict, ...]"
    schema_version: int = SCHEMA_VERSION


@click.command(
    short_help="Prove that the builds of every op are equivalent.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--op", "names", multiple=True, metavar="NAME", help="Only this op (can be given several times).")
@click.option("--device", default="cpu", show_default=True, help="Where the device build runs: cpu, cuda, cuda:1, mps.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results there too."
)
def main(names: tuple[str, ...], device: str, json_file: Path | None) -> None:
    """Prove that the builds of every op do the same thing: same draws through each, compared by contract."""
    verdicts = run(names, device, json_file)
    show(verdicts)
    failed = sorted({verdict.op for verdict in verdicts if verdict.status == "failed"})
    if failed:
        click.echo(f"{len(failed)} of {len({v.op for v in verdicts})} ops break their contract: {', '.join(failed)}.")
    sys.exit(1 if failed else 0)


def run(names: tuple[str, ...], device: str, json_file: Path | None) -> "list[Verdict]":
    """Verify the named ops, or all, with all engines; the file is written before the first and after each one."""
    import torch

    from audioaug import ops  # noqa: F401  (fills the registry)
    from audioaug.core import CUSTOM_OPS, REGISTRY
    from audioaug.core.op import op_class
    from audioaug.verify.replay import verify_op

    check_device(device)
    torch.set_num_threads(1)  # the batches are small: on busy cores, threads wait for each other seven times longer
    kinds = [REGISTRY[name] for name in sorted(REGISTRY)] if not names else [op_class(name) for name in names]
    verdicts: list[Verdict] = []
    began = time.perf_counter()
    _write(json_file, verdicts, device, began, complete=False)
    for kind in kinds:
        for engine in ENGINES:
            start = time.perf_counter()
            verdicts.append(verify_op(kind, engine, device))
            took = time.perf_counter() - start
            click.echo(f"{kind.__name__}, {engine}: {verdicts[-1].status} ({took:.1f} s)", err=True)
        _write(json_file, verdicts, device, began, complete=kind is kinds[-1])
    for kind in CUSTOM_OPS.values() if not names else ():
        click.echo(f"{kind.__name__}: not compared with anything: {kind.contract.reason}", err=True)
    return verdicts


def check_device(device: str) -> None:
    """Raise ``DeviceError`` if this machine has no such device."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        message = f"There is no device {device!r} here: {first_line(error)}."
        raise DeviceError(message, "Leave --device out for the CPU.") from None


def show(verdicts: "list[Verdict]") -> None:
    """Print the table: with colours on a terminal that is wide enough, else as plain columns."""
    from rich.console import Console
    from rich.table import Table

    rows = [(*_cells(verdict), verdict.reason) for verdict in verdicts]
    console = Console(markup=False)
    if console.is_terminal and console.width >= TABLE_WIDTH:
        table = Table(*COLUMNS)
        for verdict, row in zip(verdicts, rows):
            table.add_row(*row, style=COLOURS.get(verdict.status))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows)]
    for row in (COLUMNS, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def _cells(verdict: "Verdict") -> tuple[str, ...]:
    error, limit = (
        "" if number is None else f"{number:.2g} {verdict.unit}" for number in (verdict.error, verdict.limit)
    )
    return verdict.op, verdict.engine, verdict.contract, error, limit, verdict.status


def _write(path: Path | None, verdicts: "list[Verdict]", device: str, began: float, complete: bool) -> None:
    if path is not None:
        finite = tuple(
            dataclasses.replace(verdict, error=_finite(verdict.error), limit=_finite(verdict.limit))
            for verdict in verdicts
        )
        write_record(Verification(device, time.perf_counter() - began, complete, finite), path)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


if __name__ == "__main__":
    sys.exit(command.run(main, None))
