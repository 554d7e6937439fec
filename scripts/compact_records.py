"""Write records compactly: a row a line, numbers rounded. ``audioaug.records.read_record`` reads them.

python scripts/compact_records.py FILE...       rewrites these files
"""

import json
from pathlib import Path
from typing import Any

import click

from audioaug.records import to_json
from audioaug.writing import write_file

DIGITS = 7
"""Significant digits of a number that is not whole: more than any page prints."""


def write_compact(record: Any, path: str | Path) -> None:
    """Write a record, which may be a dataclass or plain values, as compact JSON; raise ``OutputError`` if it fails."""
    write_file(compact(to_json(record)), path)


def compact(text: str) -> str:
    """Return JSON with a line for each field, and for each entry of a list, numbers rounded."""
    content = json.loads(text, parse_float=lambda number: float(f"{float(number):.{DIGITS}g}"))
    if isinstance(content, list):
        return _entries(content) + "\n"
    fields = (f"{json.dumps(name)}: {_entries(value)}" for name, value in content.items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _entries(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_minified, value)) + "\n]"
    return _minified(value)


def _minified(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.argument("paths", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(paths: tuple[Path, ...]) -> None:
    """Rewrite files."""
    for path in paths:
        write_file(compact(path.read_text(encoding="utf-8")), path)


if __name__ == "__main__":
    main()
