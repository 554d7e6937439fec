"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

from pathlib import Path

import click

from audioaug.advise.cli import advise as command
from audioaug.decide.what_if import NUMBERS, PROFILE

DOCS = Path(__file__).parents[2] / "docs"


def test_r5_18_what_if_documents_each_of_its_names() -> None:
    shown = command.get_help(click.Context(command))
    page = (DOCS / "advisor.md").read_text(encoding="utf-8")
    for name in (*NUMBERS, PROFILE):
        assert f"{name}=" in shown and f"| `{name}` |" in page
