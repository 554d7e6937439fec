"""Renderers: pure functions from a ``Report`` record to a string.

Renderers, each with ``render(report) -> str``:

    to_text.py      for a terminal: a given width, with or without colour
    to_markdown.py  for a pull request: GitHub tables
    to_html.py      one self-contained page: no network, only our script

JSON is ``records.to_json``. A monitored run (``MonitoredRun`` and its ``Window`` records) has ``monitor.py``: one window
for a terminal, and the page.

Shared by the pages:

    templating.py   templates, escaping, and the content security policy
    charts.py       bars of characters, and the geometry of charts
    sounds.py       players and spectrograms

Shared by the renderers of a report:

    page.py         the report as sections of parts, in reading order; its sentences
    parts.py        the parts of a page: Line, Table, Facts, Bars, Code
    candidates.py   the table of candidates; measured and predicted times never share a column
    costs.py        the tables of stage costs
    snippet.py      the code to paste
"""
