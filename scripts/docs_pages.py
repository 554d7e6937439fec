"""What mkdocs asks of this project while it builds the documentation (see ``hooks`` in mkdocs.yml).

* A folder in the navigation (``how-to/``) stands for the pages in it, ``index.md`` first.
* ``<!-- generated: NAME -->`` in a page stands for a table of ``docs_tables``, made anew in every build, so that none can
  be out of date.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import docs_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in its place in the navigation."""
    config.nav = _expanded(config.nav or [], Path(config.docs_dir))
    return config


def _expanded(nav: list[Any], docs: Path) -> list[Any]:
    folders = [(place, *entry.items()) for place, entry in enumerate(nav) if isinstance(entry, dict)]
    found = list(nav)
    for place, (title, pages) in folders:
        if isinstance(pages, str) and pages.endswith("/"):
            found[place] = {title: _pages(docs, pages)}
    return found


def _pages(docs: Path, folder: str) -> list[str]:
    names = sorted(path.name for path in (docs / folder).glob("*.md"))
    return [folder + name for name in sorted(names, key=lambda name: name != "index.md")]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put each generated table in the place of its marker."""
    return MARKER.sub(lambda found: _table(found[1], page.file.src_uri), markdown)


def _table(name: str, source: str) -> str:
    if name not in docs_tables.TABLES:
        raise PluginError(f"{source}: there is no table {name!r}. Known: {', '.join(_known())}.")
    return docs_tables.TABLES[name]()


def _known() -> Iterable[str]:
    return sorted(docs_tables.TABLES)
