"""The report as one self-contained page: no script, nothing from the network, every name escaped."""

from collections.abc import Iterable
from html import escape

from audioaug.records import Report
from audioaug.report import bars, parts
from audioaug.report.page import page

BAR_WIDTH = 96
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .7em; text-align: left; border-bottom: 1px solid #ddd }
td.number, th.number { text-align: right } .best, .warning, dt { font-weight: bold } .best { background: #e8f5e9 }
.guess, .note, small { color: #777 } .verdict { font-size: 1.4em } pre { background: #f6f6f6; padding: .8em }
"""


def render(report: Report) -> str:
    """The page, with its style inside."""
    body = "\n".join(
        (f"<h2>{safe(section.title)}</h2>\n" if section.title else "") + "\n".join(map(element, section.parts))
        for section in page(report)
    )
    head = f'<meta charset="utf-8"><title>audioaug: {safe(report.verdict)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def safe(text: str) -> str:
    """Escaped, quotes included."""
    return escape(parts.printable(text))


def element(part: parts.Part) -> str:
    """One part of the page as one element."""
    match part:
        case parts.Line():
            aside = f" <small>{safe(part.aside)}</small>" if part.aside else ""
            return f'<p class="{part.kind}">{safe(part.text)}{aside}</p>'
        case parts.Table():
            return table(part)
        case parts.Facts():
            return f"<dl>{''.join(f'<dt>{safe(label)}</dt><dd>{safe(text)}</dd>' for label, text in part.items)}</dl>"
        case parts.Bars():
            return f"<pre>{escape(bars.plain(part, BAR_WIDTH))}</pre>"
        case parts.Code():
            return f"<pre>{escape(part.text)}</pre>"


def table(part: parts.Table) -> str:
    """A table with one class a row and one for numbers."""
    classes = ["number" if column.number else "" for column in part.columns]

    def cells(tag: str, values: Iterable[str]) -> str:
        pairs = zip(classes, values, strict=True)
        return "".join(f'<{tag} class="{kind}">{safe(value)}</{tag}>' for kind, value in pairs)

    head = cells("th", (column.header for column in part.columns))
    rows = "\n".join(f'<tr class="{row.kind}">{cells("td", row.values)}</tr>' for row in part.rows)
    return f"<table>\n<tr>{head}</tr>\n{rows}\n</table>"
