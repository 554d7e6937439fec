"""``audioaug compare A B``: what changed between two reports of the advisor, or two runs that ``Monitor`` logged."""

import json
import sys
from pathlib import Path

import click

from audioaug.command import run
from audioaug.errors import UsageError, printable
from audioaug.monitor import read_log
from audioaug.records import Report, read_record
from audioaug.writing import read_input


@click.command(short_help="Compare two reports or two monitored runs.")
@click.argument("before")
@click.argument("now")
def compare(before: str, now: str) -> None:
    """Print what changed from BEFORE to NOW: two --json reports of the advisor, or two logs of Monitor.

    For example after an update of a driver or library, or on another machine. Times have intervals; those without a
    significant difference are marked.
    """
    from audioaug.decide.compare import compare_reports, compare_runs

    kinds = [_is_report(path) for path in (before, now)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{before} and {now} are a report and a log of Monitor.", "Give two of the same kind.")
    if kinds[0]:
        lines = compare_reports(read_record(before, Report), read_record(now, Report))
    else:
        lines = compare_runs(read_log(before), read_log(now))
    click.echo("\n".join(map(printable, lines)))


def _is_report(path: str | Path) -> bool:
    """Return whether a file is one JSON object, as a report is; a log has one a line."""
    try:
        content = json.loads(read_input(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "workload" in content


def main() -> int:
    """Run the command and return its exit code; every error is one sentence on stderr."""
    return run(compare, None)


if __name__ == "__main__":
    sys.exit(main())
