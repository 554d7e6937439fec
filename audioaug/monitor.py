"""``audioaug monitor RUN.jsonl --html RUN.html``: write the page of a run that ``audioaug.Monitor`` logged."""

import sys
from pathlib import Path

import click

from audioaug.command import run
from audioaug.errors import UsageError
from audioaug.records import MonitoredRun, Window, from_json
from audioaug.writing import read_input, write_file


@click.command(short_help="Write the page of a logged training run.")
@click.argument("log")
@click.option("--html", metavar="FILE", required=True, help="Write the page to FILE.")
def monitor(log: str, html: str) -> None:
    """Write the page of LOG, the JSON lines that Monitor(log=...) writes; the run may still be in progress."""
    from audioaug.report.monitor import render

    write_file(render(*read_log(log)), html)


def read_log(path: str | Path) -> tuple[MonitoredRun, list[Window]]:
    """Read a log; raise ``UsageError`` if it is invalid. An incomplete last line is ignored."""
    lines = read_input(path).split(b"\n")
    if not lines[0]:
        raise UsageError(f"{path} is empty.", "Give the file that Monitor(log=...) wrote.")
    complete = lines[1:-1]  # whatever follows the last line feed is still being written
    try:
        return from_json(lines[0], MonitoredRun), [from_json(line, Window) for line in complete]
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", "Give the file that Monitor(log=...) wrote.") from None


def main() -> int:
    """Run the command and return its exit code; every error is one sentence on stderr."""
    return run(monitor, None)


if __name__ == "__main__":
    sys.exit(main())
