"""Phrases that a native speaker would not write stay out of the code, the docs and the messages."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {
    r"\b(told|tells?|telling) of\b": "reports, lists, shows",
    r"\b(is|are|was|were|be|been) told\b": "is notified, is reported",
    r"\bdear(er|est)?\b": "expensive, slow",
    r"\bso many\b": "this many, at most N",
    r"\bbehind the (cut|end|last|clip|plan)\b": "after the cut, past the end",
    r"\bholds? (\w+ )?up\b": "is the bottleneck",
    r"\bat once\b": "atomically, together, immediately",
    r"\bone pass\b": "fused",
    r"\b(a|an|two|three) \w+ of the time\b": "2x faster",
    r"\b(nobody|somebody|whoever|anybody|everybody)\b": "the caller, no other process",
    r"\bin vain\b": "failed",
    r"\ba word about\b": "a notice",
    r"\breckon": "compute",
    r"\b(goes|went) (through|on)\b": "iterates, resumes, continues",
    r"\bstretch(es)? of (samples|time|audio|silence)\b": "segment, span",
    r"\bturned (around|over)\b": "reversed, inverted",
    r"\bstands?\b(?!-| ?in\b|ard|alone)": "is, appears",
    r"\balike\b": "equally, the same",
    r"\bas ever\b": "as usual",
}
"""What to look for, and what to write instead."""

EXCEPTIONS = ("tests/unit/test_words.py",)
"""Files that quote the phrases."""

SUFFIXES = {".py", ".md", ".toml", ".sh", ".yml", ".html", ".css", ".js", ".yaml", ".ipynb"}


def prose() -> list[Path]:
    """Return the files that people read, as git tracks them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    paths = [ROOT / name for name in listed if name not in EXCEPTIONS and not name.startswith("datasets/")]
    return [path for path in paths if path.suffix in SUFFIXES or path.name == "Makefile"]


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; of a notebook, those of its cells without their outputs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text.splitlines()


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrase_is_not_used(phrase: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in prose()
        for number, line in enumerate(lines_of(path), 1)
        if re.search(phrase, line, re.IGNORECASE)
    ]
    assert not found, f"write {PHRASES[phrase]!r} instead:\n" + "\n".join(found)


def test_every_phrase_is_found_where_it_is_used() -> None:
    sentence = (
        "A word about it: somebody is told of so many at once, dear in vain, behind the end, alike and as ever; it "
        "holds up, goes on, stands, is turned over in one pass, a third of the time, reckons a stretch of samples."
    )
    assert [phrase for phrase in PHRASES if not re.search(phrase, sentence, re.IGNORECASE)] == []
