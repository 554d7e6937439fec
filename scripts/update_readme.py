"""Write the table of transforms into README.md from the JSON of ``python -m audioaug.verify --json FILE``.

python -m audioaug.verify --json verify.json && python scripts/update_readme.py verify.json
"""

import json
import re
from pathlib import Path
from typing import Any

import click

README = Path(__file__).resolve().parents[1] / "README.md"
MARKERS = re.compile(r"(<!-- table: .*? -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADER = "| transform | on the device | worst error | in torch-audiomentations |\n|---|---|---|---|\n"


def table(verdicts: list[dict[str, Any]]) -> str:
    """Return the Markdown table: what each transform keeps, by how much, and what the other library has for it."""
    by_op: dict[str, dict[str, dict[str, Any]]] = {}
    for verdict in verdicts:
        by_op.setdefault(verdict["op"], {})[verdict["engine"]] = verdict
    return HEADER + "".join(
        row(op, **{k.replace("-", "_"): v for k, v in engines.items()}) for op, engines in by_op.items()
    )


def row(op: str, batched: dict[str, Any], torch_audiomentations: dict[str, Any]) -> str:
    """Return the line of one transform."""
    if batched["status"] == "skipped":
        return f"| {op} | no: {batched['reason'].rstrip('.')} | - | {torch_audiomentations['status']} |\n"
    error = f"{batched['error']:.2g} {batched['unit']}"
    found = torch_audiomentations["status"]
    words = f"{found}: {torch_audiomentations['reason']}" if found in ("differs", "unavailable") else found
    return f"| {op} | {batched['contract']}, {batched['status']} | {error} | {words} |\n"


@click.command()
@click.argument("verify_json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(verify_json: Path) -> None:
    """Write the table between the README's markers."""
    verdicts = json.loads(verify_json.read_text(encoding="utf-8"))["verdicts"]
    text = README.read_text(encoding="utf-8")
    if not MARKERS.search(text):
        raise click.ClickException("README.md has no markers for the table.")
    README.write_text(MARKERS.sub(lambda found: found[1] + table(verdicts) + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
