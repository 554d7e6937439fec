"""Showing what the advisor found: pure functions from a ``Report`` record to a string.

Renderers, each ``render(report) -> str``:

    to_text.py      for a terminal: a given width, with or without colour
    to_markdown.py  for a pull request: GitHub tables
    to_html.py      one self-contained page: no network, no script but ours
    to_json.py      the record itself, for machines and for ``--load``

A monitored run (``MonitoredRun`` and its ``Window`` records) has two of its own: ``monitor_text.py`` draws one window,
``monitor_html.py`` the page; ``meters.py`` is what both show.

What the pages are made of:

    templating.py   a template filled in, escaped, with its style, script and security policy
    charts.py       the geometry of the charts
    sounds.py       players and spectrograms

What the renderers of a report agree on:

    page.py         the report as sections of parts, in reading order
    parts.py        what a page is made of: Line, Table, Facts, Bars, Code
    candidates.py        the table of candidates; measured and predicted never share a column
    costs.py        the tables of what each transform and each other stage costs
    bars.py         where a step's time goes, before and after, to one scale
    snippet.py      the code to paste
    sentences.py    verdict, cause, evidence, price, machine, in words
"""
