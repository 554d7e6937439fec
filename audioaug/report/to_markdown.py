"""The report as GitHub Markdown."""

import re

from audioaug.errors import printable
from audioaug.records import Report
from audioaug.report import charts, parts
from audioaug.report.page import page

BAR_WIDTH = 72


def render(report: Report) -> str:
    """Render the page with tables and fenced code, every name escaped."""
    blocks = []
    for section in page(report):
        blocks += [f"### {escape(section.title)}"] if section.title else []
        blocks += [block(part) for part in section.parts]
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Escape Markdown and HTML markup."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def block(part: parts.Part) -> str:
    """Return one part of the page as a Markdown block."""
    match part:
        case parts.Line():
            return line(part)
        case parts.Table():
            return table(part)
        case parts.Facts():
            return "\n".join(f"- **{escape(label)}**: {escape(content)}" for label, content in part.items)
        case parts.Bars():
            return fenced(charts.plain(part, BAR_WIDTH))
        case parts.Code():
            return fenced(part.text, "python")


def line(part: parts.Line) -> str:
    """Return a paragraph; the verdict and warnings in bold, the aside in italics."""
    text = f"**{escape(part.text)}**" if part.kind in ("verdict", "warning") else escape(part.text)
    return f"{text} *({escape(part.aside)})*".strip() if part.aside else text


def table(part: parts.Table) -> str:
    """Return a table; the recommended row in bold, line feeds in headers as ``<br>``."""
    header = ["<br>".join(map(escape, column.header.split("\n"))) for column in part.columns]
    rule = ["---:" if column.number else ":---" for column in part.columns]
    rows = [[emphasised(escape(value), row.kind) for value in row.values] for row in part.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def emphasised(cell: str, kind: parts.RowKind) -> str:
    """Return a table cell: bold in the best row, italics in a predicted one."""
    stars = {"plain": "", "best": "**", "guess": "*"}[kind]
    return f"{stars}{cell}{stars}" if cell else ""


def fenced(text: str, language: str = "") -> str:
    """Return a code block."""
    return f"```{language}\n{text}\n```"
