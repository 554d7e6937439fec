"""The terminal report: reading order, width, no escape codes, nothing lost."""

import subprocess
import sys
from dataclasses import replace

import pytest

from audioaug.records import Allocation
from audioaug.report.to_text import render

WIDTHS = [40, 60, 80, 100, 120, 200]


def test_the_verdict_is_line_one_and_the_cause_line_two(race, early_exit):
    lines = render(race, width=160).splitlines()
    assert lines[0] == race.verdict
    assert lines[1] == f"{race.recommendation.because} [augment_cpu_bound]"
    assert render(early_exit, width=160).splitlines()[0] == early_exit.verdict


def test_an_interrupted_run_is_marked_on_top(interrupted, race):
    assert render(interrupted).splitlines()[:2] == [
        "No recommendation: nothing was compared yet.",
        "incomplete: interrupted or failed",
    ]
    assert "incomplete" not in render(race)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_width(report, width):
    assert max(map(len, render(report, width=width).splitlines())) <= width


def test_escape_codes_only_when_asked_for(report, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in render(report)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[1m" in render(report, colour=True)


def test_the_terminal_does_not_change_the_width(race, monkeypatch):
    before = render(race, width=120, colour=True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "50")
    assert render(race, width=120, colour=True) == before


def test_colour_changes_nothing_but_the_colour(report):
    from rich.text import Text

    coloured = Text.from_ansi(render(report, colour=True)).plain
    assert [line.rstrip() for line in coloured.splitlines()] == render(report).splitlines()


def test_names_are_not_read_as_markup(hostile):
    text = render(hostile, width=160)
    assert text.splitlines()[0] == r"Use <script>|alert(1)|</script>`[x](y)`\x1b[31m\n[bold]* now."


@pytest.mark.parametrize("width", [80, 120])
def test_the_recommended_row_keeps_its_numbers_at_any_usual_width(race, width):
    (row,) = [line for line in render(race, width=width).splitlines() if line.startswith("use ")]
    for text in ("split at 2, 4 workers", "41 (38 .. 44)", "40.1 (39.8 .. 40.4)", "5.2 %"):
        assert text in row
    assert all((text in row) == (width == 120) for text in ("1,596", "0.32", "3.7 GiB"))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_the_recommended_candidate_is_cropped(race, width):
    text = render(race, width=width)
    assert all(number in text for number in ("41 (38 .. 44)", "40.1 (39.8 .. 40.4)", "5.2 %"))


def test_a_table_wider_than_the_page_is_rows_of_labelled_values(race):
    lines = render(race, width=50).splitlines()
    start = lines.index("use: split at 2, 4 workers, prefetch 4, pinned")
    assert lines[start + 1 : start + 4] == [
        "  predicted ms  41 (38 .. 44)",
        "  measured ms   40.1 (39.8 .. 40.4)",
        "  stall         5.2 %",
    ]
    assert "  worker audiomentations  402 (393 .. 415)" in lines


def test_a_wide_page_names_cut_engines_and_workers(race):
    lines = render(race, width=200).splitlines()
    (row,) = [line for line in lines if line.startswith("tie")]
    assert "split at 1, 4 workers    " in row
    assert "1  audiomentations + batched" in row


def test_bars_are_to_one_scale_on_the_page(race):
    lines = render(race, width=109).splitlines()
    today = next(line for line in lines if line.startswith("today    #")).removeprefix("today    ")
    advised = next(line for line in lines if line.startswith("advised  #")).removeprefix("advised  ")
    assert (len(today), today.count("#"), today.count(".")) == (100, 13, 87)
    assert (len(advised), advised.count("#"), advised.count("=")) == (14, 13, 1)


def test_the_legend_of_the_bars_and_their_numbers_break_between_items(race):
    four = replace(race, before=Allocation(38.0, 2.1, 200.0, 43.9))
    lines = render(four, width=60).splitlines()
    start = lines.index("Where the time of one step goes")
    assert lines[start + 1 : start + 3] == [
        "         # model   = augmentation on the device",
        "         . waiting for data   ~ contention for cores",
    ]
    assert lines[start + 4 : start + 6] == [
        "         284 ms = model 38.0 ms + augmentation 2.10 ms",
        "         + waiting 200 ms + contention 43.9 ms",
    ]


def test_report_contains_the_essential_facts(race):
    text = render(race, width=120)
    for sentence in (
        "A tie: split at 2, 4 workers, prefetch 4, pinned does not differ significantly from split at 1, 4 workers.",
        "infeasible  all on the device, 2 workers; all on the device, 4 workers: Mp3Compression runs only on the CPU",
        "284 ms = model 38.0 ms + waiting 246 ms",
        "plan = audioaug.Plan(cut=2, num_workers=4, prefetch_factor=4, pin_memory=True)",
        "This advice took 58 s; it pays for itself after 2,494 steps (1 min 40 s of training).",
        "thread_oversubscription  Workers ran with 1 torch thread each",
        "machine   NVIDIA H100 80GB HBM3 (80.0 GiB), AMD EPYC 9354, 15.5 of 64 cores usable",
        "dataset from the bundled demo data",
    ):
        assert sentence in text


def test_the_date_is_among_the_facts(race):
    dated = replace(race, date="2026-11-25T14:19:10+00:00")
    assert "date      2026-11-25 14:19:10 UTC\nmachine   NVIDIA" in render(dated)
    assert "UTC" not in render(race)  # a report of an earlier version has none


def test_renderers_load_rich_only_when_they_render():
    code = (
        "import sys, audioaug.report.to_text, audioaug.report.to_html, audioaug.report.to_markdown;"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
