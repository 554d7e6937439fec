"""What mkdocs asks of this project while it builds the documentation (see ``hooks`` in mkdocs.yml).

* A folder in the navigation (``how-to/``) is replaced by the pages in it, ``index.md`` first.
* ``<!-- generated: NAME -->`` in a page is replaced by a table of ``docs_tables`` or ``bench_engine_report``, made anew
  in every build, so that it cannot be out of date. The table also replaces the lines below,
  up to an empty one, which are for readers of the file.
"""

import re
from pathlib import Path
from typing import Any

import bench_engine_report
import docs_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

TABLES = {**docs_tables.TABLES, **bench_engine_report.TABLES}
MARKER = re.compile(r"^<!-- generated: (.+?) -->$(?:\n.+$)*", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in its place in the navigation."""
    config.nav = expanded(config.nav or [], Path(config.docs_dir)) or None
    return config


def expanded(nav: list[Any], docs: Path) -> list[Any]:
    """Return the navigation with the pages of each folder in its place."""
    return [_expanded(entry, docs) if isinstance(entry, dict) else entry for entry in nav]


def _expanded(entry: dict[str, Any], docs: Path) -> dict[str, Any]:
    [(title, pages)] = entry.items()
    return {title: _pages(docs, pages)} if isinstance(pages, str) and pages.endswith("/") else entry


def _pages(docs: Path, folder: str) -> list[str]:
    names = sorted((path.name for path in (docs / folder).glob("*.md")), key=lambda name: (name != "index.md", name))
    if not names:
        raise PluginError(f"mkdocs.yml: {folder} has no pages.")
    return [folder + name for name in names]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put each generated table in the place of its marker."""
    return MARKER.sub(lambda found: _table(found[1], page.file.src_uri), markdown)


def _table(name: str, source: str) -> str:
    if name not in TABLES:
        raise PluginError(f"{source}: there is no table {name!r}. Known: {', '.join(TABLES)}.")
    return TABLES[name]()
