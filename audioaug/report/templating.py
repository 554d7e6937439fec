"""Templates made into self-contained pages: nothing from the network, and no script or style but our own runs.

Every string is escaped, and so is what could steer a terminal or reverse its text (``errors.printable``).
A content security policy that names our script and our style by their hashes makes the browser refuse any other, so
even a mistake in a template would not run what is in a name.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from audioaug.errors import printable

if TYPE_CHECKING:
    from jinja2 import Environment


def page_from(template: str, **values: Any) -> str:
    """Fill in a template of ``templates/``; it gets the style, the script and their hashes besides."""
    style, script = _source("style.css"), _source("page.js")
    known = {"style": style, "script": script, "style_hash": _hash(style), "script_hash": _hash(script)}
    return _environment().get_template(template).render(**known, **values)


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
    """Return a file that goes into the page as it is."""
    from importlib.resources import files

    return files("audioaug.report").joinpath("templates", name).read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    """Make a plain string printable; what is marked as safe stays."""
    return printable(value) if type(value) is str else value


def _lines(text: str) -> Any:
    """Keep the line feeds of a text, with all else made printable and escaped."""
    from markupsafe import Markup, escape

    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256-{digest.decode()}"
