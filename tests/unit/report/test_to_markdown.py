"""The Markdown report: tables stay tables whatever the names are."""

import re
from html import unescape

import pytest
from markdown_it import MarkdownIt

from audioaug.report.to_markdown import escape, render


def tables(text):
    """Each run of lines that start with a pipe."""
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def test_the_verdict_is_line_one(race):
    assert render(race).splitlines()[0] == f"**{race.verdict}**"


def test_every_row_of_a_table_has_as_many_cells_as_its_header(report):
    for table in tables(render(report)):
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table}) == 1
        assert len(table) > 2


def test_headers_break_lines_as_on_the_page(race):
    page = MarkdownIt("commonmark").enable("table").render(render(race))
    headers = re.findall(r"<th[^>]*>(.*?)</th>", page)
    assert {"predicted<br>ms", "measured<br>ms", "CPU s<br>/step", "worker<br>audiomentations"} <= set(headers)
    assert not any("\\" in header for header in headers)


def test_names_are_escaped(hostile):
    text = render(hostile)
    assert "<script>" not in text
    assert r"&lt;script&gt;\|alert(1)\|&lt;/script&gt;\`\[x\](y)\`\\x1b\[31m\\n\[bold\]\*" in text
    assert "\x1b" not in text


def test_escape_leaves_words_alone():
    assert escape("augment_cpu_bound, 3 x 4") == "augment_cpu_bound, 3 x 4"
    assert escape("__init__ a\\b & c") == r"\_\_init\_\_ a\\b &amp; c"


@pytest.mark.parametrize("name", ["__init__", "_a_ *b* ~c~ `d`", "<b>&lt;</b>", "a|b\\|c", "[x](y) ![z](w)", "a_b"])
def test_a_reader_of_markdown_sees_the_name_as_it_is(name):
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"| h |\n| - |\n| {escape(name)} |\n")
    assert [unescape(candidate) for candidate in re.findall("<td>(.*)</td>", page)] == [name]


def test_markdown_has_the_same_content_as_text(race):
    text = render(race)
    for part in (
        "| **use** | **split at 2, 4 workers, prefetch 4, pinned** | **2** "
        "| **audiomentations + batched** | **4** | **41 (38 .. 44)** |",
        "| today | all in the loader, 2 workers |",
        "```python\nimport audioaug\n",
        "today: 284 ms = model 38.0 ms + waiting 246 ms",
        "- **infeasible**: all on the device, 2 workers; all on the device, 4 workers: "
        "Mp3Compression runs only on the CPU",
    ):
        assert part in text


def test_an_interrupted_run_is_marked(interrupted):
    assert "**incomplete: interrupted or failed**" in render(interrupted)
