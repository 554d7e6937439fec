"""Renew what is generated in the READMEs: README.md's table of transforms, audioaug/README.md's list of files.

    python scripts/update_readme.py

The table is made from datasets/profiles/verify_cpu.json, which `make records` renews; the list from the first line of
each module's docstring.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
README, FILES_README = ROOT / "README.md", ROOT / "audioaug/README.md"
VERIFIED = ROOT / "datasets/profiles/verify_cpu.json"
MARKERS = re.compile(r"(<!-- table: .*? -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADER = "| transform | on the device | worst error | in torch-audiomentations |\n|---|---|---|---|\n"
FOLDERS = ("core", "audio", "dsp", "ops", "engine", "loader", "verify", "measure", "decide", "report", "advise")
"""In the order in which data flows; others come after these."""


# Transforms


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


# Files


def file_map(root: Path = ROOT) -> str:
    """Return a table for each folder of the package and for the scripts: every file, and what it says it is."""
    folders = {path.parent for path in (root / "audioaug").rglob("*.py")}
    ranks = {root / "audioaug" / name: rank for rank, name in enumerate(FOLDERS)}

    def order(folder: Path) -> tuple[int, Path]:
        return min((rank for top, rank in ranks.items() if top in (folder, *folder.parents)), default=99), folder

    package, scripts = root / "audioaug", root / "scripts"
    ordered = [package, *sorted(folders - {package}, key=order), scripts, scripts / "models"]
    return "".join(_folder(folder, root) for folder in ordered)


def _folder(folder: Path, root: Path) -> str:
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    heading = f"\n## {folder.relative_to(root).as_posix()}\n\n"
    package = folder / "__init__.py"
    heading += f"{summary(package)}.\n\n" if package.exists() else ""
    rows = "".join(f"| `{path.name}` | {summary(path)} |\n" for path in files)
    return f"{heading}| file | what it is |\n|---|---|\n{rows}" if files else ""


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, without its full stop, and more that are on its line."""
    says = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph, line = " ".join(says.partition("\n\n")[0].split()), says.partition("\n")[0]
    ends = [found.end() for found in re.finditer(r"[.?!](?=\s+[A-Z`]|$)", paragraph)] or [len(paragraph)]
    words = paragraph[: max([end for end in ends if end <= len(line)], default=ends[0])]
    return words.rstrip(".").replace("``", "`").replace("|", "\\|")


# Both


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each README and what belongs between its markers."""
    yield README, table(json.loads(VERIFIED.read_text(encoding="utf-8"))["verdicts"])
    yield FILES_README, file_map() + "\n"


def renewed(readme: Path, content: str) -> str:
    """Return a README's text with this content between its markers."""
    text = readme.read_text(encoding="utf-8")
    if not MARKERS.search(text):
        raise click.ClickException(f"{readme.name} has no markers for the table.")
    return MARKERS.sub(lambda found: found[1] + content + found[2], text)


@click.command(help=(__doc__ or "").partition("\n\n")[0])
def main() -> None:
    """Write between the markers of both READMEs."""
    for readme, content in generated():
        readme.write_text(renewed(readme, content), encoding="utf-8")


if __name__ == "__main__":
    main()
