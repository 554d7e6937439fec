"""Renew generated text: README.md's table of contracts, audioaug/README.md's list of files, the page's explanations.

    python scripts/update_readme.py

The table is made from datasets/profiles/verify_cpu.json, which `make records` renews; the list from the first line of
each module's docstring; the explanations of ids on a report's page from docs/troubleshooting.md.
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
TROUBLESHOOTING, EXPLANATIONS = ROOT / "docs/troubleshooting.md", ROOT / "audioaug/report/templates/explanations.json"
MARKERS = re.compile(r"(<!-- table: .*? -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADER = "| contract | transforms | promise | largest error |\n|---|---|---|---|\n"
MEANINGS = {
    "exact": "equal sample for sample",
    "spectral": "equal except near the Nyquist frequency",
    "log_spectrum": "equal in dB, but for what is far below the loudest",
    "statistical": "noise of the same level, spectrum and independence",
    "perceptual": "same spectrum, timing, pitch and level to the ear",
    "cpu_only": "no device build",
}
FOLDERS = ("core", "audio", "dsp", "ops", "engine", "loader", "verify", "measure", "decide", "report", "advise")
"""In the order in which data flows; others come after these."""


# Contracts


def contracts(verdicts: list[dict[str, Any]]) -> str:
    """Return a table: how many transforms each kind of contract has, and the largest error of any of them."""
    ours: dict[str, list[dict[str, Any]]] = {}
    for verdict in verdicts:
        if verdict["engine"] == "batched":
            ours.setdefault(verdict["contract"], []).append(verdict)
    return HEADER + "".join(_row(kind, ours[kind]) for kind in MEANINGS if kind in ours)


def _row(kind: str, verdicts: list[dict[str, Any]]) -> str:
    if kind == "cpu_only":
        names = ", ".join(verdict["op"] for verdict in verdicts)
        return f"| workers only | {len(verdicts)} | {MEANINGS[kind]}: {names} | |\n"
    worst = max(verdicts, key=lambda verdict: verdict["error"])
    error = f"{worst['error']:.2g} {worst['unit']} ({worst['op']})"
    failed = [verdict["op"] for verdict in verdicts if verdict["status"] != "passed"]
    count = f"{len(verdicts)}, failed: {', '.join(failed)}" if failed else str(len(verdicts))
    return f"| {kind.replace('_', ' ')} | {count} | {MEANINGS[kind]} | {error} |\n"


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


# Explanations


def explanations(page: str) -> str:
    """Return the entries of the page on troubleshooting as JSON: for each id its paragraphs, without markup."""
    entries = re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    found = {id: [_plain(paragraph) for paragraph in text.strip().split("\n\n")] for id, text in entries}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _plain(markdown: str) -> str:
    """Return a paragraph as one line, without backticks and with the text of its links."""
    return re.sub(r"\[(.+?)\]\(.+?\)", r"\1", " ".join(markdown.split())).replace("`", "")


# Both


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each README and what belongs between its markers."""
    yield README, contracts(json.loads(VERIFIED.read_text(encoding="utf-8"))["verdicts"])
    yield FILES_README, file_map() + "\n"


def renewed(readme: Path, content: str) -> str:
    """Return a README's text with this content between its markers."""
    text = readme.read_text(encoding="utf-8")
    if not MARKERS.search(text):
        raise click.ClickException(f"{readme.name} has no markers for the table.")
    return MARKERS.sub(lambda found: found[1] + content + found[2], text)


@click.command(help=(__doc__ or "").partition("\n\n")[0])
def main() -> None:
    """Write between the markers of both READMEs, and the explanations."""
    for readme, content in generated():
        readme.write_text(renewed(readme, content), encoding="utf-8")
    EXPLANATIONS.write_text(explanations(TROUBLESHOOTING.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
