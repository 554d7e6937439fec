"""Explanations: what each id of a cause or a notice means, and what to do.

They are those of docs/troubleshooting.md: ``python scripts/update_readme.py`` copies them into the package.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files


def explanations(ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the paragraphs on each of these ids, without those that have none."""
    known = _all()
    return {id: known[id] for id in dict.fromkeys(ids) if id in known}


@cache
def _all() -> dict[str, list[str]]:
    text = files("audioaug.report").joinpath("templates", "explanations.json").read_text(encoding="utf-8")
    known: dict[str, list[str]] = json.loads(text)
    return known
