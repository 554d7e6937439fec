"""Render templates into self-contained pages: no network, no other scripts or styles.

Every string is escaped, including control characters (``errors.printable``). The content security policy allows only
our script and style, by hash, so even a mistake in a template cannot run injected code.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from audioaug.errors import printable

if TYPE_CHECKING:
    from jinja2 import Environment


def page_from(template: str, **values: Any) -> str:
    """Render a template of ``templates/`` with these values, the style, the script and their hashes."""
    style, script = _source("style.css"), _source("page.js")
    known = {"style": style, "script": script, "style_hash": _hash(style), "script_hash": _hash(script)}
    return _environment().get_template(template).render(**known, **values)


def explanations(ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the paragraphs on each of these ids of causes and notices, without those that have none.

    They are those of docs/troubleshooting.md: ``python scripts/update_readme.py`` copies them into the package.
    """
    known = json.loads(_source("explanations.json"))
    return {id: known[id] for id in dict.fromkeys(ids) if id in known}


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("audioaug.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["lines"] = _lines
    return environment


@cache
def _source(name: str) -> str:
    """Return the text of a file in ``templates/``."""
    from importlib.resources import files

    return files("audioaug.report").joinpath("templates", name).read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    """Make a plain string printable; markup stays as it is."""
    return printable(value) if type(value) is str else value


def _lines(text: str) -> Any:
    """Escape a text line by line, keeping line feeds."""
    from markupsafe import Markup, escape

    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256-{digest.decode()}"
